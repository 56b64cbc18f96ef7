//! A scenario set up on a device, to be stepped by the caller.

use highwater_recorder::snapshots::units::format_bytes;
use highwater_recorder::{Phase, scope};

use super::catalog;
use super::definition::Scenario;
use super::error::ScenarioError;
use super::options::{DeviceChoice, Options};
use super::training::{LossIs, Training};
use crate::device::Device;
use crate::tensor::Tensor;
use highwater_allocator::{AllocConfig, AllocError};

/// Default capacity of the accounting device: more than any GPU has, so that runs do not end early.
const META_CAPACITY: u64 = 200 << 30;
/// More than any machine has; sums of such sizes cannot overflow.
const MAX_CAPACITY: u64 = 1 << 56;

/// A model with its data and optimizer on a device.
pub struct Session {
    device: Device,
    training: Training,
    next: u32,
}

impl Session {
    /// Sets up the scenario `name` with `options`, except for their number of steps. Recordings show it as phase setup.
    ///
    /// # Errors
    /// If a name or option is unknown (the error lists the supported ones), if the device is not available, or if
    /// memory cannot be allocated.
    pub fn start(name: &str, options: &Options) -> Result<Self, ScenarioError> {
        let scenario = catalog::find(name, options)?;
        let device = open_device(options)?;
        // Setup belongs to no step, even if another run in the same process came before.
        scope::leave_steps();
        Ok(Self::on(scenario, device, options)?)
    }

    /// Sets up a scenario on an open device.
    pub(crate) fn on(scenario: &Scenario, device: Device, options: &Options) -> crate::Result<Self> {
        let _phase = scope::phase(Phase::Setup);
        let task = (scenario.build)(&device, options)?;
        let training = Training::new(task, scenario.optimizer, options)?;
        Ok(Self { device, training, next: 0 })
    }

    /// Returns the batch size, if the batch can be split into micro-batches.
    pub fn batch(&self) -> Option<usize> {
        self.training.batch()
    }

    /// Returns whether the loss is a mean over the batch, rather than a sum.
    pub fn loss_is_mean(&self) -> bool {
        self.training.loss_is_mean()
    }

    /// Returns the device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Runs the next step, and returns its loss if the device has values. Waits until the loss is computed, but not for
    /// the rest of the step.
    ///
    /// # Errors
    /// If memory cannot be allocated, or if the device reports an error.
    pub fn step(&mut self) -> crate::Result<Option<f64>> {
        self.run(LossIs::Read)
    }

    /// Runs the next step without reading its loss: on a CUDA device, this returns before the step is complete.
    ///
    /// # Errors
    /// As for [`Self::step`].
    pub fn step_unseen(&mut self) -> crate::Result<()> {
        self.run(LossIs::LeftAlone).map(drop)
    }

    fn run(&mut self, loss: LossIs) -> crate::Result<Option<f64>> {
        let number = self.next;
        self.next += 1;
        self.training.step(number, loss)
    }

    /// Runs only forward and backward, and takes the gradients of all parameters that have one, with the parameters'
    /// paths. The result is empty if the optimizer runs in backward.
    ///
    /// # Errors
    /// As for [`Self::step`].
    pub fn gradients(&mut self) -> crate::Result<Vec<(String, Tensor)>> {
        self.training.gradients()
    }
}

/// Opens the device given by `options`.
pub(crate) fn open_device(options: &Options) -> Result<Device, ScenarioError> {
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

/// Returns one line on why a CUDA device cannot be used.
fn why_not_open(error: &crate::Error) -> String {
    let crate::Error::Alloc(AllocError::OutOfMemory(oom)) = error else { return error.to_string() };
    let [wanted, room] = [oom.requested, oom.device_free].map(format_bytes);
    format!("matrix products keep {wanted} there, of which {room} can be had: give more --capacity, or free the device")
}
