//! Highwater's CUDA backend: kernel sources, their run-time compiler, and GPUs. Only this crate calls CUDA.
//!
//! Nothing in this crate panics if CUDA is missing, and CUDA is not needed to build it, because the driver, the
//! compiler and cuBLASLt are loaded on first use. Kernels are compiled for the present device on first use. Modules are
//! declared in layer order, and each uses only modules declared above it.

pub mod error;
mod functions;
mod nvrtc;
mod cublaslt;
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
