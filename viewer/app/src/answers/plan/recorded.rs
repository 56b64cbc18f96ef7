//! Plans from a recording: changes are applied to the recording, which is then replayed through the allocator.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use highwater_analysis::fused_form::{FusedForm, fused_form};
use highwater_analysis::plan::{Candidate, candidates_of, model};
use highwater_analysis::recompute::{Addition, Members, calls, effects, modules};
use highwater_analysis::{Doubt, Evidence, Metric, Series, Source};
use highwater_snapshots::{
    BlockId, Category, DeviceId, EventId, EventKind, Phase, ScopeId, ScopePattern, Subject, Trace,
};

use super::change::{Allowance, Change, Forbidden, Setup};
use super::code::{self, Code, RustProgram, Updates};
use super::step::{Changed, Model, Proof, Reach, TrainingStep, Trial, Work};
use super::warnings::{NAME_MODULES, NO_MODULES, warnings};
use crate::answers::replays::{Edited, Replay, Replayer};

/// The assumption about a program without recorded references and uses of blocks, and advice for PyTorch programs.
const MARGIN: &str = "the program may free blocks of forward in another order than the replay and reserve more: keep \
                      a margin with --reserve, such as a fifth of the budget";
const AGAIN: &str = ", or record again with `highwater.record_memory_history` in Python, which follows references";

const MAX_QUICK_EVENTS: usize = 500_000;
/// Requested bytes of a parameter's step counter.
const COUNTER_BYTES: u64 = 4;
/// Bytes of the buffer in which a PyTorch normalization layer counts batches.
const BATCHES_BYTES: u64 = 8;

/// A recording of a training step on one device.
#[derive(Clone)]
pub struct Recorded {
    trace: Arc<Trace>,
    device: DeviceId,
    replayer: Replayer,
    candidates: Vec<(ScopeId, String)>,
    /// The bytes that forward allocates, in total and in each candidate, for estimating the work of recomputation.
    forward_bytes: (u64, HashMap<String, u64>),
    /// For each block, whether it is a temporary that a fused optimizer would not allocate.
    temporaries: Vec<bool>,
    /// Whether a fused optimizer keeps step counters on the device; `None` if unknown.
    has_counters: Option<bool>,
    /// The state that a recomputation of the candidates would update a second time.
    updates: Updates,
    /// A cache of the last changed recording, before its replay.
    last: RefCell<Option<(Setup, Edited)>>,
}

impl Recorded {
    /// Prepares `device` of `trace`. The modules that may be recomputed are those that match `patterns`, or the
    /// repeated blocks of the model if there are no patterns.
    ///
    /// # Errors
    /// Returns an error that names the pattern that matches no module, or the reason the device cannot be replayed.
    pub fn new(trace: Arc<Trace>, device: DeviceId, patterns: &[ScopePattern]) -> Result<Self, String> {
        let replayer = Replayer::of(&trace, device)?;
        let candidates = candidates_of(&trace, patterns)?;
        let forward_bytes = forward_bytes(&trace, device, &candidates);
        let (temporaries, has_counters) = temporaries_of_optimizer(&trace, device);
        let updates = Updates { statistics: with_statistics(&trace, &candidates), cache: fills_cache(&trace) };
        let last = RefCell::default();
        Ok(Self { trace, device, replayer, candidates, forward_bytes, temporaries, has_counters, updates, last })
    }

    /// Returns whether there are temporaries that a fused optimizer does not allocate.
    pub fn can_fuse(&self) -> bool {
        self.temporaries.contains(&true)
    }

    /// Estimates the work of a step that recomputes modules: bytes that forward allocates count as FLOPs.
    fn work(&self, recomputed: &[String]) -> Work {
        let (forward, of_modules) = &self.forward_bytes;
        let more = recomputed.iter().filter_map(|path| of_modules.get(path)).sum::<u64>();
        // Backward does about twice the work of forward.
        Work { flops: forward.saturating_mul(3).saturating_add(more), ..Work::default() }
    }

    fn replay(&self, setup: &Setup, capacity: Option<u64>) -> Result<(Edited, Replay), String> {
        let edited = self.edited(setup);
        let replay = self.replayer.replay(&edited, setup.settings.as_deref(), capacity)?;
        Ok((edited, replay))
    }

    /// Returns the recording with the changes of `setup` except for allocator settings.
    fn edited(&self, setup: &Setup) -> Edited {
        let wanted = Setup { settings: None, ..setup.clone() };
        if let Some((_, edited)) = self.last.borrow().as_ref().filter(|(known, _)| *known == wanted) {
            return edited.clone();
        }
        let mut edited = self.replayer.unchanged(Arc::clone(&self.trace));
        if setup.changes.contains(&Change::Fused) {
            edited = self.replayer.without(&edited, &self.temporaries);
            let counters = step_counters(&edited.trace, self.device, self.has_counters);
            if !counters.is_empty() {
                edited = self.replayer.with_additions(&edited, &counters);
            }
        }
        let chosen = setup.recomputed.as_deref().unwrap_or_default();
        if !chosen.is_empty() {
            let trace = &edited.trace;
            let paths: HashMap<String, ScopeId> =
                modules(trace).into_iter().map(|(scope, path)| (path, scope)).collect();
            let scopes: Vec<ScopeId> = chosen.iter().filter_map(|path| paths.get(path).copied()).collect();
            let members = Members::of(trace, |scope| scopes.contains(&scope));
            let found = effects(trace, self.device, &members);
            edited = self.replayer.recomputed(&edited, &found);
        }
        self.last.replace(Some((wanted, edited.clone())));
        edited
    }
}

/// Returns the arguments of the `highwater record` command that made `trace`, without the name of the program; `None`
/// if another program made the recording.
pub fn record_words(trace: &Trace) -> Option<Vec<&str>> {
    let mut words = trace.header.program.split_whitespace();
    let binary = words.next()?.rsplit(['/', '\\']).next()?;
    let words: Vec<&str> = words.collect();
    (binary.trim_end_matches(".exe") == "highwater" && words.contains(&"record")).then_some(words)
}

/// Returns, for each block, whether it is a temporary of the optimizer step that a fused optimizer would not allocate.
/// Also returns whether the fused optimizer has step counters on the device; `None` if no call stack shows it.
fn temporaries_of_optimizer(trace: &Trace, device: DeviceId) -> (Vec<bool>, Option<bool>) {
    let blocks = &trace.blocks;
    let mut forms = HashMap::new();
    let mut is_removed = |block: BlockId| {
        let row = block.0 as usize;
        let alloc = blocks.alloc[row];
        let is_temporary = blocks.device[row] == device
            && blocks.category[row] == Category::Temporary
            && alloc.is_some()
            && trace.spans.at(alloc).is_some_and(|span| span.phase == Phase::Optimizer);
        let stack = blocks.stack[row];
        is_temporary
            && *forms.entry(stack).or_insert_with(|| fused_form(&trace.tables, stack)) != Some(FusedForm::Missing)
    };
    let removed = blocks.ids().map(&mut is_removed).collect();
    let has = |form: FusedForm| forms.values().any(|known| *known == Some(form));
    let has_counters = match has(FusedForm::WithCounters) {
        true => Some(true),
        false => has(FusedForm::WithoutCounters).then_some(false),
    };
    (removed, has_counters)
}

/// Returns the step counters that a fused PyTorch optimizer keeps in the memory of `device` and that `trace` lacks: one
/// per parameter, allocated before its other state. If it is unknown whether the optimizer `has_counters`, two or three
/// states of equal size per parameter are assumed to be those of Adam.
fn step_counters(trace: &Trace, device: DeviceId, has_counters: Option<bool>) -> Vec<Addition> {
    if !trace.header.recorder.starts_with("PyTorch") || has_counters == Some(false) {
        return Vec::new();
    }
    let blocks = &trace.blocks;
    let is_of = |row: usize, category: Category| blocks.device[row] == device && blocks.category[row] == category;
    let mut states: BTreeMap<(ScopeId, u64), Vec<BlockId>> = BTreeMap::new();
    let mut parameters: BTreeMap<(ScopeId, u64), usize> = BTreeMap::new();
    for block in blocks.ids() {
        let row = block.0 as usize;
        let alike = (blocks.scope[row], blocks.requested[row]);
        if is_of(row, Category::OptimizerState) {
            states.entry(alike).or_default().push(block);
        } else if is_of(row, Category::Parameter) {
            *parameters.entry(alike).or_default() += 1;
        }
    }
    let counters: usize =
        states.iter().filter(|((_, bytes), _)| *bytes == COUNTER_BYTES).map(|(_, all)| all.len()).sum();
    let all: usize = states.values().map(Vec::len).sum();
    // States of parameters with a single number have the size of a counter as well, but are few.
    if counters * 4 >= all {
        return Vec::new();
    }
    // Adam has two states for each parameter, or three with amsgrad, and Adagrad one.
    let numbers = [2, 3, 1].into_iter().filter(|number| *number > 1 || has_counters == Some(true));
    let is_exact = |number: &usize| {
        states.iter().all(|(alike, all)| parameters.get(alike).is_some_and(|of| of * number == all.len()))
    };
    let is_possible = |number: &usize| states.values().all(|all| all.len().is_multiple_of(*number));
    let Some(number) = numbers.clone().find(is_exact).or_else(|| numbers.clone().find(is_possible)) else {
        return Vec::new();
    };
    let firsts = states.values().flat_map(|states| states.iter().step_by(number).copied());
    let before = |block: BlockId| Some(blocks.alloc[block.0 as usize]).filter(|event| event.is_some());
    let addition = |like: BlockId| Addition {
        before: before(like).unwrap_or(EventId(0)),
        like,
        requested: COUNTER_BYTES,
        category: Category::OptimizerState,
    };
    let mut counters: Vec<Addition> = firsts.map(addition).collect();
    counters.sort_by_key(|one| (one.before, one.like));
    counters
}

/// Returns the paths of the `candidates` that contain a PyTorch layer with running statistics, recognized by two
/// buffers of equal size and a batch counter. The engine does not update running statistics in a recomputation.
fn with_statistics(trace: &Trace, candidates: &[(ScopeId, String)]) -> BTreeSet<String> {
    if !trace.header.recorder.starts_with("PyTorch") {
        return BTreeSet::new();
    }
    let blocks = &trace.blocks;
    let mut buffers: BTreeMap<ScopeId, Vec<u64>> = BTreeMap::new();
    for block in blocks.ids().filter(|block| blocks.category[block.0 as usize] == Category::Buffer) {
        let row = block.0 as usize;
        buffers.entry(blocks.scope[row]).or_default().push(blocks.requested[row]);
    }
    let has_statistics = |sizes: &[u64]| {
        let is_pair = |size: &u64| *size != BATCHES_BYTES && sizes.iter().filter(|other| *other == size).count() == 2;
        sizes.contains(&BATCHES_BYTES) && sizes.iter().any(is_pair)
    };
    let norms = buffers.iter().filter(|(scope, sizes)| scope.is_some() && has_statistics(sizes));
    let norms: Vec<String> = norms.map(|(scope, _)| format!("{}.", trace.tables.scope_path(*scope))).collect();
    let paths = candidates.iter().map(|(_, path)| path);
    paths.filter(|path| norms.iter().any(|norm| norm.starts_with(&format!("{path}.")))).cloned().collect()
}

/// Returns whether the model is from transformers and fills its key-value cache.
fn fills_cache(trace: &Trace) -> bool {
    let mut files = trace.tables.lines.iter().map(|line| trace.tables.string(line.file));
    files.any(|file| file.replace('\\', "/").ends_with("transformers/cache_utils.py"))
}

fn forward_bytes(trace: &Trace, device: DeviceId, candidates: &[(ScopeId, String)]) -> (u64, HashMap<String, u64>) {
    let requested = |block: BlockId| trace.blocks.requested[block.0 as usize];
    let forward = trace.spans.rows().iter().filter(|span| span.phase == Phase::Forward);
    let rows = forward.flat_map(|span| span.first.0 as usize..span.end.0 as usize);
    let allocs = rows.filter(|row| trace.events.kind[*row] == EventKind::Alloc && trace.events.device[*row] == device);
    let total = allocs
        .filter_map(|row| match trace.subject(EventId::from_index(row)) {
            Subject::Block(block) => Some(requested(block)),
            _ => None,
        })
        .sum();
    let of = |scope: ScopeId| -> u64 {
        let members = Members::of(trace, |other| other == scope);
        calls(trace, device, &members).iter().flat_map(|call| &call.blocks).map(|block| requested(*block)).sum()
    };
    (total, candidates.iter().map(|(scope, path)| (path.clone(), of(*scope))).collect())
}

impl TrainingStep for Recorded {
    fn combinations(&self, _: &[Allowance], forbidden: &[Forbidden]) -> Vec<Vec<Change>> {
        let mut all = vec![Vec::new()];
        let can_fuse = self.can_fuse() && !forbidden.contains(&Forbidden::Fused);
        all.extend(can_fuse.then(|| vec![Change::Fused]));
        all
    }

    fn model(&self, changes: &[Change]) -> Result<Model, String> {
        let setup = Setup { changes: changes.to_vec(), recomputed: Some(Vec::new()), settings: None };
        let trace = self.edited(&setup).trace;
        let scopes: HashMap<String, ScopeId> = modules(&trace).into_iter().map(|(scope, path)| (path, scope)).collect();
        let cost = |path: &str| self.forward_bytes.1.get(path).copied().unwrap_or(0).max(1);
        let known = self.candidates.iter().filter_map(|(_, path)| Some((path.clone(), *scopes.get(path)?)));
        let known: Vec<(String, ScopeId)> = known.collect();
        // A module with running statistics ranks after all others, whatever these cost.
        let most: u64 = known.iter().map(|(path, _)| cost(path)).sum();
        let penalty = |path: &str| if self.updates.statistics.contains(path) { most } else { 0 };
        let penalties = known.iter().map(|(path, _)| penalty(path)).collect();
        let (modules, candidates): (Vec<String>, Vec<Candidate>) = known
            .into_iter()
            .map(|(path, scope)| {
                let cost = cost(&path) + penalty(&path);
                (path, Candidate { scope, cost })
            })
            .unzip();
        Ok(Model { modules, program: model(&trace, self.device, &candidates), penalties })
    }

    fn trial(&self, setup: &Setup, capacity: Option<u64>) -> Result<Trial, String> {
        let (_, Replay { trace, outcome, .. }) = self.replay(setup, capacity)?;
        let series = Series::build(&trace, self.device);
        let peak = |metric: Metric| series.peak(&trace, metric).0;
        Ok(Trial {
            fits: outcome.death.is_none(),
            requested: peak(Metric::Requested),
            allocated: peak(Metric::Allocated),
            reserved: peak(Metric::Reserved),
            retries: outcome.retries,
            estimated_ns: None,
            work: self.work(setup.recomputed.as_deref().unwrap_or_default()),
        })
    }

    fn recording(&self, setup: &Setup) -> Result<Trace, String> {
        Ok(self.replay(setup, None)?.1.trace)
    }

    fn changed(&self, setup: &Setup, capacity: Option<u64>) -> Result<Changed, String> {
        let (edited, replay) = self.replay(setup, capacity)?;
        let source = replay.source.into_iter().map(|event| edited.recorded(event)).collect();
        let failed = replay.outcome.death.map(|death| EventId::from_index(death.event as usize));
        let failure = failed.map(|event| edited.recorded(event));
        Ok(Changed { trace: replay.trace, source, failure })
    }

    fn code(&self, setup: &Setup) -> Result<Code, String> {
        let alloc_conf = self.replayer.settings();
        Ok(match record_words(&self.trace) {
            Some(_) => {
                let rule = "AdamW".to_owned();
                code::rust(setup, &RustProgram { rule, loss_is_mean: true, alloc_conf, ..RustProgram::default() })
            }
            None => code::python(setup, &alloc_conf, &self.updates),
        })
    }

    fn device(&self) -> DeviceId {
        self.device
    }

    fn proof(&self) -> Proof {
        Proof::Replayed
    }

    fn reach(&self) -> Reach {
        if self.trace.failed_requests().any(|(_, device)| !self.trace.is_host_memory(device)) {
            return Reach::FailedRequest;
        }
        // Reading a recording in memory cannot fail.
        let doubt = Doubt::of_replay(&Source::in_memory(&*self.trace), self.device).ok().flatten();
        doubt.map_or(Reach::End, |doubt| Reach::Recorded(doubt.text(&self.trace)))
    }

    fn warnings(&self, _: &Trial) -> Vec<String> {
        let mut all = warnings(&self.trace, self.device);
        let more = if record_words(&self.trace).is_some() { "" } else { NAME_MODULES };
        all.extend(self.candidates.is_empty().then(|| format!("{NO_MODULES}{more}.")));
        all
    }

    fn assumptions(&self, setup: &Setup) -> Vec<String> {
        let mut recomputed = setup.recomputed.iter().flatten().peekable();
        let cache = (self.updates.cache && recomputed.peek().is_some()).then(|| code::CACHE.to_owned());
        let updates_statistics = recomputed.any(|path| self.updates.statistics.contains(path));
        let statistics = updates_statistics.then(|| code::STATISTICS.to_owned());
        let of_allocator = self.trace.allocator(self.device).assumption().map(str::to_owned);
        let margin = (self.evidence() == Some(Evidence::Lifetimes)).then(|| {
            let is_python = self.trace.header.recorder.starts_with("PyTorch");
            let again = if is_python { AGAIN } else { "" };
            format!("{MARGIN}{again}")
        });
        statistics.into_iter().chain(cache).chain(of_allocator).chain(margin).collect()
    }

    fn has_settings(&self) -> bool {
        self.trace.allocator(self.device).has_settings()
    }

    fn share_of(&self, path: &str) -> Option<f64> {
        let work = |flops: u64| Work { flops, ..Work::default() };
        work(*self.forward_bytes.1.get(path)?).shares(self.work(&[]))[0]
    }

    fn is_quick(&self) -> bool {
        self.trace.events.len() <= MAX_QUICK_EVENTS
    }

    fn evidence(&self) -> Option<Evidence> {
        Some(Evidence::of(&self.trace, self.device))
    }
}
