//! The only crate of Highwater that speaks CUDA: kernels as text, their compiler, and devices that run them.
//!
//! Nothing here panics where CUDA is missing, and nothing of it is needed to build: driver, compiler and cuBLASLt are
//! loaded when they are first asked for. Kernels are compiled for the device at hand when they are first used.
//! Modules stand in layer order: each uses only what is declared above it.

pub mod error;
pub mod library;
pub mod number;
pub mod probe;
pub mod source;
pub mod compile;
pub mod cache;
pub mod gpu;

pub use error::{Error, Result};
pub use gpu::Gpu;
pub use gpu::launch::{Arguments, Grid, Kernel};
pub use gpu::product::{Matrix, Order, Product};
pub use gpu::products::Workspace;
pub use number::Number;
pub use probe::{CudaDevice, devices};
pub use source::Types;
