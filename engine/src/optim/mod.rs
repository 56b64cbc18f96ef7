//! Update rules, and optimizers that apply them to a whole model after backward or to each parameter within backward.
//!
//! ```
//! use highwater_engine::nn::{Init, Linear, Module};
//! use highwater_engine::optim::{Adam, Optimizer, RuleOptimizer};
//! use highwater_engine::{DType, Device, Tensor};
//!
//! let device = Device::cpu();
//! let model = Linear::new(&mut Init::new(&device, DType::F32, 0), [3, 1])?;
//! let mut optimizer = RuleOptimizer::new(Adam { learning_rate: 0.1, ..Adam::default() }, model.parameters())?;
//! let x = Tensor::ones([8, 3], DType::F32, &device)?;
//! model.forward(&x)?.sum()?.backward()?;
//! optimizer.step()?;
//! optimizer.zero_grad();
//! # Ok::<(), highwater_engine::Error>(())
//! ```

pub mod pending;
pub mod rule;
pub mod optimizer;
pub mod in_backward;
pub mod sgd;
pub mod adam;
pub mod adamw_8bit;
pub mod master_weights;
pub mod clip;
pub mod loss_scaler;
pub mod accumulation;

pub use accumulation::Accumulation;
pub use adam::{Adam, AdamRule, AdamW};
pub use adamw_8bit::AdamW8bit;
pub use clip::{clip_grad_norm, clip_grad_norm_of, clip_grad_value, grad_norm};
pub use in_backward::{InBackward, run_in_backward};
pub use loss_scaler::{LossScaler, LossScaling};
pub use master_weights::MasterWeights;
pub use optimizer::{Optimizer, RuleOptimizer};
pub use pending::Pending;
pub use rule::{Form, Rule, Update};
pub use sgd::Sgd;
