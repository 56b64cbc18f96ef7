//! Devices from end to end, by this crate's own calls: on a GPU where HIGHWATER_TEST_GPU is 1, else on the stand-in.

mod block;
mod kernels;
mod memory;
mod opening;
mod pages;
mod streams;
