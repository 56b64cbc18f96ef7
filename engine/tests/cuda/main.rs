//! CUDA devices beside the cpu device: every kernel against its plain loop, on a GPU where HIGHWATER_TEST_GPU is 1, else
//! on the stand-in for CUDA's libraries.

mod harness;
mod elementwise;
mod matmul;
mod softmax;
