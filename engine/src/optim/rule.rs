//! Update rules: how parameters change by their gradients, and the state that is kept.

use highwater_recorder::{Category, ScopeId, scope};

use super::pending::{Pending, run_each};
use crate::autograd::Operation;
use crate::backend::{self, Binary, Call, Unary, arithmetic};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// How a rule goes through many parameters. The elements that come out are the same, up to rounding.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// Each operation is done for all parameters before the next operation, as PyTorch's `foreach=True`, its default on
    /// GPUs, does: fewest kernel launches. The intermediate results of all parameters are alive at once: one for each.
    #[default]
    Foreach,
    /// All operations are done for one parameter before the next parameter: at most one intermediate result is alive,
    /// of the size of the parameter at hand.
    PerTensor,
    /// One pass over each parameter does all operations, as PyTorch's `fused=True` does: there are no intermediate
    /// results. Parameters must be contiguous.
    Fused,
}

/// One parameter in a step, with its gradient and with what the rule remembers for it.
#[derive(Debug)]
pub struct Update<'a, S> {
    /// The parameter, to be changed in place.
    pub parameter: &'a Tensor,
    /// Takes over the new parameter, rounded to its own type, the gradient's. Only where the rule [is
    /// fused](Rule::is_fused).
    pub rounded: Option<&'a Tensor>,
    /// Where in the model it belongs, as recordings name it.
    pub scope: ScopeId,
    /// Its gradient, of the same type unless the rule is fused. Where nobody else holds it, the rule may overwrite it.
    pub grad: Tensor,
    /// What the gradient is to be multiplied with first. Other than 1 only where the rule is fused.
    pub grad_scale: f64,
    /// What is remembered between steps; nothing before the first.
    pub state: &'a mut Option<S>,
}

/// How parameters change by their gradients.
pub trait Rule: Clone + Send + 'static {
    /// What is remembered for each parameter between steps.
    type State: Send + 'static;

    /// Fails if a setting makes no sense.
    fn check(&self) -> Result<()>;

    /// How far a step goes.
    fn learning_rate(&self) -> f64;

    /// Changes how far a step goes.
    fn set_learning_rate(&mut self, rate: f64);

    /// Whether it scales gradients itself, takes them in a narrower type than the parameter's, and writes the rounded
    /// parameter along with the parameter.
    fn is_fused(&self) -> bool;

    /// Does one step for each of `updates`. Gradients are switched off meanwhile. Where arithmetic [is left
    /// out](arithmetic::is_left_out), a step is not counted, but takes all the memory of one; what is remembered is
    /// then made all the same, since that happens once.
    fn update(&self, updates: Vec<Update<'_, Self::State>>) -> Result<()>;

    /// [`Self::update`] with all its memory and all its operations, but a fused rule may leave the arithmetic to
    /// `pending`, so that it can be done together with that of other calls.
    fn prepare<'a>(&self, updates: Vec<Update<'a, Self::State>>, pending: &mut Pending<'a>) -> Result<()> {
        let _ = pending;
        self.update(updates)
    }
}

/// Fails, naming optimizer `op`, unless `holds`.
pub(crate) fn demand(op: &'static str, holds: bool, what: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::Setting { op, what: what() }) }
}

/// Fails, naming optimizer `op` and the setting, unless every value is 0 or more.
pub(crate) fn demand_not_negative(op: &'static str, settings: &[(&str, f64)]) -> Result<()> {
    let check =
        |&(name, value): &(&str, f64)| demand(op, value >= 0.0, || format!("{name} is {value}; give 0 or more"));
    settings.iter().try_for_each(check)
}

/// Allocates what a rule remembers for a parameter: within its scope, as optimizer state. It gets its numbers also
/// where arithmetic is left out, since it is made once.
pub(crate) fn remember<T>(scope: ScopeId, allocate: impl FnOnce() -> Result<T>) -> Result<T> {
    let _scope = scope::scope_again(scope);
    let _category = scope::category(Category::OptimizerState);
    let _arithmetic = arithmetic::bring_in();
    allocate()
}

/// Counts a step in `steps`, unless arithmetic is left out.
pub(crate) fn count(steps: &mut u32) {
    if !arithmetic::is_left_out() {
        *steps = steps.saturating_add(1);
    }
}

/// An update whose gradient is elsewhere.
pub(crate) struct Target<'a, S> {
    pub(crate) parameter: &'a Tensor,
    pub(crate) scope: ScopeId,
    pub(crate) state: &'a mut Option<S>,
}

/// The gradients, to each of which `decay` times its parameter has been added, beside their targets. The addition takes
/// new memory for each gradient that somebody else holds, unless `decay` is 0.
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
        let _scope = scope::scope_again(target.scope);
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

/// Multiplies gradients in place, for a rule that does not do it itself. Fails for f16, where small numbers would
/// become 0: that is what the scale was for.
pub(crate) fn scale_in_place<'a>(grads: impl IntoIterator<Item = (&'a Tensor, f64)>) -> Result<()> {
    let op = "unscale";
    let scaled = grads.into_iter().filter(|&(_, scale)| scale != 1.0);
    run_each(scaled.map(|(grad, scale)| {
        if grad.dtype() == DType::F16 {
            let need = "f16 would lose small numbers when unscaled in place; use Form::Fused or MasterWeights, which \
                        unscale as they go, and clip them before by `scaler.scale()` times the norm";
            return Err(Error::DType { op, found: DType::F16, need });
        }
        let _operation = Operation::begin(op, &[]);
        grad.map_call(op, Unary::Affine { scale, shift: 0.0 })
    }))
}

/// Fails unless a fused step can go through `parameter`; counts the change.
pub(crate) fn begin_fused(op: &'static str, parameter: &Tensor) -> Result<()> {
    if !parameter.is_contiguous() {
        let need = "a fused step goes through memory in order; make the parameter contiguous, or use another form";
        return Err(Error::shape(op, parameter.shape(), need));
    }
    parameter.begin_change(op)
}
