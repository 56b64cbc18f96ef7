//! Determines where forward, backward, optimizer and zero_grad run, from the roles of call stacks in time order.
//!
//! Each device's events are walked once, in order. An event either determines the running phase, or belongs to the
//! phase before it. In order of precedence:
//!
//! 1. Recorded phases count: phase events, and the ranges that PyTorch itself marks as `Optimizer.step#…` and
//!    `Optimizer.zero_grad#…`.
//! 2. The stack of an allocation has a [`Role`]; inference counts as evaluation. So has the stack of a free, unless it
//!    repeats that of the allocation, as in PyTorch's snapshots without stacks of frees.
//! 3. An allocation without Python frames is backward, once forward has run, or if an optimizer runs next: autograd's
//!    threads run no Python. If C++ frames were recorded, they decide, and this rule is not used.
//! 4. A free without its own stack, after an optimizer and outside backward, of a block that backward allocated,
//!    is zero_grad.
//! 5. Other Python code ends backward, optimizer, zero_grad and evaluation, but not forward: a loss is computed outside
//!    modules. Scratch space, caches and buffers change nothing.
//! 6. If no backward follows, forward ends before other code that frees a graph (`SavedVariable`), loads data or moves
//!    a module; that frees in a row more than [`NOISE`] blocks of modules; or that allocates more than [`NOISE`] blocks
//!    before modules run again, of whose former blocks at most [`NOISE`] are left. Nor does it include frees by other
//!    code after its last allocation. What comes then, until the next evidence, is [`Phase::Other`].
//!
//! Noise is absorbed: a gap between two runs of backward belongs to backward if a hook of autograd's threads makes it,
//! or with at most [`NOISE`] allocations, and so does a stretch of forward of at most [`NOISE`] allocations; an equally
//! short stretch of backward between two of forward that is based only on rule 3 is forward. Optimizer and zero_grad
//! stretches from stacks or recorded phases are kept, however short.

pub use super::forward_tail::NOISE;
use super::forward_tail::{Code, Mark, Seen, Tail};
use super::recorded::{Recorded, says_phases};
use super::roles::{Role, Roles};
use highwater_snapshots::Phase;
use highwater_snapshots::event::EventKind;
use highwater_snapshots::ids::{BlockId, DeviceId, EventId, StackId};
use highwater_snapshots::trace::Trace;
use highwater_snapshots::yielding::tick;

/// A range of one device's events in which one phase runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// The phase. [`Phase::Setup`] before the first phase, [`Phase::Other`] if unknown.
    pub phase: Phase,
    /// The first event.
    pub first: EventId,
    /// One past the last event: the start of the next run. An optimizer that allocated no memory has an empty run.
    pub end: EventId,
    /// The last event that determined the phase.
    pub last_recorded: EventId,
    /// The last allocation in the run.
    pub last_alloc: EventId,
    /// The last event of the device in this run; [`EventId::NONE`] if only recorded phases determined the run.
    last_event: EventId,
    /// Number of allocations from which the phase was determined.
    allocs: u32,
    /// Whether the phase is derived from a recorded phase or a frame, rather than from the absence of frames.
    is_exact: bool,
    /// Whether the program's own thread allocates or frees in it.
    is_of_program: bool,
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
            is_of_program: false,
        }
    }

    /// Adds `later`, a run of the same phase.
    fn add(&mut self, later: &Self) {
        self.last_recorded = later.last_recorded;
        self.last_alloc = self.last_alloc.max(later.last_alloc);
        if later.last_event.is_some() {
            self.last_event = later.last_event;
        }
        self.allocs = self.allocs.saturating_add(later.allocs);
        self.is_exact |= later.is_exact;
    }

    /// One past the last event of the device in this run.
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
    /// The runs of every device, indexed by ordinal. O(events).
    pub fn of(trace: &Trace, roles: &Roles) -> Vec<Self> {
        let mut recorded = Recorded::of(trace);
        let is_guessed = !says_phases(trace);
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

    /// The ranges in which an inference engine measures the memory of its model, or captures CUDA graphs of it.
    pub(crate) fn prepared(&self) -> &[(Role, std::ops::Range<EventId>)] {
        &self.prepared
    }

    /// The runs of all phases of the device, in order.
    pub fn rows(&self) -> &[Run] {
        &self.rows
    }

    /// The index of the run that contains `event`.
    pub fn position(&self, event: EventId) -> Option<usize> {
        self.rows.partition_point(|run| run.first <= event).checked_sub(1)
    }

    /// Whether two events are in the same range of recomputation, without other work of backward in between.
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
    /// The first and the last of the segments reserved since the last other event, which the next allocation requested.
    obtained: Option<[EventId; 2]>,
    /// Whether phases are guessed.
    is_guessed: bool,
    tail: Tail,
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
            tail: Tail::default(),
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
        match self.runs.last_mut() {
            Some(run) if run.phase == phase => {
                run.last_recorded = event;
                run.is_exact |= is_exact;
            }
            _ => {
                if phase != Phase::Backward
                    && let Some(mark) = self.tail.last_frees()
                {
                    self.end_forward(mark);
                }
                self.tail = Tail::default();
                self.runs.push(Run::begun(phase, event, is_exact));
            }
        }
    }

    /// Records that forward, which runs, ended at `mark`.
    fn end_forward(&mut self, mark: Mark) {
        if let Some(run) = self.runs.last_mut() {
            (run.last_event, run.last_alloc) = (mark.last_event, mark.last_alloc);
        }
        self.runs.push(Run::begun(Phase::Other, mark.first, false));
    }

    /// Records that code outside backward, optimizer, zero_grad and evaluation runs at `event`.
    fn leave(&mut self, event: EventId) {
        if matches!(self.phase(), Phase::Backward | Phase::Optimizer | Phase::ZeroGrad | Phase::Eval) {
            self.enter(Phase::Other, event, false);
        }
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
            let first = obtained.filter(|_| kind == EventKind::Alloc).map_or(event, |[first, _]| first);
            self.take_of_block(trace, roles, event, first, recorded);
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

    /// Processes an allocation or a free; `first` is the first of the segments that are reserved for it, or `event`.
    fn take_of_block(&mut self, trace: &Trace, roles: &Roles, event: EventId, first: EventId, recorded: Option<Phase>) {
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
        let code = code_of(roles, role, stack, has_own_stack, is_alloc);
        if recorded.is_none() && self.is_guessed && self.phase() == Phase::Forward {
            let made_in_module = !is_alloc && roles.is_in_module(made_by);
            self.take_in_forward(trace, block, code, is_alloc, made_in_module, first);
        }
        if let Some(phase) = recorded {
            self.enter(phase, event, true);
        } else if has_own_stack {
            self.take_role(role, event, is_alloc, roles.bare_may_be_backward());
        } else if self.is_after_optimizer && self.phase() != Phase::Backward && self.is_of_backward(trace, role, block)
        {
            self.enter(Phase::ZeroGrad, event, false);
        }
        if is_alloc && let Some(run) = self.runs.last_mut() {
            run.last_alloc = event;
            run.allocs = run.allocs.saturating_add(1);
            if run.phase == Phase::Forward && code == Some(Code::Module) {
                self.tail.keep();
            }
        }
        if has_own_stack
            && self.is_guessed
            && let Some(run) = self.runs.last_mut()
        {
            run.is_of_program |= roles.is_of_program(stack);
        }
    }

    /// Ends forward if what `code` does with `block` shows that it has ended.
    fn take_in_forward(
        &mut self,
        trace: &Trace,
        block: BlockId,
        code: Option<Code>,
        is_alloc: bool,
        is_of_module: bool,
        first: EventId,
    ) {
        let (Some(code), Some(run)) = (code, self.runs.last()) else { return };
        let made = block.index().and_then(|row| trace.blocks.alloc.get(row)).copied().unwrap_or_default();
        let is_of_forward = is_of_module && made.is_some() && made >= run.first;
        let here = Mark { first, last_event: run.last_event, last_alloc: run.last_alloc };
        if let Some(mark) = self.tail.take(Seen { code, is_alloc, is_of_module, is_of_forward }, here) {
            self.end_forward(mark);
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
        if let Some(mark) = self.tail.last_frees() {
            self.end_forward(mark);
        }
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
        // The loss, which backward follows.
        if let [.., forward, between] = out.as_mut_slice()
            && (forward.phase, between.phase, run.phase) == (Phase::Forward, Phase::Other, Phase::Backward)
        {
            let between = *between;
            forward.add(&between);
            out.pop();
        }
        match out.last_mut() {
            Some(last) if last.phase == run.phase => last.add(&run),
            _ => out.push(run),
        }
    }
    out
}

/// The code that runs at an event while forward does; `None` if it may be a part of anything.
fn code_of(roles: &Roles, role: Role, stack: StackId, has_own_stack: bool, is_alloc: bool) -> Option<Code> {
    match role {
        _ if !has_own_stack => Some(Code::Unknown),
        Role::Bare if !is_alloc => Some(Code::Unknown),
        Role::Forward => Some(Code::Module),
        Role::Unknown | Role::Data | Role::ModelSetup | Role::Constructor if roles.is_in_module(stack) => {
            Some(Code::Module)
        }
        Role::Data | Role::ModelSetup => Some(Code::Foreign),
        Role::Unknown if !is_alloc && roles.releases_saved(stack) => Some(Code::Foreign),
        Role::Unknown | Role::Constructor => Some(Code::Other),
        _ => None,
    }
}

/// Whether `run`, between two runs of `around`, is noise.
fn is_noise(run: &Run, around: Phase) -> bool {
    match (run.phase, around) {
        (Phase::Other, Phase::Backward) => run.allocs <= NOISE || !run.is_of_program,
        (Phase::Forward, Phase::Backward) | (Phase::Backward, Phase::Forward) => !run.is_exact && run.allocs <= NOISE,
        _ => false,
    }
}

/// The runs of `device`, among those of every device.
pub(crate) fn runs_of(runs: &[Runs], device: DeviceId) -> Option<&Runs> {
    runs.get(usize::from(device.0))
}
