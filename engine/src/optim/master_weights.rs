//! Parameters of a 16-bit dtype that are trained in single precision.

use super::optimizer::scale_all_in_place;
use super::pending::Pending;
use super::rule::{Rule, Update, begin_fused, remember};
use crate::autograd::Operation;
use crate::backend;
use crate::dtype::DType;
use crate::error::Result;
use crate::tensor::Tensor;

/// A rule that trains copies of bf16 and f16 parameters in f32 (Micikevicius et al., "Mixed Precision Training", 2018):
/// a step smaller than what the narrow type can tell apart is not lost. The copy is optimizer state, made at the first
/// step, and so is whatever `rule` remembers, in f32 too; parameters get the copies' numbers, rounded. Parameters of
/// other types are left to `rule` alone.
///
/// A [fused](super::Form::Fused) rule reads the narrow gradient, and writes copy and parameter, in one pass; there are
/// no intermediate results. With another, the gradient of one parameter after another is widened: one intermediate
/// result in f32, which serves as the rule's own.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MasterWeights<R> {
    /// How the copies change.
    pub rule: R,
}

/// The state that [`MasterWeights`] keeps for a parameter.
#[derive(Debug)]
pub struct Master<S> {
    /// The copy in f32; none for parameters that need none.
    weight: Option<Tensor>,
    /// What the rule remembers.
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

    fn update(&self, mut updates: Vec<Update<'_, Self::State>>) -> Result<()> {
        {
            let _operation = Operation::begin("master_weights.state", &[]);
            updates.iter_mut().try_for_each(begin)?;
        }
        let (mut wide, mut pending) = (Vec::new(), Pending::default());
        for update in updates {
            let Update { parameter, rounded, scope, grad, grad_scale, state } = update;
            let Some(Master { weight, state }) = state else { continue };
            match weight {
                Some(weight) => {
                    let update =
                        Update { parameter: &*weight, rounded: Some(parameter), scope, grad, grad_scale, state };
                    if self.rule.is_fused() {
                        begin_fused("master_weights", parameter)?;
                        self.rule.prepare(vec![update], &mut pending)?;
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
        self.rule.prepare(wide, &mut pending)?;
        pending.run()
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

/// Before a parameter's first step, makes its copy.
fn begin<S>(update: &mut Update<'_, Master<S>>) -> Result<()> {
    if update.state.is_none() {
        let is_narrow = matches!(update.parameter.dtype(), DType::Bf16 | DType::F16);
        let make = || is_narrow.then(|| update.parameter.converted(DType::F32)).transpose();
        *update.state = Some(Master { weight: remember(update.scope, make)?, state: None });
    }
    Ok(())
}
