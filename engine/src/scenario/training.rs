//! Training: the loop that every scenario runs, with its phases.

use half::{bf16, f16};
use highwater_recorder::{Phase, scope};

use super::options::{OptimizerKind, Options};
use super::task::Task;
use crate::dtype::DType;
use crate::error::Result;
use crate::optim::{Adam, AdamW, Form, Optimizer, Rule, Sgd, Stepping, run_in_backward};
use crate::tensor::Tensor;

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
            let value = number_in(&loss)?;
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

/// The one number in `tensor`, read without allocating anything on the device: a run with values and one without must
/// make the same events.
fn number_in(tensor: &Tensor) -> Result<Option<f64>> {
    if !tensor.device().has_values() {
        return Ok(None);
    }
    let number = match tensor.dtype() {
        DType::F64 => tensor.to_vec::<f64>()?.first().copied(),
        DType::F32 => tensor.to_vec::<f32>()?.first().copied().map(f64::from),
        DType::Bf16 => tensor.to_vec::<bf16>()?.first().copied().map(f64::from),
        DType::F16 => tensor.to_vec::<f16>()?.first().copied().map(f64::from),
        DType::I64 => tensor.to_vec::<i64>()?.first().map(|&whole| whole as f64),
    };
    Ok(number)
}
