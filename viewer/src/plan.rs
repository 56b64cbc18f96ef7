//! `highwater plan`: the cheapest changes with which a training step fits a memory budget.

#[cfg(feature = "engine")]
mod rerun;
#[cfg(feature = "engine")]
mod rust_program;
#[cfg(feature = "engine")]
mod maximize;

use std::path::Path;
use std::sync::Arc;

#[cfg(feature = "engine")]
use highwater_analysis::final_oom::final_oom;
#[cfg(feature = "engine")]
use highwater_analysis::{Metric, Series};
use highwater_app::answers::plan::{
    Allowance, Plan, Query, Recorded, Search, TrainingStep, plan_with, search, warnings,
};
use highwater_app::figures::planned::{Budget, Proof};
use highwater_snapshots::units::{format_bytes, format_required_bytes};

#[cfg(feature = "engine")]
use self::{maximize::largest, rerun::Rerun};
#[cfg(feature = "engine")]
use crate::args::Maximize;
use crate::args::PlanArguments;
use crate::cli::input::categories::read_with;
use crate::cli::input::recording::spinner;
use crate::cli::output::caveats;
use crate::cli::output::outcome::{Failure, Status};
use crate::cli::output::page::Page;
#[cfg(feature = "engine")]
use crate::cli::output::shell::quoted;
use crate::cli::plan::{PlanContext, PlanReport};
#[cfg(feature = "engine")]
use highwater_app::answers::plan::{Forbidden, Setup, rust};

/// Searches a plan and prints it.
pub fn run(arguments: &PlanArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    if arguments.reserve >= arguments.budget {
        let [budget, reserve] = [arguments.budget, arguments.reserve].map(format_bytes);
        return Err(Failure::Usage(format!("--reserve {reserve} leaves nothing of the budget of {budget}")));
    }
    let report = match &arguments.file {
        Some(file) => of_file(file, arguments, page)?,
        None => of_scenario(arguments)?,
    };
    if arguments.json {
        page.json(&report.figures())?;
    } else {
        report.print(page)?;
    }
    Ok(if report.fits() { Status::Fine } else { Status::Broken })
}

/// Plans the step in `file`: by running it again if it is a built-in one, or else by replaying the recording.
fn of_file(file: &Path, arguments: &PlanArguments, page: &mut Page<'_>) -> Result<PlanReport, Failure> {
    let recording = read_with(file, &arguments.categories)?;
    if !arguments.json {
        caveats::lead(&recording.trace, "", page)?;
    }
    let trace = recording.trace;
    let device = trace.main_device();
    #[cfg(feature = "engine")]
    if let Some(step) = Rerun::of_recording(&trace, &arguments.modules) {
        let recorded = Series::build(&trace, device).peak(&trace, Metric::Requested).0;
        let is_whole = final_oom(&trace).is_none();
        let step = step.map_err(Failure::Usage)?.timed(arguments.roofline());
        return of_rerun(&step, arguments, is_whole.then_some(recorded));
    }
    if arguments.maximize.is_some() {
        let text = "--maximize needs a step that can be run again with another size: a recording of `highwater record`";
        return Err(Failure::Usage(text.to_owned()));
    }
    if arguments.gpu.is_some() {
        let text = "--gpu cannot estimate times from this recording: it has no shapes of operations; give a recording of \
                    `highwater record`, or --scenario";
        return Err(Failure::Usage(text.to_owned()));
    }
    let trace = Arc::new(trace);
    let step = Recorded::new(Arc::clone(&trace), device, &arguments.modules).map_err(Failure::Usage)?;
    let found = searched(&step, arguments)?;
    let paste = found.best().map(|plan| step.code(&plan.setup)).unwrap_or_default();
    let warnings = warnings(&trace, device, &step);
    report(&step, found, arguments, Proof::Replayed, None, paste, warnings)
}

fn searched(step: &dyn TrainingStep, arguments: &PlanArguments) -> Result<Search, Failure> {
    let turning = spinner(format!("planning for {}", format_required_bytes(arguments.budget)));
    let found = search(step, &query_of(arguments));
    turning.finish_and_clear();
    found.map_err(Failure::Usage)
}

fn query_of(arguments: &PlanArguments) -> Query {
    Query {
        capacity: arguments.budget - arguments.reserve,
        allowed: arguments.allow.clone(),
        forbidden: arguments.forbid.clone(),
    }
}

/// Returns the plan that each further allowance would make possible.
fn with_allowances(step: &dyn TrainingStep, arguments: &PlanArguments) -> Result<Vec<(Allowance, Plan)>, Failure> {
    let turning = spinner("looking for changes that would be enough".to_owned());
    let query = query_of(arguments);
    let others = Allowance::ALL.into_iter().filter(|one| !arguments.allow.contains(one));
    let found: Result<Vec<_>, String> =
        others.map(|one| Ok(plan_with(step, &query, one)?.map(|plan| (one, plan)))).collect();
    turning.finish_and_clear();
    Ok(found.map_err(Failure::Usage)?.into_iter().flatten().collect())
}

fn report(
    step: &dyn TrainingStep,
    found: Search,
    arguments: &PlanArguments,
    proof: Proof,
    command: Option<String>,
    paste: Vec<String>,
    warnings: Vec<String>,
) -> Result<PlanReport, Failure> {
    let budget = Budget { bytes: arguments.budget, reserve: arguments.reserve };
    let possible = if found.plans.is_empty() { with_allowances(step, arguments)? } else { Vec::new() };
    let roofline = arguments.roofline();
    let context = PlanContext { budget, proof, command, paste, warnings, possible, roofline };
    PlanReport::of(step, found, context).map_err(Failure::Usage)
}

#[cfg(feature = "engine")]
fn of_scenario(arguments: &PlanArguments) -> Result<PlanReport, Failure> {
    let step = Rerun::of_scenario(&arguments.training, &arguments.modules).map_err(Failure::Usage)?;
    let step = step.timed(arguments.roofline());
    of_rerun(&step, arguments, None)
}

/// Fails: this build has no scenarios.
#[cfg(not(feature = "engine"))]
fn of_scenario(_arguments: &PlanArguments) -> Result<PlanReport, Failure> {
    Err(Failure::Usage("give a recording: this build has no engine to run a scenario with".to_owned()))
}

/// Plans a step that can be run again; `recorded` is the recorded peak of requested bytes, if it is known.
#[cfg(feature = "engine")]
fn of_rerun(step: &Rerun, arguments: &PlanArguments, recorded: Option<u64>) -> Result<PlanReport, Failure> {
    if let Some(which) = arguments.maximize {
        return maximized(step, which, arguments);
    }
    let found = searched(step, arguments)?;
    let mut warnings = Vec::new();
    if let Some(recorded) = recorded.filter(|bytes| *bytes != found.as_is.requested) {
        let [recorded, now] = [recorded, found.as_is.requested].map(format_bytes);
        warnings.push(format!(
            "The recording peaks at {recorded}, but the step at {now} when it is run again: another version made the \
             recording, and the plan is for this one."
        ));
    }
    let setup = found.best().map(|plan| plan.setup.clone());
    of_setup(step, found, arguments, setup, warnings)
}

/// Finds the largest size of `step` with which some plan fits, and that plan.
#[cfg(feature = "engine")]
fn maximized(step: &Rerun, which: Maximize, arguments: &PlanArguments) -> Result<PlanReport, Failure> {
    let mut arguments = arguments.clone();
    if which == Maximize::Batch {
        arguments.forbid.push(Forbidden::MicroBatches);
    }
    let (query, mut warnings) = (query_of(&arguments), Vec::new());
    let turning = spinner(format!("looking for the largest {}", which.name()));
    let found = largest(step.size(which).unwrap_or(1), |size| match step.with_size(which, size) {
        Ok(step) => Ok(!search(&step, &query)?.plans.is_empty()),
        Err(why) => {
            warnings = vec![format!("A {} of {size} is not possible: {why}.", which.name())];
            Ok(false)
        }
    });
    turning.finish_and_clear();
    let size = found.map_err(Failure::Usage)?.unwrap_or(1);
    let step = step.with_size(which, size).map_err(Failure::Usage)?;
    let found = searched(&step, &arguments)?;
    let setup = found.plans.first().map(|plan| if found.fits_as_is { Setup::default() } else { plan.setup.clone() });
    Ok(of_setup(&step, found, &arguments, setup, warnings)?.maximized(which, size))
}

/// Builds the report, whose command and lines apply `setup`.
#[cfg(feature = "engine")]
fn of_setup(
    step: &Rerun,
    found: Search,
    arguments: &PlanArguments,
    setup: Option<Setup>,
    warnings: Vec<String>,
) -> Result<PlanReport, Failure> {
    let command = setup.as_ref().map(|setup| {
        let words = step.command(setup, arguments.budget - arguments.reserve);
        words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
    });
    let paste = match setup {
        Some(setup) => rust(&setup, &step.program(&setup).map_err(Failure::Usage)?),
        None => Vec::new(),
    };
    report(step, found, arguments, Proof::Rerun(step.steps()), command, paste, warnings)
}
