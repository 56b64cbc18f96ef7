//! Determines where forward, backward, optimizer and zero_grad run, from the roles of call stacks in order of time.
//!
//! Each device's events are walked once, in order. An event either determines the running phase, or belongs to the
//! phase before it. The rules, in order of precedence:
//!
//! 1. Recorded phases count: phase events, and the ranges that PyTorch itself marks as `Optimizer.step#…` and
//!    `Optimizer.zero_grad#…`.
//! 2. The stack of an allocation has a [`Role`]; inference counts as evaluation. So has the stack of a free, unless it
//!    repeats that of the allocation, as in PyTorch's snapshots without stacks of frees.
//! 3. An allocation without Python frames is backward, once forward has run, or if an optimizer runs next: autograd's
//!    threads run no Python. If C++ frames were recorded, they decide, and this rule is not used.
//! 4. A free without its own stack, after an optimizer and outside backward, of a block that backward allocated,
//!    is zero_grad.
//! 5. Other Python code ends every phase, and [`Phase::Other`] begins. A free without its own stack may end forward.
//!    Scratch space, caches and buffers change nothing.
//!
//! Code after forward belongs to it if backward comes next: a loss is computed outside modules. So does a pause, after
//! which modules run again or the recording ends: code that neither drops a graph (`SavedVariable`), loads data, moves
//! a module, nor frees more than [`NOISE`] blocks of modules; and allocates at most [`NOISE`] blocks, unless more
//! blocks of the modules before are live. Frees without their own stacks are a pause if no other code allocates next.
//!
//! Noise is absorbed: a gap between two runs of backward belongs to backward if a hook of autograd's threads causes it,
//! or with at most [`NOISE`] allocations, and so does a stretch of forward of at most [`NOISE`] allocations; an equally
//! short stretch of backward between two of forward that is based only on rule 3 is forward. Optimizer and zero_grad
//! stretches from stacks or recorded phases are kept, regardless of their length.

use super::recorded::{Recorded, has_recorded_phases};
use super::roles::{Role, Roles};
use highwater_snapshots::Phase;
use highwater_snapshots::event::EventKind;
use highwater_snapshots::ids::{BlockId, DeviceId, EventId};
use highwater_snapshots::trace::Trace;
use highwater_snapshots::yielding::tick;

/// Maximum number of allocations, or of frees, that count as noise.
pub const NOISE: u32 = 2;

/// A range of one device's events in which one phase runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The phase; [`Phase::Setup`] before the first phase, [`Phase::Other`] if unknown.
    pub phase: Phase,
    /// The first event.
    pub first: EventId,
    /// One past the last event, which is the start of the next run. The run of an optimizer that allocated nothing is
    /// empty.
    pub end: EventId,
    /// The last event that determined the phase.
    pub last_recorded: EventId,
    /// The last allocation in the run; `first` if there is none.
    pub last_alloc: EventId,
    /// The last event of the device in this run; [`EventId::NONE`] if only recorded phases determined the run.
    last_event: EventId,
    /// Number of allocations that determined the phase.
    allocs: u32,
    /// Whether the phase is derived from a recorded phase or a frame, rather than from the absence of frames.
    is_exact: bool,
    /// Number of frees of blocks that modules allocated.
    dropped: u32,
    /// Whether frees or allocations in the run have their own stacks.
    has_stacks: bool,
    /// Whether the program's own thread allocates or frees in the run.
    is_of_program: bool,
    /// Whether code runs in the run that never runs within forward.
    is_foreign: bool,
}

impl Run {
    fn begun(phase: Phase, first: EventId, is_exact: bool) -> Self {
        Self {
            phase,
            first,
            end: first,
            last_recorded: first,
            last_alloc: first,
            last_event: EventId::NONE,
            allocs: 0,
            is_exact,
            dropped: 0,
            has_stacks: false,
            is_of_program: false,
            is_foreign: false,
        }
    }

    /// Returns whether this may be part of the preceding forward, whose modules have `kept` live blocks. `is_last` is
    /// true if no other run follows.
    fn is_pause(&self, kept: u32, is_last: bool) -> bool {
        let is_drop = self.dropped > NOISE && (self.has_stacks || is_last);
        let frees_last = is_last && self.has_stacks && self.allocs == 0;
        !self.is_foreign && !is_drop && !frees_last && (self.allocs <= NOISE || kept > NOISE)
    }

    /// Adds `later`, a run of the same phase.
    fn add(&mut self, later: &Self) {
        self.last_recorded = later.last_recorded;
        if later.allocs > 0 {
            self.last_alloc = later.last_alloc;
        }
        if later.last_event.is_some() {
            self.last_event = later.last_event;
        }
        self.allocs = self.allocs.saturating_add(later.allocs);
        self.is_exact |= later.is_exact;
    }

    /// Returns one past the last event of the device in this run; `first` if there is none.
    pub(crate) fn own_end(&self) -> EventId {
        if self.last_event.is_some() { EventId(self.last_event.0 + 1) } else { self.first }
    }
}

/// The runs of one device, in order, without gaps.
#[derive(Clone, Debug, Default)]
pub struct Runs {
    rows: Vec<Run>,
    recomputed: Vec<std::ops::Range<EventId>>,
    /// The ranges in which an inference engine measures or captures its model, from the first allocation to the last.
    prepared: Vec<(Role, std::ops::Range<EventId>)>,
}

impl Runs {
    /// Returns the runs of each device up to the last one with allocations, indexed by ordinal. Takes time linear in
    /// the number of events.
    pub fn of(trace: &Trace, roles: &Roles) -> Vec<Self> {
        let mut recorded = Recorded::of(trace);
        let is_guessed = !has_recorded_phases(trace);
        let mut walkers: Vec<Walker> = Vec::new();
        for index in 0..trace.events.len() {
            tick();
            let id = EventId(index as u32);
            let device = usize::from(trace.events.device[index].0);
            if walkers.len() <= device && trace.events.kind[index] == EventKind::Alloc {
                walkers.resize_with(device + 1, || Walker { is_guessed, ..Walker::default() });
            }
            let (phase, passed) = recorded.at(id);
            if !passed.is_empty() || recorded.has_just_ended {
                for walker in &mut walkers {
                    passed.iter().for_each(|&phase| walker.enter(phase, id, true));
                    if phase.is_none() {
                        walker.leave(id);
                    }
                }
            }
            if let Some(walker) = walkers.get_mut(device) {
                walker.take(trace, roles, id, phase);
            }
        }
        let end = EventId::from_index(trace.events.len());
        let (_, passed) = recorded.at(end);
        for walker in &mut walkers {
            passed.iter().for_each(|&phase| walker.enter(phase, end, true));
        }
        walkers.into_iter().map(|walker| walker.finish(end)).collect()
    }

    /// The ranges in which an inference engine measures the memory of its model or captures CUDA graphs.
    pub(crate) fn prepared(&self) -> &[(Role, std::ops::Range<EventId>)] {
        &self.prepared
    }

    /// Returns the runs of all phases of the device, in order.
    pub fn rows(&self) -> &[Run] {
        &self.rows
    }

    /// Returns the index of the last run that begins at `event` or before; `None` if `event` is before all runs.
    pub fn position(&self, event: EventId) -> Option<usize> {
        self.rows.partition_point(|run| run.first <= event).checked_sub(1)
    }

    /// Returns whether two events are in the same range of recomputation, without other backward work in between.
    pub(crate) fn are_recomputed_together(&self, made: EventId, freed: EventId) -> bool {
        let after = self.recomputed.partition_point(|stretch| stretch.start <= made);
        after.checked_sub(1).is_some_and(|position| freed < self.recomputed[position].end)
    }
}

/// Walks one device's events.
#[derive(Debug)]
struct Walker {
    /// The runs; the last one is still open.
    runs: Vec<Run>,
    recomputed: Vec<std::ops::Range<EventId>>,
    is_recomputing: bool,
    prepared: Vec<(Role, std::ops::Range<EventId>)>,
    is_preparing: bool,
    /// The first of the allocations that count as backward if an optimizer follows.
    bare: Option<EventId>,
    /// Whether forward or backward has occurred.
    has_begun: bool,
    /// Whether an optimizer has run since the last forward.
    is_after_optimizer: bool,
    /// The first and the last of the segments reserved since the last other event. The next allocation requested them.
    obtained: Option<[EventId; 2]>,
    /// Whether phases are guessed.
    is_guessed: bool,
    /// The first event of the latest forward, and the number of live blocks that its modules allocated.
    forward: (EventId, u32),
}

impl Default for Walker {
    fn default() -> Self {
        let first = EventId(0);
        let setup = Run::begun(Phase::Setup, first, false);
        Self {
            runs: vec![setup],
            recomputed: Vec::new(),
            is_recomputing: false,
            prepared: Vec::new(),
            is_preparing: false,
            bare: None,
            has_begun: false,
            is_after_optimizer: false,
            obtained: None,
            is_guessed: true,
            forward: (first, 0),
        }
    }
}

impl Walker {
    fn phase(&self) -> Phase {
        self.runs.last().map_or(Phase::Setup, |run| run.phase)
    }

    /// Records that `phase` runs at `event`.
    fn enter(&mut self, phase: Phase, event: EventId, is_exact: bool) {
        if let Some(bare) = self.bare.take()
            && matches!(phase, Phase::Optimizer | Phase::ZeroGrad)
        {
            self.enter(Phase::Backward, bare, false);
        }
        self.has_begun |= matches!(phase, Phase::Forward | Phase::Backward);
        match phase {
            Phase::Optimizer => self.is_after_optimizer = true,
            Phase::Forward => self.is_after_optimizer = false,
            _ => {}
        }
        self.end_pause(Some(phase));
        match self.runs.last_mut() {
            Some(run) if run.phase == phase => {
                run.last_recorded = event;
                run.is_exact |= is_exact;
            }
            _ => {
                if phase == Phase::Forward {
                    self.forward = (event, 0);
                }
                self.runs.push(Run::begun(phase, event, is_exact));
            }
        }
    }

    /// Adds a pause after forward to the forward run if it belongs to it. `next` is the next phase.
    fn end_pause(&mut self, next: Option<Phase>) {
        if let [.., forward, pause] = self.runs.as_mut_slice()
            && (forward.phase, pause.phase) == (Phase::Forward, Phase::Other)
            && (next == Some(Phase::Backward) || pause.is_pause(self.forward.1, next != Some(Phase::Forward)))
        {
            let pause = *pause;
            forward.add(&pause);
            self.runs.pop();
        }
    }

    /// Records that code outside of all phases runs at `event`.
    fn leave(&mut self, event: EventId) {
        // A few frees without their own stacks belong to the modules before.
        if self.runs.last().is_some_and(|run| !run.has_stacks && run.dropped <= NOISE) {
            self.end_pause(Some(Phase::Forward));
        }
        if !matches!(self.phase(), Phase::Setup | Phase::Other) && (self.is_guessed || self.phase() != Phase::Forward) {
            self.bare = None;
            self.runs.push(Run::begun(Phase::Other, event, false));
        }
    }

    /// Returns whether modules run, or may run again after a pause.
    fn is_in_forward(&self) -> bool {
        let before = self.runs.iter().rev().map(|run| run.phase).find(|phase| *phase != Phase::Other);
        before == Some(Phase::Forward)
    }

    /// Processes the next event of the device.
    fn take(&mut self, trace: &Trace, roles: &Roles, event: EventId, recorded: Option<Phase>) {
        let kind = trace.events.kind[event.0 as usize];
        if matches!(kind, EventKind::SegmentAlloc | EventKind::SegmentMap) {
            self.obtained = Some([self.obtained.map_or(event, |[first, _]| first), event]);
            return;
        }
        let obtained = self.obtained.take();
        if matches!(kind, EventKind::Alloc | EventKind::FreeRequested) {
            self.take_of_block(trace, roles, event, recorded);
        }
        let Some(run) = self.runs.last_mut() else { return };
        if let Some([first, last]) = obtained {
            match kind == EventKind::Alloc && run.first == event {
                true => run.first = first,
                false => run.last_event = last,
            }
        }
        if !matches!(kind, EventKind::Step | EventKind::Phase | EventKind::DeviceUsed) {
            run.last_event = event;
        }
    }

    fn take_of_block(&mut self, trace: &Trace, roles: &Roles, event: EventId, recorded: Option<Phase>) {
        let row = event.0 as usize;
        let kind = trace.events.kind[row];
        let stack = trace.events.stack[row];
        let block = BlockId(trace.events.subject[row]);
        let made_by = block.index().and_then(|row| trace.blocks.stack.get(row)).copied().unwrap_or_default();
        let is_alloc = kind == EventKind::Alloc;
        let has_own_stack = is_alloc || (stack.is_some() && stack != made_by);
        let role = roles.role(if has_own_stack { stack } else { made_by });
        if is_alloc {
            self.note_recomputing(role, event);
            self.note_preparing(role, event);
        }
        if let Some(phase) = recorded {
            self.enter(phase, event, true);
        } else if has_own_stack && role.is_of_any_phase() && roles.is_in_module(stack) && self.is_in_forward() {
            self.enter(Phase::Forward, event, false);
        } else if has_own_stack {
            self.take_role(role, event, is_alloc, roles.bare_may_be_backward());
        } else if self.is_after_optimizer && self.phase() != Phase::Backward && self.is_of_backward(trace, role, block)
        {
            self.enter(Phase::ZeroGrad, event, false);
        } else if self.phase() == Phase::Forward {
            self.leave(event);
        }
        let is_of_module = roles.is_in_module(made_by);
        let made = block.index().and_then(|row| trace.blocks.alloc.get(row)).copied().unwrap_or_default();
        let Some(run) = self.runs.last_mut() else { return };
        if is_alloc {
            run.last_alloc = event;
            run.allocs = run.allocs.saturating_add(1);
            self.forward.1 += u32::from(run.phase == Phase::Forward && is_of_module);
        } else if is_of_module {
            run.dropped = run.dropped.saturating_add(1);
            let is_of_forward = made.is_some() && made >= self.forward.0;
            self.forward.1 = self.forward.1.saturating_sub(u32::from(is_of_forward));
        }
        if has_own_stack {
            run.has_stacks = true;
            run.is_of_program |= self.is_guessed && roles.is_of_program(stack);
            run.is_foreign |= matches!(role, Role::Data | Role::ModelSetup) || roles.releases_saved(stack);
        }
    }

    fn take_role(&mut self, role: Role, event: EventId, is_alloc: bool, bare_may_be_backward: bool) {
        match role {
            Role::Optimizer | Role::OptimizerState => self.enter(Phase::Optimizer, event, true),
            Role::ZeroGrad => self.enter(Phase::ZeroGrad, event, true),
            Role::Backward | Role::Recompute => self.enter(Phase::Backward, event, true),
            Role::Forward => self.enter(Phase::Forward, event, false),
            Role::Inference | Role::ProfilingRun | Role::GraphCapture => self.enter(Phase::Eval, event, true),
            Role::Bare if !is_alloc || !bare_may_be_backward => {}
            Role::Bare if self.has_begun => self.enter(Phase::Backward, event, false),
            Role::Bare => self.bare = self.bare.or(Some(event)),
            Role::Unknown | Role::Data | Role::ModelSetup | Role::Constructor => self.leave(event),
            Role::Buffer | Role::Cache | Role::OptimizerInit | Role::Workspace => {}
        }
    }

    /// Whether `block`, whose stack has `role`, was allocated while backward ran.
    fn is_of_backward(&self, trace: &Trace, role: Role, block: BlockId) -> bool {
        let made = block.index().and_then(|row| trace.blocks.alloc.get(row)).copied().unwrap_or_default();
        if !matches!(role, Role::Backward | Role::Bare) || !made.is_some() {
            return false;
        }
        let after = self.runs.partition_point(|run| run.first <= made);
        after.checked_sub(1).is_some_and(|position| self.runs[position].phase == Phase::Backward)
    }

    fn note_recomputing(&mut self, role: Role, event: EventId) {
        let is_recomputing = role == Role::Recompute;
        match self.recomputed.last_mut() {
            Some(stretch) if self.is_recomputing => stretch.end = event,
            _ => {}
        }
        if is_recomputing && !self.is_recomputing {
            self.recomputed.push(event..event);
        }
        self.is_recomputing = is_recomputing;
    }

    fn note_preparing(&mut self, role: Role, event: EventId) {
        let end = EventId(event.0 + 1);
        match (role, self.prepared.last_mut()) {
            (Role::ProfilingRun | Role::GraphCapture, Some((known, stretch)))
                if *known == role && self.is_preparing =>
            {
                stretch.end = end;
            }
            (Role::ProfilingRun | Role::GraphCapture, _) => self.prepared.push((role, event..end)),
            // These say nothing of who runs the model.
            (Role::Bare | Role::Workspace | Role::Cache | Role::Buffer, _) => return,
            _ => {}
        }
        self.is_preparing = matches!(role, Role::ProfilingRun | Role::GraphCapture);
    }

    fn finish(mut self, end: EventId) -> Runs {
        if let Some(stretch) = self.recomputed.last_mut()
            && self.is_recomputing
        {
            stretch.end = end;
        }
        if let (Some(run), Some([_, last])) = (self.runs.last_mut(), self.obtained) {
            run.last_event = last;
        }
        self.end_pause(None);
        let mut rows = absorb(self.runs);
        let firsts: Vec<EventId> = rows.iter().skip(1).map(|run| run.first).chain([end]).collect();
        rows.iter_mut().zip(firsts).for_each(|(run, next)| run.end = next);
        Runs { rows, recomputed: self.recomputed, prepared: self.prepared }
    }
}

/// Merges runs that are separated by noise.
fn absorb(runs: Vec<Run>) -> Vec<Run> {
    let mut out: Vec<Run> = Vec::with_capacity(runs.len());
    for run in runs {
        if let [.., before, between] = out.as_slice()
            && before.phase == run.phase
            && is_noise(between, run.phase)
        {
            out.pop();
        }
        match out.last_mut() {
            Some(last) if last.phase == run.phase => last.add(&run),
            _ => out.push(run),
        }
    }
    out
}

/// Whether `run`, between two runs of `around`, is noise.
fn is_noise(run: &Run, around: Phase) -> bool {
    match (run.phase, around) {
        (Phase::Other, Phase::Backward) => run.allocs <= NOISE || !run.is_of_program,
        (Phase::Forward, Phase::Backward) | (Phase::Backward, Phase::Forward) => !run.is_exact && run.allocs <= NOISE,
        _ => false,
    }
}

/// Returns the runs of `device`, if it has any. `runs` contains those of all devices.
pub(crate) fn runs_of(runs: &[Runs], device: DeviceId) -> Option<&Runs> {
    runs.get(usize::from(device.0))
}
