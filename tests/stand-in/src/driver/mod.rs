//! The functions of `libcuda.so.1`, under the names that cudarc and CUDA's runtime look up.

pub(crate) mod devices;
pub(crate) mod memory;
mod pages;
mod streams;
mod kernels;
mod pools;
mod arrays;
mod lookup;
