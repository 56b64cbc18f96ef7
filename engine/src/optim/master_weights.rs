//! Master weights, which train parameters of a 16-bit dtype through copies in f32.

use super::optimizer::scale_all_in_place;
use super::pending::Pending;
use super::rule::{Rule, Update, begin_fused, remember};
use crate::autograd::Operation;
use crate::{DType, Result, Tensor, backend};

/// Wraps a rule to train copies of bf16 and f16 parameters in f32 (Micikevicius et al., "Mixed Precision Training",
/// 2018), so that updates too small for the 16-bit dtype are not lost. The copy in f32 and the state of `rule` for it
/// are optimizer state, created at the first step. Parameters are set to the rounded values of the copies. Parameters
/// of other dtypes are updated by `rule` directly.
///
/// A [fused](super::Form::Fused) rule reads the 16-bit gradient and writes both the copy and the parameter in one pass,
/// without intermediate results. For other rules, gradients are converted one parameter at a time, which needs one
/// intermediate result in f32, also used by the rule itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MasterWeights<R> {
    /// The rule that updates the copies.
    pub rule: R,
}

/// The state of [`MasterWeights`] for a parameter.
#[derive(Debug)]
pub struct Master<S> {
    /// Copy in f32; `None` for dtypes other than bf16 and f16.
    weight: Option<Tensor>,
    state: Option<S>,
}

impl<R: Rule> Rule for MasterWeights<R> {
    type State = Master<R::State>;

    fn check(&self) -> Result<()> {
        self.rule.check()
    }

    fn learning_rate(&self) -> f64 {
        self.rule.learning_rate()
    }

    fn set_learning_rate(&mut self, rate: f64) {
        self.rule.set_learning_rate(rate);
    }

    fn is_fused(&self) -> bool {
        true
    }

    fn prepare<'a>(&self, mut updates: Vec<Update<'a, Self::State>>, pending: &mut Pending<'a>) -> Result<()> {
        {
            let _operation = Operation::begin("master_weights.state", &[]);
            updates.iter_mut().try_for_each(begin)?;
        }
        let mut wide = Vec::new();
        for update in updates {
            let Update { parameter, rounded, scope, grad, grad_scale, state } = update;
            let Some(Master { weight, state }) = state else { continue };
            match weight {
                Some(weight) => {
                    let update =
                        Update { parameter: &*weight, rounded: Some(parameter), scope, grad, grad_scale, state };
                    if self.rule.is_fused() {
                        begin_fused("master_weights", parameter)?;
                        self.rule.prepare(vec![update], pending)?;
                    } else {
                        self.update_widened(update)?;
                    }
                }
                None => wide.push(Update { parameter, rounded, scope, grad, grad_scale, state }),
            }
        }
        if !self.rule.is_fused() {
            scale_all_in_place(&mut wide)?;
        }
        self.rule.prepare(wide, pending)
    }
}

impl<R: Rule> MasterWeights<R> {
    fn update_widened(&self, update: Update<'_, R::State>) -> Result<()> {
        let _operation = Operation::begin("master_weights.widen", &[]);
        let Update { parameter, rounded, grad, grad_scale, .. } = update;
        let wide = Tensor::empty(grad.shape(), DType::F32, grad.device())?;
        backend::cast(wide.view(), grad.view())?;
        drop(grad);
        if grad_scale != 1.0 {
            wide.affine_(grad_scale, 0.0)?;
        }
        self.rule.update(vec![Update { rounded: None, grad: wide, grad_scale: 1.0, ..update }])?;
        match rounded {
            Some(rounded) => rounded.copy_(parameter),
            None => Ok(()),
        }
    }
}

/// Creates a 16-bit parameter's copy before its first step.
fn begin<S>(update: &mut Update<'_, Master<S>>) -> Result<()> {
    if update.state.is_none() {
        let is_narrow = matches!(update.parameter.dtype(), DType::Bf16 | DType::F16);
        let make = || is_narrow.then(|| update.parameter.converted(DType::F32)).transpose();
        *update.state = Some(Master { weight: remember(update.scope, make)?, state: None });
    }
    Ok(())
}
