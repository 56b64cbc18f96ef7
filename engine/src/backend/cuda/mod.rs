//! The CUDA backend, which launches kernels on a stream. Calls return before the work is done.
//!
//! Each file corresponds to the file of the same name in `cpu`, and launches the kernels of the file of the same name
//! in the kernels crate. All of them use `launch`. Nothing in this module allocates device memory.

mod launch;
mod lines;
mod transposed;
pub(crate) mod elementwise;
pub(crate) mod matmul;
mod rows;
mod columns;
mod parts;
pub(crate) mod softmax;
pub(crate) mod reduce;
pub(crate) mod extremes;
mod buckets;
pub(crate) mod index;
pub(crate) mod pick;
pub(crate) mod scan;
mod window;
pub(crate) mod unfold;
pub(crate) mod pool;
pub(crate) mod norm;
pub(crate) mod batch_norm;
pub(crate) mod loss;
pub(crate) mod chunked_loss;
pub(crate) mod variance;
pub(crate) mod squared_error;
pub(crate) mod clip;
pub(crate) mod cast;
pub(crate) mod random;
pub(crate) mod channel_dropout;
pub(crate) mod compare;
pub(crate) mod where_cond;
pub(crate) mod piecewise;
pub(crate) mod power;
pub(crate) mod frequencies;
pub(crate) mod swiglu;
pub(crate) mod rotary;
mod multi_tensor;
pub(crate) mod optim;
pub(crate) mod optim_8bit;
mod clip_each;
pub(crate) mod shared_launches;
mod attention_tiles;
pub(crate) mod attention;
