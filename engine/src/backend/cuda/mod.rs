//! The CUDA backend: launches kernels on a stream. Calls return before the work is done.
//!
//! Each file is the twin of the one of the same name in `cpu`, and starts the kernels of the one of the same name in
//! the kernels crate. `launch` is what all of them use. Nothing here allocates device memory.

mod launch;
mod lines;
mod transposed;
pub mod elementwise;
pub mod matmul;
mod rows;
mod columns;
mod parts;
pub mod softmax;
pub mod reduce;
pub mod extremes;
mod buckets;
pub mod index;
pub mod pick;
pub mod scan;
mod window;
pub mod unfold;
pub mod pool;
pub mod norm;
pub mod rms_norm;
pub mod batch_norm;
pub mod loss;
pub mod chunked_loss;
pub mod variance;
pub mod squared_error;
pub mod clip;
pub mod cast;
pub mod random;
pub mod channel_dropout;
pub mod compare;
pub mod where_cond;
pub mod piecewise;
pub mod power;
pub mod frequencies;
pub mod swiglu;
pub mod rotary;
mod multi_tensor;
pub mod optim;
pub mod optim_8bit;
mod clip_each;
pub mod shared_launches;
mod attention_tiles;
pub mod attention;
