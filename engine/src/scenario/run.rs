//! Runs a scenario from the first allocation to the finished recording.

use std::path::Path;

use highwater_recorder::{HistoryOptions, WhenBehind, record_memory_history, scope};

use super::catalog;
use super::definition::Scenario;
use super::error::ScenarioError;
use super::options::Options;
use super::report::{OutOfMemory, Report};
use super::session::{Session, open_device};
use crate::device::Device;
use highwater_allocator::AllocError;

/// Runs scenario `name` and records it to `out`. The recording is complete also when the run ended for want of memory:
/// then the report says so.
///
/// # Errors
/// Unknown names and options, with a list of those there are; a device that is not there; a recording that cannot be
/// written or runs already.
pub fn record(name: &str, options: &Options, out: &Path) -> Result<Report, ScenarioError> {
    let scenario = catalog::find(name, options)?;
    let device = open_device(options)?;
    // Setup belongs to no step, also where another run went before in the same program.
    scope::leave_steps();
    // Whoever runs a scenario says which file is whose.
    let history = HistoryOptions {
        when_behind: WhenBehind::Wait,
        uses: options.uses,
        per_rank: false,
        ..HistoryOptions::to_file(out)
    };
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
    session: Option<Session>,
}

fn train(scenario: &Scenario, device: &Device, options: &Options) -> Run {
    let mut run = Run { losses: Vec::new(), steps_done: 0, outcome: Ok(()), session: None };
    run.outcome = Session::on(scenario, device.clone(), options).and_then(|session| {
        let session = run.session.insert(session);
        for step in 0..options.steps {
            run.losses.extend(session.step()?);
            run.steps_done = step + 1;
        }
        // What went wrong after the last loss was looked at.
        device.synchronize()
    });
    run
}
