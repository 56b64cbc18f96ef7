//! An autograd engine that knows where its memory is: tensors over a caching allocator that reports every byte.
//!
//! One training step makes exactly the same allocations on every device. On the accounting device the arithmetic is
//! left out, so it tells what a step will need without having the memory.
//!
//! Modules stand in layer order: each uses only what is declared above it.

pub mod dtype;
pub mod error;
pub mod shape;
pub mod layout;
pub mod rng;
pub mod device;
pub mod storage;
mod copies;
pub mod backend;
pub mod tensor;
pub mod autograd;
pub mod ops;
pub mod nn;
pub mod optim;
pub mod models;
pub mod scenario;

pub use autograd::{is_grad_enabled, no_grad};
pub use device::Device;
pub use dtype::DType;
pub use error::{Error, Result};
pub use rng::Rng;
pub use shape::Shape;
pub use tensor::Tensor;
