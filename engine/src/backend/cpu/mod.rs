//! The CPU backend: loops over host memory, the reference for other devices.
//!
//! Work is split among threads into parts that depend only on sizes, and partial sums are added in order, so results do
//! not depend on the number of threads. They may differ in the last digits between kinds of processors, whose matrix
//! products use different instructions.
//!
//! A kernel's scratch space is small, bounded, and on the stack or in a few rows of host memory; the caller allocates
//! everything else.

mod wide;
mod single;
mod halves;
pub mod number;
mod rows;
mod columns;
mod functions;
pub mod elementwise;
pub mod cast;
pub mod random;
pub mod reduce;
pub mod extremes;
pub mod matmul;
mod strips;
pub mod softmax;
pub mod norm;
pub mod attention;
pub mod index;
pub mod loss;
pub mod chunked_loss;
pub mod unfold;
pub mod rms_norm;
pub mod rotary;
pub mod swiglu;
pub mod split;
pub mod optim;
pub mod optim_8bit;
pub mod clip;
pub mod compare;
pub mod where_cond;
pub mod piecewise;
pub mod power;
pub mod scan;
pub mod pick;
pub mod variance;
pub mod squared_error;
pub mod frequencies;
pub mod pool;
pub mod batch_norm;
pub mod channel_dropout;

/// Elements per task: fewer are not worth a second thread.
const ELEMENTS_A_TASK: usize = 1 << 15;
