//! Collects the arithmetic for many parameters, so that it is submitted to a device at once.

use crate::backend::{self, AdamStep, Call, SgdStep};
use crate::{Result, Tensor};

/// Fused steps that are prepared but not yet computed.
#[derive(Debug, Default)]
pub struct Pending<'a> {
    steps: Vec<Step<'a>>,
}

#[derive(Debug)]
pub(crate) struct Step<'a> {
    pub(crate) parameter: &'a Tensor,
    /// Receives the updated parameter, in the gradient's dtype.
    pub(crate) rounded: Option<&'a Tensor>,
    pub(crate) grad: Tensor,
    pub(crate) going: Going<'a>,
}

/// The update rule of a fused step, with its state and settings.
#[derive(Debug)]
pub(crate) enum Going<'a> {
    /// SGD, with the momentum buffer if there is momentum.
    Sgd(Option<&'a Tensor>, SgdStep),
    /// Adam, with the averages of the gradient and of its square.
    Adam([&'a Tensor; 2], AdamStep),
    /// 8-bit Adam, with the codes of both averages, then their scales.
    Adam8bit([&'a Tensor; 4], AdamStep),
}

impl<'a> Pending<'a> {
    pub(crate) fn add(&mut self, step: Step<'a>) {
        self.steps.push(step);
    }

    /// Computes all steps.
    ///
    /// # Errors
    /// Fails if the backend fails.
    pub fn run(self) -> Result<()> {
        let calls: Vec<Call<'_>> = self.steps.iter().map(Step::call).collect();
        backend::run_all(&calls)
    }
}

impl Step<'_> {
    fn call(&self) -> Call<'_> {
        let (parameter, rounded, grad) = (self.parameter.view(), self.rounded.map(Tensor::view), self.grad.view());
        match self.going {
            Going::Sgd(direction, step) => Call::Sgd(parameter, rounded, grad, direction.map(Tensor::view), step),
            Going::Adam(moments, step) => Call::Adam(parameter, rounded, grad, moments.map(Tensor::view), step),
            Going::Adam8bit(state, step) => Call::Adam8bit(parameter, rounded, grad, state.map(Tensor::view), step),
        }
    }
}

/// Runs all of these calls. Fails before running any of them if one is an error.
pub(crate) fn run_each<'a>(calls: impl IntoIterator<Item = Result<Call<'a>>>) -> Result<()> {
    backend::run_all(&calls.into_iter().collect::<Result<Vec<_>>>()?)
}
