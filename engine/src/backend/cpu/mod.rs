//! The CPU backend: loops over host memory, the reference for other devices.
//!
//! Work is shared among threads in parts that depend on sizes alone, and sums of parts are added in order: results do
//! not depend on how many threads there are. They may differ in the last places from one kind of processor to another,
//! where matrix products use other instructions.
//!
//! A kernel's own scratch space is small, bounded and on the stack or in a few rows of host memory; all else was
//! allocated by the caller.

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

/// Fewer elements than this are not worth a second thread.
const ELEMENTS_A_TASK: usize = 1 << 15;
