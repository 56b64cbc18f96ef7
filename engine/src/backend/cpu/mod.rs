//! The CPU backend: loops over host memory. The reference for other devices.
//!
//! Work is split among threads into parts that depend only on sizes, and partial sums are added in order, so results do
//! not depend on the number of threads. The last digits may differ between kinds of processors, whose matrix products
//! use different instructions.
//!
//! Scratch space is on the stack or in small host buffers, which recordings do not contain: rows, tiles and partial
//! results. Only attention needs more, for the heads of one example. The caller allocates everything else.

mod wide;
mod single;
mod halves;
pub(crate) mod number;
mod elements;
mod rows;
mod columns;
mod functions;
pub(crate) mod elementwise;
pub(crate) mod cast;
pub(crate) mod random;
pub(crate) mod reduce;
pub(crate) mod extremes;
pub(crate) mod matmul;
pub(crate) mod softmax;
pub(crate) mod norm;
pub(crate) mod attention;
pub(crate) mod index;
pub(crate) mod loss;
pub(crate) mod chunked_loss;
pub(crate) mod unfold;
pub(crate) mod rotary;
pub(crate) mod swiglu;
pub(crate) mod optim;
pub(crate) mod optim_8bit;
pub(crate) mod clip;
pub(crate) mod compare;
pub(crate) mod where_cond;
pub(crate) mod piecewise;
pub(crate) mod power;
pub(crate) mod scan;
pub(crate) mod pick;
pub(crate) mod variance;
pub(crate) mod squared_error;
pub(crate) mod frequencies;
pub(crate) mod pool;
pub(crate) mod batch_norm;
pub(crate) mod channel_dropout;

/// Number of elements of a task; fewer do not justify a second thread.
const ELEMENTS_PER_TASK: usize = 1 << 15;
