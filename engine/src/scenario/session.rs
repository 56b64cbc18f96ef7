//! A scenario set up on a device, which the caller steps.

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

/// What the accounting device has unless told otherwise: more than any GPU, so that nothing ends before its time.
const META_CAPACITY: u64 = 200 << 30;
/// More than any machine has; sums of such sizes are far from overflowing.
const MAX_CAPACITY: u64 = 1 << 56;

/// A model, its data and its optimizer on a device.
pub struct Session {
    device: Device,
    training: Training,
    next: u32,
}

impl Session {
    /// Sets up the scenario `name` as `options` ask for; their steps are not looked at. What is recorded meanwhile is
    /// in phase setup.
    ///
    /// # Errors
    /// Unknown names and options, with a list of those there are; a device that is not there; not enough memory.
    pub fn start(name: &str, options: &Options) -> Result<Self, ScenarioError> {
        let scenario = catalog::find(name, options)?;
        let device = open_device(options)?;
        // Setup belongs to no step, also where another run went before in the same program.
        scope::leave_steps();
        Ok(Self::on(scenario, device, options)?)
    }

    /// Sets up on an open device.
    pub(crate) fn on(scenario: &Scenario, device: Device, options: &Options) -> crate::Result<Self> {
        let _phase = scope::phase(Phase::Setup);
        let task = (scenario.build)(&device, options)?;
        let training = Training::new(task, scenario.optimizer, options)?;
        Ok(Self { device, training, next: 0 })
    }

    /// Where it runs.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Runs the next step, and gives its loss where the device has values. Waits until the loss is computed, not for
    /// what follows it.
    ///
    /// # Errors
    /// Not enough memory; what the device reports.
    pub fn step(&mut self) -> crate::Result<Option<f64>> {
        self.run(LossIs::Read)
    }

    /// Runs the next step without a look at its loss: on a CUDA device, this returns before the step is done.
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

    /// Runs forward and backward alone, and takes the gradients of all parameters that have one then, by their paths:
    /// none have where the optimizer runs in backward.
    ///
    /// # Errors
    /// As for [`Self::step`].
    pub fn gradients(&mut self) -> crate::Result<Vec<(String, Tensor)>> {
        self.training.gradients()
    }
}

/// The device that `options` ask for.
pub(crate) fn open_device(options: &Options) -> Result<Device, ScenarioError> {
    if let Some(capacity) = options.capacity.filter(|&capacity| capacity > MAX_CAPACITY) {
        let need = "give at most 72057594037927936 bytes, which are 64 PiB";
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

/// Why a CUDA device cannot be used, in a line.
fn why_not_open(error: &crate::Error) -> String {
    let crate::Error::Alloc(AllocError::OutOfMemory(oom)) = error else { return error.to_string() };
    let [wanted, room] = [oom.requested, oom.device_free].map(format_bytes);
    format!("matrix products keep {wanted} there, of which {room} can be had: give more --capacity, or free the device")
}
