//! Tests of the stand-in by itself; how it stands in is tested by those whom it stands in for.

mod kernels;
mod products;
