//! Reverse-mode automatic differentiation of the first order.
//!
//! Each operation with an input that requires a gradient creates a node with the data for its backward and the
//! destinations of the inputs' gradients. [`Tensor::backward`](crate::Tensor::backward) walks the nodes in the reverse
//! order of execution. A node is consumed when it runs, so its saved tensors are freed at once, even while the loss is
//! still live. Each gradient is freed after its last use. Contributions to one gradient are added in place if the
//! memory of either is not shared.

pub(crate) mod frame;
pub mod saved;
pub mod record;
pub mod backward;
pub mod checkpoint;

pub use crate::tensor::autocast::{AutocastGuard, autocast};
pub use crate::tensor::grad_mode::{
    GradModeGuard, RecomputeGuard, enable_grad, is_grad_enabled, no_grad, no_recompute,
};
pub use crate::tensor::node::{Gradient, InputGradients, gradient};
pub(crate) use crate::tensor::recipe::Offer;
pub use crate::tensor::recipe::Recipe;
pub(crate) use crate::tensor::source::{Ingredient, Source};
pub use checkpoint::{checkpoint, is_running_again};
pub use record::Operation;
pub use saved::Saved;
