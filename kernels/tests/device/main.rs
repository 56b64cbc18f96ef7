//! Tests of devices through the public functions of this crate. The tests run on a GPU if HIGHWATER_TEST_GPU is 1,
//! otherwise on the stand-in.

mod block;
mod kernels;
mod memory;
mod opening;
mod pages;
mod streams;
