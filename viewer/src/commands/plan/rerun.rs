//! Built-in training steps that are run again with changes on the accounting device.

use std::collections::HashMap;
use std::sync::Arc;

use clap::Parser as _;
use highwater_analysis::final_oom::final_oom;
use highwater_analysis::plan::{Candidate, candidates_of, model};
use highwater_analysis::recompute::modules;
use highwater_analysis::{Metric, Series};
use highwater_app::answers::plan::{
    Allowance, Change, Changed, Code, Forbidden, Model, Proof, Setup, TrainingStep, Trial, Work, aligned, record_words,
    rust,
};
use highwater_engine::DType;
use highwater_engine::backend::cost::{self, Costs, PrimitiveCost};
use highwater_engine::optim::Form;
use highwater_engine::scenario::{self, Checkpoint, DeviceChoice, OptimizerKind, Options, Session};
use highwater_snapshots::{DeviceId, ScopeId, ScopePattern, Trace, format_bytes};
use rayon::prelude::*;

use crate::commands::plan::Maximize;
use crate::commands::record::{ScenarioArguments, recording_turn, running_turn};
use crate::commands::{Arguments, Command};
use crate::gpu::{Arithmetic, Roofline};

/// A capacity that exceeds the needs of any step.
const UNLIMITED: u64 = 1 << 50;
/// Number of steps recorded to measure the memory of each set of modules. Later steps are like the second step. Trials
/// run all steps.
const MAX_STEPS: u32 = 2;
/// Number of steps, layers or micro-batches that may be run although the recording has fewer events, since it may have
/// ended out of memory.
const MAX_UNRECORDED: usize = 128;
const MAX_SPLITS: usize = 6;
const LORA_RANK: usize = 16;

/// A built-in training step that is run again with changes, to find and check plans.
#[derive(Clone, Debug)]
pub(super) struct Rerun {
    pub(super) name: String,
    pub(super) options: Options,
    batch: Option<usize>,
    pub(super) loss_is_mean: bool,
    candidates: Vec<ScopePattern>,
    /// The modules that may be recomputed, each with the additional work of a step that recomputes it.
    modules: Vec<(String, u64)>,
    /// The source of the estimated time of a step, if requested.
    roofline: Option<Roofline>,
    /// The recording from which the step was read; `None` for a scenario.
    recorded: Option<Arc<Trace>>,
}

impl Rerun {
    /// Sets up the scenario `name`. The modules that match `candidates` may be recomputed; without `candidates`, the
    /// blocks of the scenario.
    ///
    /// # Errors
    /// Returns the reason the scenario cannot be run.
    fn new(name: &str, options: Options, candidates: &[ScopePattern]) -> Result<Self, String> {
        let device = match options.device {
            DeviceChoice::Cuda(_) | DeviceChoice::MetaForCuda => DeviceChoice::MetaForCuda,
            DeviceChoice::Cpu | DeviceChoice::Meta => DeviceChoice::Meta,
        };
        let options =
            Options { device, capacity: None, uses: false, costs: false, steps: options.steps.max(1), ..options };
        let turn = running_turn();
        let session = Session::start(name, &Options { capacity: Some(UNLIMITED), ..options.clone() });
        let (batch, loss_is_mean) =
            session.map(|session| (session.batch(), session.loss_is_mean())).map_err(|error| error.to_string())?;
        drop(turn);
        let (name, candidates) = (name.to_owned(), candidates.to_vec());
        let mut step = Self {
            name,
            options,
            batch,
            loss_is_mean,
            candidates,
            modules: Vec::new(),
            roofline: None,
            recorded: None,
        };
        if scenario::all().iter().any(|info| info.name == step.name && info.options.contains(&"--checkpoint")) {
            step.modules = step.priced()?;
        }
        Ok(step)
    }

    /// Returns the modules that match the candidates, or otherwise the blocks of layers. Each has the additional work
    /// of recomputing it.
    fn priced(&self) -> Result<Vec<(String, u64)>, String> {
        let plain = Setup { recomputed: Some(Vec::new()), ..Setup::default() };
        let options = Options { steps: 1, ..self.with(&plain, None) };
        let trace = self.record(&options)?;
        let found = candidates_of(&trace, &self.candidates)?;
        let work = self.run(&options, 1)?.work;
        let priced = |(_, path): (_, String)| {
            let setup = Setup { recomputed: Some(vec![path.clone()]), ..Setup::default() };
            let more = self.run(&self.with(&setup, None), 1)?.work.beyond(work);
            Ok((path, more.units()))
        };
        found.into_par_iter().map(priced).collect()
    }

    /// Sets up the scenario of `arguments`. The modules that match `candidates` may be recomputed; without
    /// `candidates`, the blocks of the scenario.
    ///
    /// # Errors
    /// Returns the reason the scenario cannot be run.
    pub(super) fn of_scenario(arguments: &ScenarioArguments, candidates: &[ScopePattern]) -> Result<Self, String> {
        let name = arguments.scenario.as_deref().unwrap_or_default();
        Self::new(name, arguments.step.options(&arguments.model), candidates)
    }

    /// Sets up the scenario that was recorded in `trace`; `None` if `trace` is a recording of another program.
    pub(super) fn of_recording(trace: &Arc<Trace>, candidates: &[ScopePattern]) -> Option<Result<Self, String>> {
        let (name, options) = Self::options_of(trace)?;
        let step = Self::new(&name, options, candidates);
        Some(step.map(|step| Self { recorded: Some(Arc::clone(trace)), ..step }))
    }

    pub(super) fn timed(self, roofline: Option<Roofline>) -> Self {
        Self { roofline, ..self }
    }

    /// Parses the `highwater record` command line that made `trace`. `None` if another program made the recording, or
    /// if the command would run longer than the recording shows.
    fn options_of(trace: &Trace) -> Option<(String, Options)> {
        let words = std::iter::once("highwater").chain(record_words(trace)?);
        let Some(Command::Record(arguments)) = Arguments::try_parse_from(words).ok()?.command else { return None };
        let options = arguments.options();
        let layers = options.sizes.layers;
        let loops = [Some(options.steps as usize), layers, options.accumulate];
        let is_recorded = loops.into_iter().flatten().all(|count| count <= trace.events.len().max(MAX_UNRECORDED));
        Some((arguments.scenario.clone()?, options)).filter(|_| is_recorded)
    }

    /// Returns the size of the step; `None` if it is unknown.
    pub(super) fn size(&self, which: Maximize) -> Option<usize> {
        match which {
            Maximize::Batch => self.options.sizes.batch.or(self.batch),
            Maximize::Seq => self.options.sizes.seq,
        }
    }

    /// Returns the step with another size.
    ///
    /// # Errors
    /// Returns the reason the step cannot be run.
    pub(super) fn with_size(&self, which: Maximize, size: usize) -> Result<Self, String> {
        let mut options = self.options.clone();
        match which {
            Maximize::Batch => options.sizes.batch = Some(size),
            Maximize::Seq => options.sizes.seq = Some(size),
        }
        Ok(Self::new(&self.name, options, &self.candidates)?.timed(self.roofline))
    }

    /// Returns the optimizer; `None` if parameters are not updated.
    pub(super) fn optimizer(&self) -> Option<OptimizerKind> {
        self.options.optimizer.or_else(|| scenario::optimizer_of(&self.name))
    }

    /// Returns the command that runs the step with `setup`, on a device of `capacity` bytes.
    pub(super) fn command(&self, setup: &Setup, capacity: u64) -> Vec<String> {
        let mut options = self.with(setup, Some(capacity));
        if let Some(paths) = &setup.recomputed {
            options.checkpoint = Checkpoint { blocks: false, scopes: ScopePattern::joined(paths) };
        }
        let mut words = vec!["highwater".to_owned(), "record".to_owned(), self.name.clone()];
        words.extend(options.words());
        if options.steps != Options::default().steps {
            words.extend(["--steps".to_owned(), options.steps.to_string()]);
        }
        words
    }

    /// Returns the options of the step with `setup`, on a device of `capacity` bytes, or of practically unlimited
    /// memory.
    pub(super) fn with(&self, setup: &Setup, capacity: Option<u64>) -> Options {
        let mut options = self.options.clone();
        options.capacity = Some(capacity.unwrap_or(UNLIMITED));
        if let Some(paths) = &setup.recomputed {
            let scopes = paths.iter().filter_map(|path| path.parse().ok()).collect();
            options.checkpoint = Checkpoint { blocks: false, scopes };
        }
        for change in &setup.changes {
            match change {
                Change::Fused => options.form = Some(Form::Fused),
                Change::EightBit => {
                    options.optimizer = Some(OptimizerKind::AdamW8bit);
                    options.form = None;
                }
                Change::InBackward => options.optimizer_in_backward = true,
                Change::MicroBatches(count) => options.accumulate = Some(*count),
                Change::Bf16 => options.dtype = Some(DType::Bf16),
                Change::Lora(rank) => {
                    options.lora = Some(*rank);
                    // The variant of Llama that trains all weights.
                    options.variant = options.variant.filter(|variant| variant != "full");
                }
                Change::Freeze(count) => options.sizes.freeze = Some(*count),
            }
        }
        if let Some(settings) = &setup.settings {
            let recorded = options.alloc_conf.take().filter(|conf| !conf.is_empty());
            options.alloc_conf = Some(recorded.map_or_else(|| settings.clone(), |conf| format!("{conf},{settings}")));
        }
        options
    }

    fn run(&self, options: &Options, steps: u32) -> Result<Trial, String> {
        let _turn = running_turn();
        let mut session = match Session::start(&self.name, options) {
            Ok(session) => session,
            Err(error) if error.is_out_of_memory() => return Ok(Trial::default()),
            Err(other) => return Err(other.to_string()),
        };
        let (mut work, mut estimated_ns) = (Work::default(), None);
        for _ in 0..steps {
            let (result, costs) = cost::count(|| session.step_unseen());
            match result {
                Ok(()) => {}
                Err(error) if error.is_out_of_memory() => return Ok(Trial::default()),
                Err(other) => return Err(other.to_string()),
            }
            let total = costs.total();
            work = Work { flops: total.flops, bytes: total.bytes, calls: total.calls };
            estimated_ns = self.roofline.map(|roofline| nanoseconds(&roofline, &costs));
        }
        let stats = session.device().allocator().stats();
        Ok(Trial {
            fits: true,
            requested: stats.requested_bytes.all.peak,
            allocated: stats.allocated_bytes.all.peak,
            reserved: stats.reserved_bytes.all.peak,
            retries: stats.num_alloc_retries,
            work,
            estimated_ns,
        })
    }

    /// Records the step.
    ///
    /// # Errors
    /// Returns the reason the step cannot be run or recorded.
    fn record(&self, options: &Options) -> Result<Trace, String> {
        let _turn = recording_turn();
        scenario::trace(&self.name, options).map_err(|error| error.to_string())
    }
}

/// Estimates the time of some work: the sum of the times of its primitives.
fn nanoseconds(roofline: &Roofline, costs: &Costs) -> u64 {
    let time = |(one, count): (&PrimitiveCost, &u64)| {
        let arithmetic = match one.product {
            Some(DType::Bf16 | DType::F16) => Arithmetic::HalfProduct,
            Some(_) => Arithmetic::SingleProduct,
            None => Arithmetic::Other,
        };
        *count as f64 * roofline.nanoseconds(arithmetic, one.flops, one.bytes)
    };
    costs.primitives.iter().map(time).sum::<f64>() as u64
}

impl TrainingStep for Rerun {
    fn combinations(&self, allowed: &[Allowance], forbidden: &[Forbidden]) -> Vec<Vec<Change>> {
        let Options { form, optimizer_in_backward, accumulate, sizes, lora, .. } = &self.options;
        let info = scenario::all().iter().find(|info| info.name == self.name);
        let takes = |option: &str| info.is_some_and(|info| info.options.contains(&option));
        let kind = self.optimizer();
        let is_allowed = |one: Allowance| allowed.contains(&one);
        let is_possible = |one: Forbidden| !forbidden.contains(&one);
        // In backward, all forms use the same memory.
        let is_fused = *form == Some(Form::Fused) || *optimizer_in_backward || kind == Some(OptimizerKind::AdamW8bit);
        let fused: Vec<Change> = (kind.is_some() && !is_fused && is_possible(Forbidden::Fused))
            .then_some(Change::Fused)
            .into_iter()
            .collect();

        let mut forms: Vec<Vec<Change>> = vec![Vec::new()];
        if !fused.is_empty() {
            forms.push(fused.clone());
        }
        let parts = accumulate.unwrap_or(1);
        if kind.is_some() && !optimizer_in_backward && parts == 1 && is_possible(Forbidden::InBackward) {
            forms.push(vec![Change::InBackward]);
        }
        let can_split = takes("--accumulate") && !optimizer_in_backward && is_possible(Forbidden::MicroBatches);
        if let Some(batch) = self.batch.filter(|_| can_split) {
            let mut last = parts;
            let splits = (parts + 1..=batch).filter(|count| batch.is_multiple_of(*count)).filter(|count| {
                let is_next = *count >= 2 * last || *count == batch;
                last = if is_next { *count } else { last };
                is_next
            });
            let splits = splits.take(MAX_SPLITS);
            forms.extend(splits.map(|count| fused.iter().copied().chain([Change::MicroBatches(count)]).collect()));
        }
        let eight_bit = is_allowed(Allowance::EightBit) && kind == Some(OptimizerKind::AdamW);
        let bf16 = is_allowed(Allowance::Bf16) && takes("--dtype") && self.options.dtype != Some(DType::Bf16);
        let mut trainings: Vec<Vec<Change>> = vec![Vec::new()];
        if is_allowed(Allowance::Lora) && takes("--lora") && lora.is_none() {
            trainings.push(vec![Change::Lora(LORA_RANK)]);
        }
        if is_allowed(Allowance::Freeze) && takes("--freeze") {
            let layers = self.modules.len();
            let counts = [layers / 4, layers / 2, layers * 3 / 4];
            let more = counts.into_iter().filter(|count| *count > sizes.freeze.unwrap_or(0));
            trainings.extend(more.map(|count| vec![Change::Freeze(count)]));
        }
        let mut all = Vec::new();
        for training in &trainings {
            for precision in [&[][..], &[Change::Bf16], &[Change::EightBit], &[Change::EightBit, Change::Bf16]] {
                let has = |change: Change| precision.contains(&change);
                if has(Change::Bf16) && !bf16 || has(Change::EightBit) && !eight_bit {
                    continue;
                }
                for form in &forms {
                    // 8-bit state always comes with one fused pass.
                    let form = form.iter().copied().filter(|change| *change != Change::Fused || !has(Change::EightBit));
                    let combination: Vec<Change> =
                        training.iter().copied().chain(precision.iter().copied()).chain(form).collect();
                    if !all.contains(&combination) {
                        all.push(combination);
                    }
                }
            }
        }
        all
    }

    fn model(&self, changes: &[Change]) -> Result<Model, String> {
        let setup = Setup { changes: changes.to_vec(), recomputed: Some(Vec::new()), settings: None };
        let plain = Options { steps: self.options.steps.min(MAX_STEPS), uses: true, ..self.with(&setup, None) };
        let trace = self.record(&plain)?;
        let scopes: HashMap<String, ScopeId> = modules(&trace).into_iter().map(|(scope, path)| (path, scope)).collect();
        let known = self.modules.iter().filter_map(|(path, cost)| Some((path, *scopes.get(path)?, *cost)));
        let (paths, candidates): (Vec<String>, Vec<Candidate>) =
            known.map(|(path, scope, cost)| (path.clone(), Candidate { scope, cost: cost.max(1) })).unzip();
        let program = model(&trace, trace.main_device(), &candidates);
        Ok(Model { modules: paths, program, penalties: Vec::new() })
    }

    fn trial(&self, setup: &Setup, capacity: Option<u64>) -> Result<Trial, String> {
        self.run(&self.with(setup, capacity), self.options.steps)
    }

    fn recording(&self, setup: &Setup) -> Result<Trace, String> {
        self.record(&self.with(setup, None))
    }

    fn changed(&self, setup: &Setup, capacity: Option<u64>) -> Result<Changed, String> {
        let trace = self.record(&self.with(setup, capacity))?;
        let source = self.recorded.as_ref().map_or_else(Vec::new, |recorded| aligned(recorded, &trace));
        let failure = final_oom(&trace).and_then(|event| source.get(event.index()?).copied());
        Ok(Changed { trace, source, failure })
    }

    fn code(&self, setup: &Setup) -> Result<Code, String> {
        Ok(rust(setup, &self.program(setup)?))
    }

    fn device(&self) -> DeviceId {
        self.recorded.as_ref().map_or(DeviceId(0), |trace| trace.main_device())
    }

    fn proof(&self) -> Proof {
        Proof::Rerun(self.options.steps)
    }

    fn warnings(&self, as_is: &Trial) -> Vec<String> {
        let whole = self.recorded.as_ref().filter(|trace| final_oom(trace).is_none());
        let recorded = whole.map(|trace| Series::build(trace, trace.main_device()).peak(trace, Metric::Requested).0);
        let other = recorded.filter(|bytes| *bytes != as_is.requested).map(|recorded| {
            let [recorded, now] = [recorded, as_is.requested].map(format_bytes);
            format!(
                "The recording peaks at {recorded}, but the same step now peaks at {now}: another version of \
                 highwater made the recording, and the plan is for this version."
            )
        });
        other.into_iter().collect()
    }

    fn assumptions(&self, _: &Setup) -> Vec<String> {
        Vec::new()
    }
}
