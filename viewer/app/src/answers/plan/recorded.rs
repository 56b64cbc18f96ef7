//! Recorded training steps: changes are made to the recording, which is then replayed through the allocator.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::Arc;

use highwater_analysis::plan::{Candidate, candidates_of, model};
use highwater_analysis::recompute::{Members, apply, calls, effects, modules};
use highwater_analysis::{Metric, Series};
use highwater_snapshots::event::EventKind;
use highwater_snapshots::scope_pattern::ScopePattern;
use highwater_snapshots::trace::Subject;
use highwater_snapshots::{BlockId, Category, DeviceId, EventId, Phase, ScopeId, Trace};

use super::change::{Allowance, Change, Forbidden};
use super::step::{Model, Setup, TrainingStep, Trial, Work};
use crate::answers::replays::Replayer;

/// A recording of a training step on one device.
pub struct Recorded {
    trace: Arc<Trace>,
    device: DeviceId,
    replayer: Replayer,
    candidates: Vec<(ScopeId, String)>,
    /// The bytes that forward allocates, of all and of each candidate: the estimate of their work.
    forward_bytes: (u64, HashMap<String, u64>),
    has_temporaries: bool,
    /// The last changed recording.
    last: RefCell<Option<(Setup, Arc<Trace>)>>,
}

impl Recorded {
    /// Prepares `device` of `trace`, whose modules that match `patterns` may be recomputed, or else its blocks.
    ///
    /// # Errors
    ///
    /// Returns the pattern that matches no module, or why the device cannot be replayed.
    pub fn new(trace: Trace, device: DeviceId, patterns: &[ScopePattern]) -> Result<Self, String> {
        let replayer = Replayer::of(&trace, device)?;
        let candidates = candidates_of(&trace, patterns)?;
        let forward_bytes = forward_bytes(&trace, device, &candidates);
        let has_temporaries = trace.blocks.ids().any(|block| is_temporary_of_optimizer(&trace, device, block));
        Ok(Self {
            trace: Arc::new(trace),
            device,
            replayer,
            candidates,
            forward_bytes,
            has_temporaries,
            last: RefCell::default(),
        })
    }

    /// Returns the settings of the recorded allocator.
    pub fn settings(&self) -> String {
        self.replayer.settings()
    }

    /// Returns whether there are modules that can be recomputed.
    pub fn has_modules(&self) -> bool {
        !self.candidates.is_empty()
    }

    /// Returns whether there are temporaries that a fused optimizer does not have.
    pub fn can_fuse(&self) -> bool {
        self.has_temporaries
    }

    /// Returns the recording with the changes of `setup`, apart from the allocator's settings.
    fn changed(&self, setup: &Setup) -> Result<Arc<Trace>, String> {
        let wanted = Setup { settings: None, ..setup.clone() };
        if let Some((_, trace)) = self.last.borrow().as_ref().filter(|(known, _)| *known == wanted) {
            return Ok(Arc::clone(trace));
        }
        let mut trace = Arc::clone(&self.trace);
        if setup.changes.contains(&Change::Fused) {
            let is_removed = |block: BlockId| is_temporary_of_optimizer(&trace, self.device, block);
            let removed: Vec<bool> = trace.blocks.ids().map(is_removed).collect();
            trace = Arc::new(self.replayer.without(&trace, &removed));
        }
        let chosen = setup.recomputed.as_deref().unwrap_or_default();
        if !chosen.is_empty() {
            let paths: HashMap<String, ScopeId> =
                modules(&trace).into_iter().map(|(scope, path)| (path, scope)).collect();
            let scopes: Vec<ScopeId> = chosen.iter().filter_map(|path| paths.get(path).copied()).collect();
            let members = Members::of(&trace, |scope| scopes.contains(&scope));
            let found = effects(&trace, self.device, &members);
            trace = Arc::new(apply(&trace, self.device, &found).trace);
        }
        self.last.replace(Some((wanted, Arc::clone(&trace))));
        Ok(trace)
    }
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
        let trace = self.changed(&setup)?;
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
        let trace = self.changed(setup)?;
        let (fits, replayed) = self.replayer.replay(&trace, setup.settings.as_deref(), capacity)?;
        let series = Series::build(&replayed, self.device);
        let peak = |metric: Metric| series.peak(&replayed, metric).0;
        let (forward, of_modules) = &self.forward_bytes;
        let more = setup.recomputed.iter().flatten().filter_map(|path| of_modules.get(path)).sum::<u64>();
        // Backward does about twice the work of forward.
        let work = Work { flops: forward.saturating_mul(3).saturating_add(more), ..Work::default() };
        Ok(Trial {
            fits,
            requested: peak(Metric::Requested),
            allocated: peak(Metric::Allocated),
            reserved: peak(Metric::Reserved),
            retries: 0,
            work,
            estimated_ns: None,
        })
    }

    fn recording(&self, setup: &Setup) -> Result<Trace, String> {
        let trace = self.changed(setup)?;
        Ok(self.replayer.replay(&trace, setup.settings.as_deref(), None)?.1)
    }
}
