//! Tests of the stand-in by itself; other crates' tests check how it replaces CUDA.

mod kernels;
mod products;
