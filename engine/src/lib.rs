//! An autograd engine with exact memory accounting, whose tensors use a caching allocator that reports every byte.
//!
//! One training step makes exactly the same allocations on every device. The accounting device skips the arithmetic, so
//! it shows how much memory a step needs without having that memory.
//!
//! A model is made of [layers](nn), which apply [operations](ops) to [tensors](Tensor). An [optimizer](optim) updates
//! its parameters after [`Tensor::backward`]. Operations can fail, for example if memory runs out, and return a
//! [`Result`], as the [operators](ops::operators) `+`, `-`, `*` and `/` do.
//!
//! Modules are declared in layer order, and each uses only modules declared above it.

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
