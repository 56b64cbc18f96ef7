//! Recorded training steps: changes are made to the recording, which is then replayed through the allocator.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use highwater_analysis::plan::{Candidate, candidates_of, model};
use highwater_analysis::recompute::{Evidence, Members, calls, effects, modules};
use highwater_analysis::{Metric, Series};
use highwater_snapshots::event::EventKind;
use highwater_snapshots::scope_pattern::ScopePattern;
use highwater_snapshots::trace::Subject;
use highwater_snapshots::{BlockId, Category, DeviceId, EventId, Phase, ScopeId, Trace};

use super::change::{Allowance, Change, Forbidden};
use super::code::{self, RustProgram};
use super::step::{Model, Setup, TrainingStep, Trial, Work};
use crate::answers::replays::{Edited, Replayer};

/// Maximum number of events of which a replay is quick.
const MOST_QUICK_EVENTS: usize = 500_000;

/// A recording of a training step on one device.
#[derive(Clone)]
pub struct Recorded {
    trace: Arc<Trace>,
    device: DeviceId,
    replayer: Replayer,
    candidates: Vec<(ScopeId, String)>,
    /// The bytes that forward allocates, of all and of each candidate: the estimate of their work.
    forward_bytes: (u64, HashMap<String, u64>),
    has_temporaries: bool,
    /// The last changed recording, before its replay.
    last: RefCell<Option<(Setup, Edited)>>,
}

/// A changed recording, replayed.
#[derive(Debug)]
pub struct Changed {
    /// The replayed recording, up to its end.
    pub trace: Trace,
    /// The recorded event that each of its events comes from; non-decreasing.
    pub source: Vec<EventId>,
    /// The recorded event of the request that fails, at which the replay ends; `None` if every request succeeds.
    pub failure: Option<EventId>,
}

impl Recorded {
    /// Prepares `device` of `trace`, whose modules that match `patterns` may be recomputed, or else its blocks.
    ///
    /// # Errors
    ///
    /// Returns the pattern that matches no module, or why the device cannot be replayed.
    pub fn new(trace: Arc<Trace>, device: DeviceId, patterns: &[ScopePattern]) -> Result<Self, String> {
        let replayer = Replayer::of(&trace, device)?;
        let candidates = candidates_of(&trace, patterns)?;
        let forward_bytes = forward_bytes(&trace, device, &candidates);
        let has_temporaries = trace.blocks.ids().any(|block| is_temporary_of_optimizer(&trace, device, block));
        Ok(Self { trace, device, replayer, candidates, forward_bytes, has_temporaries, last: RefCell::default() })
    }

    /// Returns the device.
    pub fn device(&self) -> DeviceId {
        self.device
    }

    /// Returns whether there are modules that can be recomputed.
    pub fn has_modules(&self) -> bool {
        !self.candidates.is_empty()
    }

    /// Returns whether there are temporaries that a fused optimizer does not have.
    pub fn can_fuse(&self) -> bool {
        self.has_temporaries
    }

    /// Returns the lines to paste that apply `setup`: in Rust for a step of `highwater record`, else in Python.
    pub fn code(&self, setup: &Setup) -> Vec<String> {
        match record_words(&self.trace) {
            Some(_) => {
                let rule = "AdamW".to_owned();
                let alloc_conf = self.replayer.settings();
                code::rust(setup, &RustProgram { rule, loss_is_mean: true, alloc_conf, ..RustProgram::default() })
            }
            None => code::python(setup, &self.replayer.settings()),
        }
    }

    /// Returns the additional share of the step's FLOPs if the module `path` is recomputed, estimated.
    pub fn share_of(&self, path: &str) -> Option<f64> {
        let work = |flops: u64| Work { flops, ..Work::default() };
        work(*self.forward_bytes.1.get(path)?).shares(self.work(&[]))[0]
    }

    /// Returns the work of a step in which the modules `recomputed` are.
    fn work(&self, recomputed: &[String]) -> Work {
        let (forward, of_modules) = &self.forward_bytes;
        let more = recomputed.iter().filter_map(|path| of_modules.get(path)).sum::<u64>();
        // Backward does about twice the work of forward.
        Work { flops: forward.saturating_mul(3).saturating_add(more), ..Work::default() }
    }

    /// Replays the recording with `setup`, on a device of `capacity` bytes or on one that is large enough.
    ///
    /// # Errors
    ///
    /// Returns what is wrong with the settings.
    pub fn changed(&self, setup: &Setup, capacity: Option<u64>) -> Result<Changed, String> {
        let edited = self.edited(setup);
        let replay = self.replayer.replay(&edited, setup.settings.as_deref(), capacity)?;
        let source = replay.source.into_iter().map(|event| edited.recorded(event)).collect();
        let failure = replay.death.map(|death| edited.recorded(death.event));
        Ok(Changed { trace: replay.trace, source, failure })
    }

    /// Returns the recording with the changes of `setup`, apart from the allocator's settings.
    fn edited(&self, setup: &Setup) -> Edited {
        let wanted = Setup { settings: None, ..setup.clone() };
        if let Some((_, edited)) = self.last.borrow().as_ref().filter(|(known, _)| *known == wanted) {
            return edited.clone();
        }
        let mut edited = self.replayer.unchanged(Arc::clone(&self.trace));
        if setup.changes.contains(&Change::Fused) {
            let trace = &edited.trace;
            let is_removed = |block: BlockId| is_temporary_of_optimizer(trace, self.device, block);
            let removed: Vec<bool> = trace.blocks.ids().map(is_removed).collect();
            edited = self.replayer.without(&edited, &removed);
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

/// Returns the words that follow the program's name in the command line that made `trace`; `None` unless it is a recording
/// of `highwater record`, whose step can be run again.
pub fn record_words(trace: &Trace) -> Option<Vec<&str>> {
    let mut words = trace.header.program.split_whitespace();
    let binary = words.next()?.rsplit(['/', '\\']).next()?;
    let words: Vec<&str> = words.collect();
    (binary.trim_end_matches(".exe") == "highwater" && words.contains(&"record")).then_some(words)
}

/// Returns whether `block` is a temporary of the optimizer step, which a fused optimizer does not have.
fn is_temporary_of_optimizer(trace: &Trace, device: DeviceId, block: BlockId) -> bool {
    let row = block.0 as usize;
    let alloc = trace.blocks.alloc[row];
    trace.blocks.device[row] == device
        && trace.blocks.category[row] == Category::Temporary
        && alloc.is_some()
        && trace.spans.at(alloc).is_some_and(|span| span.phase == Phase::Optimizer)
}

/// Returns the bytes that forward allocates in a recording, and those of each candidate.
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
        let can_fuse = self.has_temporaries && !forbidden.contains(&Forbidden::Fused);
        all.extend(can_fuse.then(|| vec![Change::Fused]));
        all
    }

    fn model(&self, changes: &[Change]) -> Result<Model, String> {
        let setup = Setup { changes: changes.to_vec(), recomputed: Some(Vec::new()), settings: None };
        let trace = self.edited(&setup).trace;
        let scopes: HashMap<String, ScopeId> = modules(&trace).into_iter().map(|(scope, path)| (path, scope)).collect();
        let cost = |path: &str| self.forward_bytes.1.get(path).copied().unwrap_or(0).max(1);
        let known = self.candidates.iter().filter_map(|(_, path)| Some((path.clone(), *scopes.get(path)?)));
        let (modules, candidates): (Vec<String>, Vec<Candidate>) = known
            .map(|(path, scope)| {
                let cost = cost(&path);
                (path, Candidate { scope, cost })
            })
            .unzip();
        Ok(Model { modules, program: model(&trace, self.device, &candidates) })
    }

    fn trial(&self, setup: &Setup, capacity: Option<u64>) -> Result<Trial, String> {
        let Changed { trace, failure, .. } = self.changed(setup, capacity)?;
        let series = Series::build(&trace, self.device);
        let peak = |metric: Metric| series.peak(&trace, metric).0;
        Ok(Trial {
            fits: failure.is_none(),
            requested: peak(Metric::Requested),
            allocated: peak(Metric::Allocated),
            reserved: peak(Metric::Reserved),
            retries: 0,
            estimated_ns: None,
            work: self.work(setup.recomputed.as_deref().unwrap_or_default()),
        })
    }

    fn recording(&self, setup: &Setup) -> Result<Trace, String> {
        Ok(self.changed(setup, None)?.trace)
    }

    fn is_quick(&self) -> bool {
        self.trace.events.len() <= MOST_QUICK_EVENTS
    }

    fn evidence(&self) -> Option<Evidence> {
        Some(Evidence::of(&self.trace, self.device))
    }
}
