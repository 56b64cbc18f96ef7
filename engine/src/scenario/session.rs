//! A scenario set up on a device, whose steps are run by the caller. Contains the training loop of all scenarios, with
//! its phases.

use highwater_recorder::snapshots::units::format_bytes;
use highwater_recorder::{Phase, scope};

use super::catalog;
use super::definition::Scenario;
use super::error::ScenarioError;
use super::options::{DeviceChoice, OptimizerKind, Options};
use super::task::{MicroBatch, Reduction, Task, check_parts};
use crate::autograd::{autocast, no_recompute};
use crate::nn::Parameter;
use crate::optim::{Accumulation, Adam, AdamW, AdamW8bit, Optimizer, Rule, RuleOptimizer, Sgd, run_in_backward};
use crate::{DType, Device, Result, Tensor};
use highwater_allocator::{AllocConfig, AllocError};

/// Default capacity of the accounting device in bytes, larger than that of any GPU, so that runs do not end early.
const META_CAPACITY: u64 = 200 << 30;
/// Maximum capacity in bytes, larger than that of any machine. Sums of capacities cannot overflow.
const MAX_CAPACITY: u64 = 1 << 56;

/// A model with its data and optimizer on a device.
pub struct Session {
    device: Device,
    task: Box<dyn Task>,
    stepping: StepsWhen,
    /// Number of micro-batches per step.
    parts: usize,
    recomputes: bool,
    products: Option<DType>,
    next: u32,
}

/// Whether a step's loss is read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LossIs {
    Read,
    LeftAlone,
}

/// When parameters are updated.
enum StepsWhen {
    AfterBackward(Box<dyn Optimizer>),
    /// Gradients no longer exist after backward.
    InBackward,
    /// Parameters are not updated; their gradients are computed and dropped.
    Never(Vec<Parameter>),
}

impl Session {
    /// Sets up the scenario `name` with `options`, whose number of steps is ignored. In recordings, this is phase
    /// setup.
    ///
    /// # Errors
    /// Fails if a name or option is unknown (the error lists the supported ones), if the device is not available, or if
    /// memory cannot be allocated.
    pub fn start(name: &str, options: &Options) -> Result<Self, ScenarioError> {
        let (scenario, device) = found(name, options)?;
        Ok(Self::on(scenario, device, options)?)
    }

    /// Sets up a scenario on an open device, with the optimizer in `options`, or by default the scenario's. The
    /// optimizer allocates nothing before its first step.
    pub(crate) fn on(scenario: &Scenario, device: Device, options: &Options) -> Result<Self> {
        let _phase = scope::phase(Phase::Setup);
        let task = (scenario.build)(&device, options)?;
        let form = options.form.unwrap_or_default();
        macro_rules! set_up {
            ($rule:ident { $($own:ident $(: $value:expr)?),* }) => {{
                let known = $rule { $($own $(: $value)?,)* ..$rule::default() };
                let learning_rate = options.learning_rate.unwrap_or(known.learning_rate);
                let weight_decay = options.weight_decay.unwrap_or(known.weight_decay);
                set_up($rule { learning_rate, weight_decay, ..known }, &*task, options)?
            }};
        }
        let stepping = match options.optimizer.or(scenario.optimizer) {
            None => StepsWhen::Never(task.parameters()),
            Some(OptimizerKind::Sgd) => set_up!(Sgd { momentum: options.momentum.unwrap_or(0.9), form }),
            Some(OptimizerKind::Adam) => set_up!(Adam { form }),
            Some(OptimizerKind::AdamW) => set_up!(AdamW { form }),
            Some(OptimizerKind::AdamW8bit) => set_up!(AdamW8bit {}),
        };
        let parts = options.accumulate.unwrap_or(1);
        if let Some(batch) = task.batch() {
            check_parts(batch.size, parts)?;
        }
        let (recomputes, products) = (!options.no_recompute, options.autocast);
        Ok(Self { device, task, stepping, parts, recomputes, products, next: 0 })
    }

    /// Returns the batch size, if the batch can be split into micro-batches.
    pub fn batch(&self) -> Option<usize> {
        self.task.batch().map(|batch| batch.size)
    }

    /// Returns whether the loss is a mean over the batch, rather than a sum.
    pub fn loss_is_mean(&self) -> bool {
        self.task.batch().is_some_and(|batch| batch.loss == Reduction::Mean)
    }

    /// Returns the device on which the steps run.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Runs the next step, and returns its loss if the device has values. Waits until the loss is computed, but not for
    /// the rest of the step.
    ///
    /// # Errors
    /// Fails if memory cannot be allocated, or if the device reports an error.
    pub fn step(&mut self) -> Result<Option<f64>> {
        self.run(LossIs::Read)
    }

    /// Runs the next step without reading its loss. On a CUDA device, this returns before the step is complete.
    ///
    /// # Errors
    /// See [`Self::step`].
    pub fn step_unseen(&mut self) -> Result<()> {
        self.run(LossIs::LeftAlone).map(drop)
    }

    fn run(&mut self, loss_is: LossIs) -> Result<Option<f64>> {
        let number = self.next;
        self.next += 1;
        scope::step(number);
        let value = self.forward_and_backward(loss_is)?;
        match &mut self.stepping {
            StepsWhen::AfterBackward(optimizer) => {
                {
                    let _phase = scope::phase(Phase::Optimizer);
                    optimizer.step()?;
                }
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

    /// Runs only forward and backward, and takes the gradients of all parameters that have one, with the parameters'
    /// paths. The result is empty if the optimizer runs in backward.
    ///
    /// # Errors
    /// See [`Self::step`].
    pub fn gradients(&mut self) -> Result<Vec<(String, Tensor)>> {
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

/// Finds a scenario, and opens the device requested by `options`. Ends the steps of any earlier run in the same
/// process.
pub(crate) fn found(name: &str, options: &Options) -> Result<(&'static Scenario, Device), ScenarioError> {
    let scenario = catalog::find(name, options)?;
    let device = open_device(options)?;
    scope::leave_steps();
    Ok((scenario, device))
}

fn open_device(options: &Options) -> Result<Device, ScenarioError> {
    if let Some(capacity) = options.capacity.filter(|&capacity| capacity > MAX_CAPACITY) {
        let need = "expected at most 64 PiB (72057594037927936 bytes)";
        return Err(ScenarioError::OptionValue { option: "--capacity", value: capacity.to_string(), need });
    }
    let config: AllocConfig = options.alloc_conf.as_deref().unwrap_or_default().parse()?;
    let of_meta = options.capacity.unwrap_or(META_CAPACITY);
    match options.device {
        DeviceChoice::Meta => Ok(Device::accounting_with(of_meta, config)),
        DeviceChoice::MetaForCuda => Ok(Device::accounting_for_cuda(of_meta, config)?),
        DeviceChoice::Cpu => Ok(Device::cpu_with_capacity(options.capacity.unwrap_or(MAX_CAPACITY), config)),
        DeviceChoice::Cuda(ordinal) => Device::cuda_with(ordinal, options.capacity, config)
            .map_err(|error| ScenarioError::Cuda { ordinal, reason: why_not_open(&error) }),
    }
}

/// Returns the reason that a CUDA device cannot be used, in one line.
fn why_not_open(error: &crate::Error) -> String {
    let crate::Error::Alloc(AllocError::OutOfMemory(oom)) = error else { return error.to_string() };
    let [wanted, room] = [oom.requested, oom.device_free].map(format_bytes);
    format!(
        "the workspace of matrix products needs {wanted}, but only {room} of device memory is free: raise \
             --capacity, or free device memory"
    )
}
