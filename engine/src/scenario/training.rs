//! The training loop shared by all scenarios, with its phases.

use highwater_recorder::{Phase, scope};

use super::options::{OptimizerKind, Options};
use super::task::{MicroBatch, Reduction, Task, check_parts};
use crate::autograd::{autocast, no_recompute};
use crate::dtype::DType;
use crate::error::Result;
use crate::nn::Parameter;
use crate::optim::{Accumulation, Adam, AdamW, AdamW8bit, Optimizer, Rule, RuleOptimizer, Sgd, run_in_backward};
use crate::tensor::Tensor;

/// A task that is being trained, with its optimizer and the form of its steps.
pub(crate) struct Training {
    task: Box<dyn Task>,
    stepping: StepsWhen,
    /// Number of micro-batches per step.
    parts: usize,
    recomputes: bool,
    products: Option<DType>,
}

/// Whether a step's loss is read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum LossIs {
    /// The host waits for the loss and reads it.
    Read,
    /// The loss is not read, and the host does not wait.
    LeftAlone,
}

/// The time at which parameters are updated.
enum StepsWhen {
    AfterBackward(Box<dyn Optimizer>),
    /// Gradients no longer exist after backward.
    InBackward,
    /// Parameters are not updated; their gradients are computed and dropped.
    Never(Vec<Parameter>),
}

impl Training {
    /// Sets up the optimizer given by `options`, or `kind` by default. It allocates nothing before its first step.
    pub(crate) fn new(task: Box<dyn Task>, kind: Option<OptimizerKind>, options: &Options) -> Result<Self> {
        let form = options.form.unwrap_or_default();
        let stepping = match options.optimizer.or(kind) {
            None => StepsWhen::Never(task.parameters()),
            Some(OptimizerKind::Sgd) => {
                let known = Sgd { momentum: 0.9, form, ..Sgd::default() };
                let rule = Sgd {
                    learning_rate: options.learning_rate.unwrap_or(known.learning_rate),
                    weight_decay: options.weight_decay.unwrap_or(known.weight_decay),
                    momentum: options.momentum.unwrap_or(known.momentum),
                    ..known
                };
                set_up(rule, &*task, options)?
            }
            Some(OptimizerKind::Adam) => {
                let known = Adam { form, ..Adam::default() };
                let learning_rate = options.learning_rate.unwrap_or(known.learning_rate);
                let weight_decay = options.weight_decay.unwrap_or(known.weight_decay);
                set_up(Adam { learning_rate, weight_decay, ..known }, &*task, options)?
            }
            Some(OptimizerKind::AdamW8bit) => {
                let known = AdamW8bit::default();
                let learning_rate = options.learning_rate.unwrap_or(known.learning_rate);
                let weight_decay = options.weight_decay.unwrap_or(known.weight_decay);
                set_up(AdamW8bit { learning_rate, weight_decay, ..known }, &*task, options)?
            }
            Some(OptimizerKind::AdamW) => {
                let known = AdamW { form, ..AdamW::default() };
                let learning_rate = options.learning_rate.unwrap_or(known.learning_rate);
                let weight_decay = options.weight_decay.unwrap_or(known.weight_decay);
                set_up(AdamW { learning_rate, weight_decay, ..known }, &*task, options)?
            }
        };
        let parts = options.accumulate.unwrap_or(1);
        if let Some(batch) = task.batch() {
            check_parts(batch.size, parts)?;
        }
        Ok(Self { task, stepping, parts, recomputes: !options.no_recompute, products: options.autocast })
    }

    /// Returns the batch size, if the batch can be split.
    pub(crate) fn batch(&self) -> Option<usize> {
        self.task.batch().map(|batch| batch.size)
    }

    /// Returns whether the loss is a mean over the batch.
    pub(crate) fn loss_is_mean(&self) -> bool {
        self.task.batch().is_some_and(|batch| batch.loss == Reduction::Mean)
    }

    /// Runs one step; returns the loss if it is read and the device has values.
    pub(crate) fn step(&mut self, number: u32, loss_is: LossIs) -> Result<Option<f64>> {
        scope::step(number);
        let value = self.forward_and_backward(loss_is)?;
        if let StepsWhen::AfterBackward(optimizer) = &mut self.stepping {
            let _phase = scope::phase(Phase::Optimizer);
            optimizer.step()?;
        }
        match &mut self.stepping {
            StepsWhen::AfterBackward(optimizer) => {
                let _phase = scope::phase(Phase::ZeroGrad);
                optimizer.zero_grad();
            }
            // Backward has freed every gradient: no phase of this step frees them.
            StepsWhen::InBackward => {}
            StepsWhen::Never(parameters) => {
                let _phase = scope::phase(Phase::ZeroGrad);
                for parameter in parameters {
                    drop(parameter.tensor.take_grad());
                }
            }
        }
        Ok(value)
    }
}

impl Training {
    fn forward_and_backward(&self, loss_is: LossIs) -> Result<Option<f64>> {
        let _way = (!self.recomputes).then(no_recompute);
        let mut accumulation = Accumulation::new(u32::try_from(self.parts).unwrap_or(u32::MAX))?;
        let is_mean = self.loss_is_mean();
        let mut total = None;
        for part in MicroBatch::all(self.parts) {
            let loss = {
                let _phase = scope::phase(Phase::Forward);
                let _products = self.products.map(autocast);
                self.task.loss(part)?
            };
            let _phase = scope::phase(Phase::Backward);
            if self.parts > 1 && is_mean {
                accumulation.backward(&loss)?;
            } else {
                self.task.backward(&loss)?;
            }
            if loss_is == LossIs::Read
                && let Some(value) = loss.known_item()?
            {
                *total.get_or_insert(0.0) += value;
            }
            // Dropped within the backward phase.
            drop(loss);
        }
        Ok(total.map(|total| if is_mean { total / self.parts as f64 } else { total }))
    }

    /// Runs forward and backward, and returns the gradients with the paths of their parameters.
    pub(crate) fn gradients(&mut self) -> Result<Vec<(String, Tensor)>> {
        self.forward_and_backward(LossIs::LeftAlone)?;
        let parameters = self.task.parameters().into_iter();
        Ok(parameters.filter_map(|parameter| Some((parameter.path, parameter.tensor.take_grad()?))).collect())
    }
}

fn set_up<R: Rule>(rule: R, task: &dyn Task, options: &Options) -> Result<StepsWhen> {
    if options.optimizer_in_backward {
        run_in_backward(&rule, &task.parameters())?;
        return Ok(StepsWhen::InBackward);
    }
    Ok(StepsWhen::AfterBackward(Box::new(RuleOptimizer::new(rule, task.parameters())?)))
}
