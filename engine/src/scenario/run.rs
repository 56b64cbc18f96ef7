//! Runs a scenario, and records it from its first allocation.

use std::path::Path;

use highwater_recorder::snapshots::Trace;
use highwater_recorder::{HistoryOptions, Level, WhenBehind, record_memory_history};

use super::definition::Scenario;
use super::error::ScenarioError;
use super::op_costs::OpCosts;
use super::options::Options;
use super::report::{OutOfMemory, Report};
use super::session::{Session, found};
use crate::Device;
use crate::backend::cost::{self, Cost};
use highwater_allocator::AllocError;

/// Runs scenario `name` and records it to `out`. If the run ends in an out-of-memory error, the recording is still
/// complete and the report describes the failed allocation.
///
/// # Errors
/// Fails if a name or option is unknown (the error lists the supported ones), if the device is not available, or if the
/// recording cannot be written or one is already running.
pub fn record(name: &str, options: &Options, out: &Path) -> Result<Report, ScenarioError> {
    let (scenario, device) = found(name, options)?;
    // The caller chooses the path, so no rank is appended to it.
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
    if let Some(costs) = &run.op_costs {
        costs.write_into(out)?;
    }
    let losses = device.has_values().then_some(run.losses);
    let report = Report {
        losses,
        steps_done: run.steps_done,
        step_cost: run.step_cost,
        device: options.device,
        oom: None,
        file: out.to_owned(),
    };
    match run.outcome {
        Ok(()) => Ok(report),
        Err(crate::Error::Alloc(AllocError::OutOfMemory(oom))) => {
            let oom = OutOfMemory { requested: oom.requested, description: oom.to_string() };
            Ok(Report { oom: Some(oom), ..report })
        }
        Err(other) => Err(other.into()),
    }
}

/// Runs scenario `name` and returns its recording, without call stacks and without costs of operations. If the run ends
/// out of memory, the recording ends there.
///
/// # Errors
/// See [`record`].
pub fn trace(name: &str, options: &Options) -> Result<Trace, ScenarioError> {
    let (scenario, device) = found(name, options)?;
    let history = HistoryOptions {
        level: Level::Events,
        when_behind: WhenBehind::Wait,
        uses: options.uses,
        per_rank: false,
        ..HistoryOptions::default()
    };
    let recorded = record_memory_history(history, || Ok(train(scenario, &device, options)))?;
    if let Some(problem) = recorded.problem {
        return Err(problem.into());
    }
    match recorded.value.outcome {
        Ok(()) | Err(crate::Error::Alloc(AllocError::OutOfMemory(_))) => Ok(recorded.trace.unwrap_or_default()),
        Err(other) => Err(other.into()),
    }
}

struct Run {
    losses: Vec<f64>,
    steps_done: u32,
    step_cost: Cost,
    /// `None` unless costs are recorded.
    op_costs: Option<OpCosts>,
    outcome: crate::Result<()>,
    /// Dropped only after the recording is finished, so that the model is still live at its end.
    session: Option<Session>,
}

fn train(scenario: &Scenario, device: &Device, options: &Options) -> Run {
    let mut run = Run {
        losses: Vec::new(),
        steps_done: 0,
        step_cost: Cost::default(),
        op_costs: options.costs.then(OpCosts::begin),
        outcome: Ok(()),
        session: None,
    };
    run.outcome = Session::on(scenario, device.clone(), options).and_then(|session| {
        let session = run.session.insert(session);
        for step in 0..options.steps {
            let (loss, costs) = cost::count(|| session.step());
            if let Some(op_costs) = &mut run.op_costs {
                op_costs.add(&costs);
            }
            run.losses.extend(loss?);
            run.steps_done = step + 1;
            run.step_cost = costs.total();
        }
        // Reports errors that occurred after the last loss was read.
        device.synchronize()
    });
    run
}
