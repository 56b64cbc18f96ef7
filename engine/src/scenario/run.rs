//! Run: a scenario from the first allocation to the finished recording.

use std::path::Path;

use highwater_recorder::{HistoryOptions, Phase, WhenBehind, record_memory_history, scope};

use super::catalog;
use super::definition::Scenario;
use super::error::Error;
use super::options::{DeviceChoice, Options};
use super::report::{OutOfMemory, Report};
use super::training::Training;
use crate::alloc::{AllocConfig, AllocError};
use crate::device::Device;

/// What the accounting device has unless told otherwise: more than any GPU, so that nothing ends before its time.
const META_CAPACITY: u64 = 200 << 30;
/// More than any machine has; sums of such sizes are far from overflowing.
const MAX_CAPACITY: u64 = 1 << 56;

/// Runs scenario `name` and records it to `out`. The recording is complete also when the run ended for want of memory:
/// then the report says so.
///
/// # Errors
/// Unknown names and options, with a list of those there are; a device that is not there; a recording that cannot be
/// written or runs already.
pub fn record(name: &str, options: &Options, out: &Path) -> Result<Report, Error> {
    let scenario = catalog::find(name, options)?;
    let device = open_device(options)?;
    // Setup belongs to no step, also where another run went before in the same program.
    scope::leave_steps();
    let history = HistoryOptions { when_behind: WhenBehind::Wait, ..HistoryOptions::to_file(out) };
    let recorded = record_memory_history(history, || Ok(train(scenario, &device, options)))?;
    if let Some(problem) = recorded.problem {
        return Err(problem.into());
    }
    let run = recorded.value;
    let losses = device.has_values().then_some(run.losses);
    let report = Report { losses, steps_done: run.steps_done, device: options.device, oom: None, file: out.to_owned() };
    match run.outcome {
        Ok(()) => Ok(report),
        Err(crate::Error::Alloc(AllocError::OutOfMemory(oom))) => {
            let oom = OutOfMemory { requested: oom.requested, description: oom.to_string() };
            Ok(Report { oom: Some(oom), ..report })
        }
        Err(other) => Err(other.into()),
    }
}

/// How far a run got.
struct Run {
    losses: Vec<f64>,
    steps_done: u32,
    outcome: crate::Result<()>,
    /// Lives until the recording is finished, so that this ends with the model alive.
    training: Option<Training>,
}

fn train(scenario: &Scenario, device: &Device, options: &Options) -> Run {
    let mut run = Run { losses: Vec::new(), steps_done: 0, outcome: Ok(()), training: None };
    run.outcome = build(scenario, device, options).and_then(|training| {
        let training = run.training.insert(training);
        for step in 0..options.steps {
            run.losses.extend(training.step(step)?);
            run.steps_done = step + 1;
        }
        Ok(())
    });
    run
}

fn build(scenario: &Scenario, device: &Device, options: &Options) -> crate::Result<Training> {
    let _phase = scope::phase(Phase::Setup);
    let task = (scenario.build)(device, options)?;
    Training::new(task, scenario.optimizer, options)
}

fn open_device(options: &Options) -> Result<Device, Error> {
    if let Some(capacity) = options.capacity.filter(|&capacity| capacity > MAX_CAPACITY) {
        let need = "give at most 72057594037927936 bytes, which are 64 PiB";
        return Err(Error::OptionValue { option: "--capacity", value: capacity.to_string(), need });
    }
    let config: AllocConfig = options.alloc_conf.as_deref().unwrap_or_default().parse()?;
    match options.device {
        DeviceChoice::Meta => Ok(Device::accounting_with(options.capacity.unwrap_or(META_CAPACITY), config)),
        DeviceChoice::Cpu => Ok(Device::cpu_with_capacity(options.capacity.unwrap_or(MAX_CAPACITY), config)),
        DeviceChoice::Cuda(ordinal) => Device::cuda_with(ordinal, options.capacity, config)
            .map_err(|error| Error::Cuda { ordinal, reason: error.to_string() }),
    }
}
