//! Training: the loop that every scenario runs, with its phases.

use highwater_recorder::{Phase, scope};

use super::options::{OptimizerKind, Options};
use super::task::Task;
use crate::error::Result;
use crate::optim::{Adam, AdamW, Form, Optimizer, Rule, Sgd, Stepping, run_in_backward};

/// A task being trained.
pub(crate) struct Training {
    task: Box<dyn Task>,
    // None where it runs within backward.
    optimizer: Option<Box<dyn Optimizer>>,
}

impl Training {
    /// Sets up the optimizer that `options` ask for, or else `kind`. It allocates nothing before its first step.
    pub(crate) fn new(task: Box<dyn Task>, kind: OptimizerKind, options: &Options) -> Result<Self> {
        let form = if options.foreach == Some(false) { Form::PerTensor } else { Form::Foreach };
        let optimizer = match options.optimizer.unwrap_or(kind) {
            OptimizerKind::Sgd => set_up(Sgd { momentum: 0.9, form, ..Sgd::default() }, &*task, options),
            OptimizerKind::Adam => set_up(Adam { form, ..Adam::default() }, &*task, options),
            OptimizerKind::AdamW => set_up(AdamW { form, ..AdamW::default() }, &*task, options),
        }?;
        Ok(Self { task, optimizer })
    }

    /// One step; gives the loss, where the device has values.
    pub(crate) fn step(&mut self, number: u32) -> Result<Option<f64>> {
        scope::step(number);
        let loss = {
            let _phase = scope::phase(Phase::Forward);
            self.task.loss()?
        };
        let value = {
            let _phase = scope::phase(Phase::Backward);
            loss.backward()?;
            let value = if loss.device().has_values() { Some(loss.item()?) } else { None };
            drop(loss);
            value
        };
        if let Some(optimizer) = &mut self.optimizer {
            {
                let _phase = scope::phase(Phase::Optimizer);
                optimizer.step()?;
            }
            let _phase = scope::phase(Phase::ZeroGrad);
            optimizer.zero_grad();
        }
        Ok(value)
    }
}

fn set_up<R: Rule>(rule: R, task: &dyn Task, options: &Options) -> Result<Option<Box<dyn Optimizer>>> {
    if options.optimizer_in_backward {
        run_in_backward(&rule, &task.parameters())?;
        return Ok(None);
    }
    Ok(Some(Box::new(Stepping::new(rule, task.parameters())?)))
}
