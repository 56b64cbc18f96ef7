//! Optimizer: a rule applied to the parameters of a model, step after step.

use std::fmt;

use super::rule::{Rule, Update};
use crate::autograd::no_grad;
use crate::error::Result;
use crate::nn::Parameter;

/// What a training loop does with its optimizer.
pub trait Optimizer {
    /// Changes every parameter that has a gradient. State is allocated at a parameter's first step, as optimizer state.
    fn step(&mut self) -> Result<()>;

    /// Drops all gradients, so that their memory is free until the next backward.
    fn zero_grad(&mut self);

    /// What it changes.
    fn parameters(&self) -> &[Parameter];
}

/// An [`Optimizer`] that steps by a [`Rule`].
pub struct Stepping<R: Rule> {
    rule: R,
    parameters: Vec<Parameter>,
    states: Vec<Option<R::State>>,
}

impl<R: Rule> Stepping<R> {
    /// Applies `rule` to those of `parameters` that require a gradient. Fails if a setting of the rule makes no sense.
    pub fn new(rule: R, parameters: Vec<Parameter>) -> Result<Self> {
        rule.check()?;
        let parameters: Vec<Parameter> =
            parameters.into_iter().filter(|parameter| parameter.tensor.requires_grad()).collect();
        let states = parameters.iter().map(|_| None).collect();
        Ok(Self { rule, parameters, states })
    }

    /// The rule with its settings.
    pub fn rule(&self) -> &R {
        &self.rule
    }

    /// The rule, to change settings between steps: a learning rate, for example.
    pub fn rule_mut(&mut self) -> &mut R {
        &mut self.rule
    }
}

impl<R: Rule> Optimizer for Stepping<R> {
    fn step(&mut self) -> Result<()> {
        let _mode = no_grad();
        let with_grad = self.parameters.iter().zip(&mut self.states).filter_map(|(parameter, state)| {
            let grad = parameter.tensor.grad()?;
            Some(Update { parameter: &parameter.tensor, scope: parameter.scope, grad, state })
        });
        let mut updates: Vec<_> = with_grad.collect();
        self.rule.update(&mut updates)
    }

    fn zero_grad(&mut self) {
        for parameter in &self.parameters {
            drop(parameter.tensor.take_grad());
        }
    }

    fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }
}

impl<R: Rule + fmt::Debug> fmt::Debug for Stepping<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} over {} parameters", self.rule, self.parameters.len())
    }
}
