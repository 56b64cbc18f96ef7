//! CUDA devices: every kernel against its plain loop on the cpu device, and what devices do beside computing; on a GPU
//! where HIGHWATER_TEST_GPU is 1, else on the stand-in for CUDA's libraries.

mod harness;
mod elementwise;
mod matmul;
mod batch_norm;
mod chunked_loss;
mod clip;
mod loss;
mod norm;
mod rms_norm;
mod softmax;
mod squared_error;
mod variance;
mod recorded;
mod devices;
mod failures;
mod memory;
mod parity;
mod pinned;
mod weights;
mod streams;
mod reduce;
mod index;
mod pick;
mod scan;
mod unfold;
mod pool;
mod scenarios;
mod attention;
