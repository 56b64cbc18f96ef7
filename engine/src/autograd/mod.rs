//! Reverse-mode automatic differentiation of the first order.
//!
//! Each operation that something with a gradient went into leaves a node: what its backward needs, and where the
//! inputs' gradients go. [`Tensor::backward`](crate::Tensor::backward) walks the nodes in the reverse of their
//! execution. A node is consumed as it is passed, so what it saved is freed at once, even while the loss is still held;
//! so is each gradient after its last use. Contributions to one gradient are added in place where the memory of either
//! is free.

pub(crate) mod frame;
pub mod saved;
pub mod record;
pub mod backward;
pub mod checkpoint;

pub use crate::tensor::autocast::{AutocastGuard, autocast};
pub use crate::tensor::grad_mode::{
    GradModeGuard, RecomputeGuard, enable_grad, is_grad_enabled, no_grad, no_recompute,
};
pub use crate::tensor::node::{Gradient, InputGradients};
pub(crate) use crate::tensor::recipe::Offer;
pub use crate::tensor::recipe::Recipe;
pub(crate) use crate::tensor::source::{Ingredient, Source};
pub use checkpoint::{checkpoint, is_running_again};
pub use record::{Operation, record};
pub use saved::Saved;
