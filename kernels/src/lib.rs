//! The only crate of Highwater that speaks CUDA.
//!
//! So far it answers one question: is there a driver, and which devices does it have? Nothing here panics when there is
//! none, and nothing is needed to build it: the driver is loaded when it is first asked for.
//! Modules stand in layer order: each uses only what is declared above it.

pub mod error;
pub mod probe;

pub use error::{Error, Result};
pub use probe::{CudaDevice, devices};
