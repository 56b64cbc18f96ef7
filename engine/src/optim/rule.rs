//! Rule: how parameters change by their gradients, and what is remembered for it.

use highwater_recorder::{Category, ScopeId, scope};

use crate::autograd::Operation;
use crate::backend::Binary;
use crate::error::{Error, Result};
use crate::tensor::Tensor;

/// How a rule goes through many parameters. The numbers that come out are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// Each operation is done for all parameters before the next operation, as PyTorch's `foreach=True`, its default on
    /// GPUs, does: fewest kernel launches. The intermediate results of all parameters are alive at once.
    #[default]
    Foreach,
    /// All operations are done for one parameter before the next parameter: at most one intermediate result is alive,
    /// of the size of the parameter at hand.
    PerTensor,
}

/// One parameter in a step, with its gradient and with what the rule remembers for it.
#[derive(Debug)]
pub struct Update<'a, S> {
    /// The parameter, to be changed in place.
    pub parameter: &'a Tensor,
    /// Where in the model it belongs, as recordings name it.
    pub scope: ScopeId,
    /// Its gradient. Not to be changed.
    pub grad: Tensor,
    /// What is remembered between steps; nothing before the first.
    pub state: &'a mut Option<S>,
}

/// How parameters change by their gradients.
pub trait Rule: Clone + Send + 'static {
    /// What is remembered for each parameter between steps.
    type State: Send + 'static;

    /// Fails if a setting makes no sense.
    fn check(&self) -> Result<()>;

    /// Does one step for each of `updates`. Gradients are switched off meanwhile.
    fn update(&self, updates: &mut [Update<'_, Self::State>]) -> Result<()>;
}

/// Fails, naming optimizer `op`, unless `holds`.
pub(crate) fn demand(op: &'static str, holds: bool, what: impl FnOnce() -> String) -> Result<()> {
    if holds { Ok(()) } else { Err(Error::Setting { op, what: what() }) }
}

/// Allocates what a rule remembers for a parameter: within its scope, as optimizer state.
pub(crate) fn remember<T>(scope: ScopeId, allocate: impl FnOnce() -> Result<T>) -> Result<T> {
    let _scope = scope::scope_again(scope);
    let _category = scope::category(Category::OptimizerState);
    allocate()
}

/// The gradients, to each of which `decay` times its parameter has been added; that takes new memory for each, unless
/// `decay` is 0.
pub(crate) fn decayed_grads<S>(op: &'static str, updates: &[Update<'_, S>], decay: f64) -> Result<Vec<Tensor>> {
    if decay == 0.0 {
        return Ok(updates.iter().map(|update| update.grad.clone()).collect());
    }
    let _operation = Operation::begin(op);
    let decayed = |update: &Update<'_, S>| {
        let _scope = scope::scope_again(update.scope);
        update.grad.zip(Binary::AddScaled(decay), update.parameter, op)
    };
    updates.iter().map(decayed).collect()
}
