//! Update rules, which define how gradients change parameters, and the state kept between steps.

use highwater_recorder::{Category, ScopeId, scope};

use super::pending::{Pending, run_each};
use crate::autograd::Operation;
use crate::backend::{self, Binary, Call, Unary, arithmetic};
use crate::{DType, Error, Result, Tensor};

/// The form of a rule's loop over many parameters. The results are the same, up to rounding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// Each operation runs for all parameters before the next operation, like PyTorch's `foreach=True`, the default on
    /// GPUs. This needs the fewest kernel launches. One intermediate result per parameter is live at the same time.
    #[default]
    Foreach,
    /// All operations run for one parameter, then for the next. At most one intermediate result, of the size of the
    /// current parameter, is live.
    PerTensor,
    /// One pass over each parameter performs all operations, like PyTorch's `fused=True`. There are no intermediate
    /// results. Parameters must be contiguous.
    Fused,
}

/// A parameter in a step: its gradient, and the rule's state for it.
#[derive(Debug)]
pub struct Update<'a, S> {
    /// The parameter, which is updated in place.
    pub parameter: &'a Tensor,
    /// Receives the updated parameter, rounded to this tensor's dtype, which is the gradient's. Present only if the
    /// rule [is fused](Rule::is_fused).
    pub rounded: Option<&'a Tensor>,
    /// Scope of the parameter's module, as in recordings.
    pub scope: ScopeId,
    /// The gradient, with the parameter's dtype unless the rule is fused. The rule may overwrite it if it is not
    /// shared.
    pub grad: Tensor,
    /// Factor by which the gradient is multiplied before the update. It is 1 unless the rule is fused.
    pub grad_scale: f64,
    /// State kept between steps; `None` before the first step.
    pub state: &'a mut Option<S>,
}

/// An update rule, which defines how gradients change parameters.
pub trait Rule: Clone + Send + 'static {
    /// State kept for each parameter between steps.
    type State: Send + 'static;

    /// Checks the settings.
    ///
    /// # Errors
    /// Fails if a setting is invalid.
    fn check(&self) -> Result<()>;

    /// Returns the learning rate.
    fn learning_rate(&self) -> f64;

    /// Sets the learning rate.
    fn set_learning_rate(&mut self, rate: f64);

    /// Returns whether the rule itself scales gradients, supports gradients of a narrower dtype than the parameter's,
    /// and writes the rounded parameter together with the parameter.
    fn is_fused(&self) -> bool;

    /// Runs one step for each of `updates`. The caller disables gradients meanwhile. If arithmetic [is left
    /// out](arithmetic::is_left_out), the step is not counted, but uses the same memory. The state is initialized even
    /// then, since that happens only once.
    ///
    /// # Errors
    /// Fails if shapes, dtypes or the memory layout of parameters are not supported, or if memory cannot be allocated.
    fn update(&self, updates: Vec<Update<'_, Self::State>>) -> Result<()> {
        let mut pending = Pending::default();
        self.prepare(updates, &mut pending)?;
        pending.run()
    }

    /// Like [`Self::update`], with the same allocations and recorded operations, but a fused rule may add its
    /// arithmetic to `pending` instead of running it, so that it is submitted together with that of other calls.
    ///
    /// # Errors
    /// See [`Self::update`].
    fn prepare<'a>(&self, updates: Vec<Update<'a, Self::State>>, pending: &mut Pending<'a>) -> Result<()>;
}

pub(crate) fn demand(op: &'static str, holds: bool, what: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::Setting { op, what: what() }) }
}

pub(crate) fn demand_not_negative(op: &'static str, settings: &[(&str, f64)]) -> Result<()> {
    let check = |&(name, value): &(&str, f64)| {
        demand(op, value >= 0.0, || format!("invalid {name} {value}: expected 0 or more"))
    };
    settings.iter().try_for_each(check)
}

/// Allocates a rule's state for a parameter, within the parameter's scope and as optimizer state. The state is
/// initialized even if arithmetic is left out, because it is created only once.
pub(crate) fn remember<T>(scope: ScopeId, allocate: impl FnOnce() -> Result<T>) -> Result<T> {
    let _scope = scope::enter_scope_id(scope);
    let _category = scope::category(Category::OptimizerState);
    let _arithmetic = arithmetic::bring_in();
    allocate()
}

/// Increments `steps`, unless arithmetic is left out.
pub(crate) fn count(steps: &mut u32) {
    if !arithmetic::is_left_out() {
        *steps = steps.saturating_add(1);
    }
}

pub(crate) struct Target<'a, S> {
    pub(crate) parameter: &'a Tensor,
    pub(crate) scope: ScopeId,
    pub(crate) state: &'a mut Option<S>,
}

/// Adds `decay` times the parameter to each gradient, and returns the gradients and their targets. Unless `decay` is 0,
/// the addition allocates memory for each gradient that is shared.
pub(crate) fn decayed_grads<'a, S>(
    op: &'static str,
    updates: Vec<Update<'a, S>>,
    decay: f64,
) -> Result<(Vec<Tensor>, Vec<Target<'a, S>>)> {
    let (mut grads, mut targets) = (Vec::with_capacity(updates.len()), Vec::with_capacity(updates.len()));
    for Update { parameter, scope, grad, state, .. } in updates {
        grads.push(grad);
        targets.push(Target { parameter, scope, state });
    }
    if decay == 0.0 {
        return Ok((grads, targets));
    }
    let _operation = Operation::begin(op, &[]);
    let mut sums = Vec::with_capacity(grads.len());
    for (grad, target) in grads.iter().zip(&targets) {
        let _scope = scope::enter_scope_id(target.scope);
        grad.check_alike(op, target.parameter)?;
        sums.push(if grad.is_free_to_write() { None } else { Some(grad.same_shape()?) });
    }
    let mut calls = Vec::with_capacity(grads.len());
    for ((grad, sum), target) in grads.iter().zip(&sums).zip(&targets) {
        let (out, left) = sum.as_ref().map_or((grad, None), |sum| (sum, Some(grad.view())));
        calls.push(Call::Binary(out.view(), Binary::AddScaled(decay), left, target.parameter.view()));
    }
    backend::run_all(&calls)?;
    drop(calls);
    let grads = grads.into_iter().zip(sums).map(|(grad, sum)| sum.unwrap_or(grad)).collect();
    Ok((grads, targets))
}

/// Multiplies gradients in place, for a rule that does not scale them itself. Fails for f16, in which small values
/// would underflow to 0, which loss scaling is meant to prevent.
pub(crate) fn scale_in_place<'a>(grads: impl IntoIterator<Item = (&'a Tensor, f64)>) -> Result<()> {
    let op = "unscale";
    let scaled = grads.into_iter().filter(|&(_, scale)| scale != 1.0);
    run_each(scaled.map(|(grad, scale)| {
        if grad.dtype() == DType::F16 {
            let need = "f16 gradients would underflow when unscaled in place; use Form::Fused or MasterWeights, which \
                        unscale during the step, and clip before the step to `scaler.scale()` times the norm";
            return Err(Error::DType { op, found: DType::F16, need });
        }
        let _operation = Operation::begin(op, &[]);
        grad.map_call(op, Unary::Affine { scale, shift: 0.0 })
    }))
}

/// Checks that a fused step supports `parameter`, and counts the change.
pub(crate) fn begin_fused(op: &'static str, parameter: &Tensor) -> Result<()> {
    if !parameter.is_contiguous() {
        let need = "a fused step needs contiguous memory; make the parameter contiguous, or use another form";
        return Err(Error::shape(op, parameter.shape(), need));
    }
    parameter.begin_change(op)
}
