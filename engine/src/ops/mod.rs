//! Operations on tensors. Each file contains an operation's forward and its gradient side by side.
//!
//! An operation starts an [`Operation`](crate::autograd::Operation), which gives it an id in recordings; checks its
//! inputs; allocates its result; calls the backend; and [records](crate::autograd::Operation::record) itself with the
//! smallest tensors that its gradient needs. Gradients overwrite memory that is no longer needed and not shared.

pub mod cast;
pub mod arith;
pub mod math;
pub mod view;
pub mod concat;
pub mod pad;
pub mod reduce;
pub mod product;
pub mod matmul;
pub mod linear;
pub mod lora;
pub mod softmax;
pub mod norm;
pub mod rotary;
pub mod attention;
pub mod swiglu;
pub mod embedding;
pub mod loss;
pub mod linear_cross_entropy;
pub mod columns;
pub mod conv;
pub mod conv_transpose;
pub mod pool;
pub mod batch_norm;
pub mod group_norm;
pub mod dropout;
pub mod compare;
pub mod where_cond;
pub mod piecewise;
pub mod power;
pub mod operators;
pub mod scan;
pub mod gather;
pub mod extremes;
pub mod split;
pub mod variance;
pub mod squared_error;
pub mod frequencies;

pub use crate::backend::kind::Mask;
pub use attention::AttentionOptions;
pub use batch_norm::BatchStatistics;
pub use conv::ConvOptions;
pub use conv_transpose::ConvTransposeOptions;
pub use pool::PoolOptions;
pub use rotary::RotaryOptions;
