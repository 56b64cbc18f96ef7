//! `highwater plan`: the cheapest changes with which a training step fits a memory budget.

mod report;
#[cfg(feature = "engine")]
mod rerun;
#[cfg(feature = "engine")]
mod rust_program;
#[cfg(feature = "engine")]
mod maximize;
mod program;

#[cfg(feature = "engine")]
use self::{maximize::largest, rerun::Rerun};
#[cfg(feature = "engine")]
use crate::commands::next_command::quoted;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Args, ValueEnum};
use highwater_analysis::Source;
use highwater_app::answers::plan::{
    Allowance, Forbidden, Plan, PlanLine, Query, Recorded, RerunOf, Search, Setup, TrainingStep, composition,
    plan_with, search,
};
use highwater_app::answers::replays::used_outside;
use highwater_app::figures::planned::{Budget, assumptions, counted_outside};
use highwater_snapshots::{ScopePattern, format_bytes, parse_size};

use self::program::SimulatedProgram;
use self::report::PlanReport;
use crate::args::{CategoryChoice, Form};
use crate::commands::record::ScenarioArguments;
use crate::gpu::{Gpu, Roofline};
use crate::input::{read_with, with_spinner};
use crate::output::{Failure, Page, Report as _, Status, caveats};

/// The dimension of the step that is to be maximized.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Maximize {
    /// The batch size, without micro-batches.
    Batch,
    /// The sequence length.
    Seq,
}

impl Maximize {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Batch => "batch",
            Self::Seq => "sequence length",
        }
    }
}

impl PlanArguments {
    pub(crate) fn budget(&self) -> Budget {
        Budget { bytes: self.budget, reserve: self.reserve.unwrap_or(0) }
    }

    /// Returns the peak rates for estimating the time of a step, if requested.
    pub(crate) fn roofline(&self) -> Option<Roofline> {
        // With a program, `--gpu` determines its kernels instead.
        let gpu = self.gpu.filter(|_| self.words.is_empty())?;
        Some(Roofline { rates: gpu.rates().ok()?, tf32: self.tf32 })
    }
}

/// Arguments of `highwater plan`.
#[derive(Clone, Debug, Args)]
pub struct PlanArguments {
    /// The recording; one of `highwater record` is run again with the changes, others are replayed; `-` is standard
    /// input
    #[arg(value_name = "FILE", required_unless_present_any = ["scenario", "words"])]
    pub file: Option<PathBuf>,
    /// Device memory, such as 24GiB
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub budget: u64,
    /// Part of the budget for memory outside the allocator, such as the CUDA context and communication buffers
    /// [default: the memory that other processes use according to the recording's samples]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub reserve: Option<u64>,
    /// Changes to allow although they alter the numerical results or the trained weights, comma-separated: 8bit
    /// (optimizer state), bf16 (parameters and activations), lora (adapters of rank 16), freeze (the first blocks)
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub allow: Vec<Allowance>,
    /// Changes to exclude because the program cannot make them, comma-separated: fused, in-backward (not possible with
    /// clipping of the gradient norm), micro-batches, recompute, settings (allocator settings)
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub forbid: Vec<Forbidden>,
    /// Modules that may be recomputed: layers.3, layers.*.mlp or layers.{0-9}; repeatable [default: the repeated blocks
    /// of the model]
    #[arg(long, value_name = "PATTERN")]
    pub modules: Vec<ScopePattern>,
    /// Find the largest batch size or sequence length with which some plan fits, and that plan; for `record`'s steps
    #[arg(long, value_name = "batch|seq")]
    pub maximize: Option<Maximize>,
    /// GPU on which a program is simulated, which determines its kernels [default: a100]; for `record`'s steps, the GPU
    /// whose peak rates give the estimated time of a step (a10, a100, h100, h200, l4, l40s or rtx4090)
    #[arg(long, value_name = "NAME")]
    pub gpu: Option<Gpu>,
    /// Estimate f32 matrix products in TF32, which PyTorch uses only if enabled
    #[arg(long, requires = "gpu")]
    pub tf32: bool,
    /// Program and its arguments, after `--`: simulated once as it is, and once with the plan's lines on a device of
    /// the budget's size
    #[arg(value_name = "PROGRAM", last = true, conflicts_with_all = ["file", "scenario"])]
    pub words: Vec<OsString>,
    /// The output format.
    #[command(flatten)]
    pub form: Form,
    /// The source of categories that were not recorded.
    #[command(flatten)]
    pub categories: CategoryChoice,
    // Last, since a heading in it applies to everything after it.
    /// A built-in training step and its options, instead of a recording.
    #[command(flatten)]
    pub training: ScenarioArguments,
}

/// The function that the app uses to run built-in steps again for plans.
#[cfg(feature = "engine")]
pub const RERUN: Option<RerunOf> = Some(|trace| {
    let step = Rerun::of_recording(trace, &[])?;
    Some(step.map(|step| Box::new(step) as Box<dyn TrainingStep + Send>))
});
/// `None`, since this build has no engine to run steps.
#[cfg(not(feature = "engine"))]
pub const RERUN: Option<RerunOf> = None;

/// Searches for a plan and prints it.
pub fn run(arguments: &PlanArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    let budget = arguments.budget();
    if budget.capacity() == 0 {
        let [budget, reserve] = [budget.bytes, budget.reserve].map(format_bytes);
        return Err(Failure::Usage(format!("--reserve {reserve} leaves nothing of the budget of {budget}; lower it")));
    }
    let is_program = !arguments.words.is_empty();
    if is_program && arguments.maximize.is_some() {
        return Err(Failure::Usage(
            "--maximize needs a step whose size is known: a scenario of `highwater record`".to_owned(),
        ));
    }
    if let Some(gpu) = arguments.gpu.filter(|_| !is_program) {
        gpu.rates().map_err(Failure::Usage)?;
    }
    let report = match &arguments.file {
        _ if is_program => of_program(arguments, page)?,
        Some(file) => of_file(file, arguments, page)?,
        None => of_scenario(arguments)?,
    };
    report.write(arguments.form, page)?;
    // A fit that cannot be confirmed does not pass either.
    Ok(if report.fits() == Some(true) { Status::Fine } else { Status::Broken })
}

/// Plans the step in `file`: runs a built-in step again, and replays other recordings.
fn of_file(file: &Path, arguments: &PlanArguments, page: &mut Page<'_>) -> Result<PlanReport, Failure> {
    let trace = Arc::new(read_with(file, &arguments.categories)?.trace);
    if arguments.form.is_text() {
        caveats::lead(&trace, "", page)?;
    }
    let device = trace.main_device();
    let used = match arguments.reserve {
        None => used_outside(&Source::in_memory(Arc::clone(&trace)), device)
            .map_err(|source| Failure::Read { file: file.to_owned(), source })?,
        Some(_) => 0,
    };
    let reserve = arguments.reserve.or(Some(used));
    let arguments = &PlanArguments { reserve, ..arguments.clone() };
    let option = |text: String| format!("{text} Use --reserve to set aside another amount.");
    let warnings: Vec<String> = counted_outside(used).map(option).into_iter().collect();
    #[cfg(feature = "engine")]
    if let Some(step) = Rerun::of_recording(&trace, &arguments.modules) {
        let step = step.map_err(Failure::Usage)?.timed(arguments.roofline());
        return of_rerun(&step, arguments, warnings);
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
    let step = Recorded::new(trace, device, &arguments.modules).map_err(Failure::Usage)?;
    let found = searched(&step, arguments)?;
    let setup = found.best().map(|plan| plan.setup.clone());
    report(&step, found, arguments, Applied { setup, warnings, ..Applied::default() })
}

/// Plans a program without editing it: simulates it, and then again with the plan.
fn of_program(arguments: &PlanArguments, page: &mut Page<'_>) -> Result<PlanReport, Failure> {
    let program = SimulatedProgram::new(arguments);
    let simulated = program.recorded()?;
    let warnings: Vec<String> = program.assumed().into_iter().collect();
    if arguments.form.is_text() {
        warnings.iter().try_for_each(|text| page.warning(text))?;
    }
    let trace = simulated.trace();
    let step = Recorded::new(Arc::clone(trace), trace.main_device(), &arguments.modules).map_err(Failure::Usage)?;
    let found = searched(&step, arguments)?;
    let setup = found.best().map(|plan| plan.setup.clone());
    let code = setup.as_ref().map(|setup| step.code(setup)).transpose().map_err(Failure::Usage)?.unwrap_or_default();
    let expected = found.best().map_or(found.as_is, |plan| plan.trial);
    let is_possible = found.fits_as_is || !found.plans.is_empty();
    let proven = is_possible.then(|| program.prove(&code, expected, simulated.file())).transpose()?;
    let warnings = if arguments.form.is_text() { Vec::new() } else { warnings };
    let applied = Applied { setup, warnings, ..Applied::default() };
    Ok(PlanReport { proven, ..report(&step, found, arguments, applied)? })
}

#[derive(Default)]
struct Applied {
    setup: Option<Setup>,
    /// The command that records the step with the changes.
    command: Option<String>,
    warnings: Vec<String>,
}

fn searched(step: &dyn TrainingStep, arguments: &PlanArguments) -> Result<Search, Failure> {
    let doing = format!("planning for {}", format_bytes(arguments.budget));
    with_spinner(&doing, || search(step, &query_of(arguments))).map_err(Failure::Usage)
}

fn query_of(arguments: &PlanArguments) -> Query {
    Query {
        capacity: arguments.budget().capacity(),
        allowed: arguments.allow.clone(),
        forbidden: arguments.forbid.clone(),
    }
}

/// Returns the plans that would be possible with each change that was not allowed.
fn with_allowances(step: &dyn TrainingStep, arguments: &PlanArguments) -> Result<Vec<(Allowance, Plan)>, Failure> {
    let query = query_of(arguments);
    let others = Allowance::ALL.iter().copied().filter(|one| !arguments.allow.contains(one));
    let plans = others.map(|one| Ok(plan_with(step, &query, one)?.map(|plan| (one, plan))));
    let found = with_spinner("looking for changes that would be enough", || plans.collect::<Result<Vec<_>, String>>());
    Ok(found.map_err(Failure::Usage)?.into_iter().flatten().collect())
}

fn report(
    step: &dyn TrainingStep,
    found: Search,
    arguments: &PlanArguments,
    applied: Applied,
) -> Result<PlanReport, Failure> {
    let Applied { setup, command, mut warnings } = applied;
    let budget = arguments.budget();
    let (mut possible, mut at_minimum) = (Vec::new(), Vec::new());
    if found.plans.is_empty() {
        possible = with_allowances(step, arguments)?;
        at_minimum = composition(&step.recording(&found.minimum.setup).map_err(Failure::Usage)?);
    }
    let code = setup.map(|setup| step.code(&setup)).transpose().map_err(Failure::Usage)?.unwrap_or_default();
    warnings.splice(0..0, step.warnings(&found.as_is));
    let best = found.best().map(|plan| plan.setup.clone());
    // The step is run once more for each change of the plan.
    let lines = best.as_ref().map(|setup| PlanLine::all(step, setup, budget.capacity())).transpose();
    Ok(PlanReport {
        budget,
        lines: lines.map_err(Failure::Usage)?.unwrap_or_default(),
        at_minimum,
        proof: step.proof(),
        command,
        code,
        assumptions: assumptions(step, best.as_ref()),
        warnings,
        possible,
        roofline: arguments.roofline(),
        search: found,
        maximized: None,
        proven: None,
    })
}

#[cfg(feature = "engine")]
fn of_scenario(arguments: &PlanArguments) -> Result<PlanReport, Failure> {
    let step = Rerun::of_scenario(&arguments.training, &arguments.modules).map_err(Failure::Usage)?;
    let step = step.timed(arguments.roofline());
    of_rerun(&step, arguments, Vec::new())
}

#[cfg(not(feature = "engine"))]
fn of_scenario(_arguments: &PlanArguments) -> Result<PlanReport, Failure> {
    Err(Failure::Usage("cannot run a scenario: this build has no engine; give a recording".to_owned()))
}

/// Plans a step that can be run again; `warnings` contains limits of the answer.
#[cfg(feature = "engine")]
fn of_rerun(step: &Rerun, arguments: &PlanArguments, warnings: Vec<String>) -> Result<PlanReport, Failure> {
    if let Some(which) = arguments.maximize {
        return maximized(step, which, arguments, warnings);
    }
    let found = searched(step, arguments)?;
    let setup = found.best().map(|plan| plan.setup.clone());
    of_setup(step, found, arguments, setup, warnings)
}

#[cfg(feature = "engine")]
fn maximized(
    step: &Rerun,
    which: Maximize,
    arguments: &PlanArguments,
    mut warnings: Vec<String>,
) -> Result<PlanReport, Failure> {
    let mut arguments = arguments.clone();
    if which == Maximize::Batch {
        arguments.forbid.push(Forbidden::MicroBatches);
    }
    let (query, mut refused) = (query_of(&arguments), None);
    let fits = |size: usize| match step.with_size(which, size) {
        Ok(step) => Ok(!search(&step, &query)?.plans.is_empty()),
        Err(why) => {
            refused = Some(format!("A {} of {size} is not possible: {why}.", which.name()));
            Ok(false)
        }
    };
    let doing = format!("looking for the largest {}", which.name());
    let found = with_spinner(&doing, || largest(step.size(which).unwrap_or(1), fits));
    let size = found.map_err(Failure::Usage)?.unwrap_or(1);
    warnings.extend(refused);
    let step = step.with_size(which, size).map_err(Failure::Usage)?;
    let found = searched(&step, &arguments)?;
    let setup = found.plans.first().map(|plan| if found.fits_as_is { Setup::default() } else { plan.setup.clone() });
    let maximized = Some((which, size));
    Ok(PlanReport { maximized, ..of_setup(&step, found, &arguments, setup, warnings)? })
}

#[cfg(feature = "engine")]
fn of_setup(
    step: &Rerun,
    found: Search,
    arguments: &PlanArguments,
    setup: Option<Setup>,
    warnings: Vec<String>,
) -> Result<PlanReport, Failure> {
    let command = setup.as_ref().map(|setup| {
        let words = step.command(setup, arguments.budget().capacity());
        words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ")
    });
    report(step, found, arguments, Applied { setup, command, warnings })
}
