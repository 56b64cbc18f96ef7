//! An autograd engine with exact memory accounting: tensors over a caching allocator that reports every byte.
//!
//! One training step makes exactly the same allocations on every device. The accounting device skips the arithmetic, so
//! it shows how much memory a step needs without having that memory.
//!
//! A model is made of [layers](nn), which apply [operations](ops) to [tensors](Tensor); an [optimizer](optim) updates
//! its parameters after [`Tensor::backward`]. Operations can fail, for example for want of memory, and return a
//! [`Result`], as the [operators](ops::operators) `+`, `-`, `*` and `/` do.
//!
//! Modules are declared in layer order: each uses only modules declared above it.

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
pub(crate) use layout::Layout;
pub use rng::Rng;
pub use shape::Shape;
pub use tensor::Tensor;
