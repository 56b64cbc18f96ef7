//! Tests of the stand-in itself. Tests of other crates check it in place of CUDA.

mod kernels;
mod products;
