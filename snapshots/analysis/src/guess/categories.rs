//! Categories: what each block is for, guessed from the role of its stack, its phases and its end, by the rules that
//! [`RULES`] states.
//!
//! The reasons, rule by rule. *Run* is a stretch of one phase on the block's device (see
//! [`phases`](super::phases)); a block is *kept* if it is alive when the recording ends.
//!
//! - **workspace**: kernel libraries take scratch space through few functions, which C++ frames name.
//! - **optimizer**: what an optimizer allocates and lets go of within its step is a temporary; what outlives the step
//!   is there for the next one. If the recording stops within that very step, only what is made where optimizers make
//!   their state is told apart; the rest stays unknown.
//! - **model set-up**: modules allocate parameters and buffers when they are built, moved or loaded, and let go of the
//!   copies between. Both look alike, so that a buffer counts as a parameter unless a frame says `register_buffer` or
//!   `reset_running_stats`. A constructor of the program's own may build anything: what it keeps is a parameter only if
//!   a gradient or a block of optimizer state on the device has its size.
//! - **caches**: keys and values of attention are allocated by functions that say so: vLLM's, SGLang's, transformers'.
//!   They are buffers, but for those that backward waits for.
//! - **backward**: what outlives backward is there for the optimizer; everything else dies when the next node has used
//!   it. Three cases cannot be told by the end alone: blocks freed after backward's last allocation where no optimizer
//!   is seen; blocks freed while optimizers run within backward; and blocks kept by a recording that stops before an
//!   optimizer. There a block is a gradient if it has the size of a parameter.
//! - **computed again**: what an activation checkpoint computes again is an activation if it outlives that stretch
//!   of computing, for then backward waits for it.
//! - **saved tensors**: where C++ frames of frees were recorded, autograd's own functions free the tensors that an
//!   operation saved for backward (`SavedVariable::reset_data`, `release_variables`), after backward used them or with
//!   a graph that is dropped without one. What forward code made and these free is an activation, however short its
//!   life. Parameters, gradients and inputs that autograd held last keep the category of what made them.
//! - **forward**: what outlives forward is a result that backward waits for, or that the program holds, such as
//!   logits. A kept result is an activation only in the recording's last forward: what is kept longer may be a cache,
//!   or a leak, and stays unknown.
//! - **input**: what data loaders make, and what other Python code makes between the end of a step and the next
//!   forward, if it is still there in forward. What such code makes and keeps is an input only before the last
//!   forward, and not before the first step, where all sorts of things are made.
//! - **baseline**: a stack is known of some blocks alive at the end; the rest stays unknown: there is nothing to
//!   go by.
//!
//! A life may be cut short, so that its end says nothing: by the end of the recording; by a failed request, whose
//! exception unwinds the program and frees what calls held; by another exception, which shows as a last forward without
//! backward that frees after its last allocation. Such a block gets the category that most blocks of its call stack and
//! size have whose lives were not cut short, or that all of its call stack have; else that of a block that is kept. So one line of a model gives one
//! category, in the step that failed, too.

use std::collections::{HashMap, HashSet};

use super::phases::{Run, Runs, runs_of};
use super::roles::{Role, Roles};
use highwater_snapshots::event::EventKind;
use highwater_snapshots::ids::{BlockId, DeviceId, EventId, StackId};
use highwater_snapshots::trace::{Block, Trace};
use highwater_snapshots::{Category, Phase};

/// The built-in rules in short, first match first; for help and documents.
pub const RULES: &str = "\
category         made by                      and
workspace        cuBLAS or cuDNN, as scratch
temporary        an optimizer                 freed in the same run of it
optimizer_state  an optimizer                 freed later, or never
temporary        set-up of a module           freed before anything else runs
buffer           register_buffer and the like freed later, or never
parameter        set-up of a module           freed later, or never
activation       forward, first or once more  freed from autograd's saved tensors
buffer           code of a KV cache           not kept for backward
parameter        a program's own constructor  never freed; as large as a gradient or state
temporary        backward                     freed in the same run of it
gradient         backward                     freed later, or never
temporary        a checkpoint, once more      freed while it computes
activation       a checkpoint, once more      freed later in backward
temporary        forward                      freed in the same run of it
activation       forward                      freed later, or never (last run)
input            a data loader
input            other code between steps     freed in forward or later
activation       other code                   freed from autograd's saved tensors
unknown          anything else
Blocks whose life is cut short by an out-of-memory error, another exception or the end of
the recording count as others from the same call stack do, else as never freed.
";

/// Guesses the categories of a trace's blocks.
pub struct Guesser<'a> {
    trace: &'a Trace,
    roles: &'a Roles,
    runs: &'a [Runs],
    /// The sizes of what may be parameters, by device.
    parameter_sizes: HashSet<(DeviceId, u64)>,
    /// For each device, facts of its runs.
    outlines: Vec<Outline>,
    /// The failed requests on any device: an exception unwinds the whole program.
    failures: Vec<EventId>,
}

/// A category, and what it rests on.
#[derive(Clone, Copy, Debug)]
struct Guess {
    category: Category,
    life: Life,
}

/// Blocks by category.
type Counts = [u32; Category::ALL.len()];

/// The category of most; of several, `preferred`, else the first.
fn most(counts: &Counts, preferred: Category) -> Option<Category> {
    let rank = |code: &usize| (counts[*code], *code == preferred as usize, std::cmp::Reverse(*code));
    (0..counts.len()).max_by_key(rank).and_then(|code| Category::from_code(code as u8))
}

/// The category of all.
fn only(counts: &Counts) -> Option<Category> {
    let mut codes = (0..counts.len()).filter(|code| counts[*code] > 0);
    let first = codes.next()?;
    Category::from_code(first as u8).filter(|_| codes.next().is_none())
}

/// How much of a block's life a recording shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    /// Enough to tell its category: from its beginning to its end, or beyond its step.
    Whole,
    /// It was cut short.
    CutShort,
    /// It began before the recording, or between steps, and did not end.
    Unknown,
}

/// What is asked of a device's runs again and again.
#[derive(Clone, Debug, Default)]
struct Outline {
    /// For each run, whether an optimizer runs later.
    is_before_update: Vec<bool>,
    /// For each run, whether forward runs later.
    is_before_forward: Vec<bool>,
    /// For each run, the position of the next forward, if only gaps lie between.
    next_forward: Vec<Option<usize>>,
    /// For each run, whether between the forwards around it an optimizer runs with more backward after.
    is_fused: Vec<bool>,
    /// For each run, whether it is the last of forward and backward, and so forward's if it is forward.
    is_last: Vec<bool>,
}

/// Where a block was let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Freed {
    /// In the run in which it was made.
    InRun,
    /// In the later run at this position.
    Later(usize),
    /// It is kept.
    Never,
    /// In the run in which it was made, by an exception.
    Unwound,
}

impl<'a> Guesser<'a> {
    /// Gets ready for `trace`: O(events + blocks).
    pub fn new(trace: &'a Trace, roles: &'a Roles, runs: &'a [Runs]) -> Self {
        let outlines = runs.iter().map(|runs| Outline::of(runs.rows())).collect();
        let kinds = trace.events.kind.iter().enumerate();
        let failures = kinds.filter(|(_, kind)| **kind == EventKind::Oom).map(|(row, _)| EventId(row as u32)).collect();
        let mut guesser = Self { trace, roles, runs, parameter_sizes: HashSet::new(), outlines, failures };
        for id in trace.blocks.ids() {
            let block = trace.blocks.get(id);
            let is_kept = !block.free_requested.is_some();
            let may_be = match trace.blocks.category.get(id.0 as usize) {
                Some(Category::Unknown) if block.is_baseline() && !block.stack.is_some() => is_kept,
                Some(Category::Unknown) if roles.role(block.stack) == Role::Constructor => is_kept,
                Some(Category::Unknown) => {
                    roles.role(block.stack) == Role::ModelSetup && guesser.of_setup(&block) == Category::Parameter
                }
                category => category == Some(&Category::Parameter),
            };
            if may_be {
                guesser.parameter_sizes.insert((block.device, block.requested));
            }
        }
        guesser
    }

    /// The category of each block, by its row; [`Category::Unknown`] where nothing speaks for another. O(blocks).
    pub fn categories(&self) -> Vec<Category> {
        let mut guesses: Vec<Guess> = self.trace.blocks.ids().map(|id| self.guess(id)).collect();
        self.settle_interrupted(&mut guesses);
        self.settle_collected(&mut guesses);
        self.settle_constructed(&mut guesses);
        guesses.into_iter().map(|guess| guess.category).collect()
    }

    /// Gives blocks whose lives were cut short the category that most others of their call stack and size have, or that
    /// all others of their call stack have, unless that is temporary.
    fn settle_interrupted(&self, guesses: &mut [Guess]) {
        // Stacks of backward say which kernel runs, not for which line of the program; set-up runs once.
        let tells = |stack: StackId| {
            matches!(self.roles.role(stack), Role::Forward | Role::Recompute | Role::Unknown | Role::Optimizer)
        };
        let blocks = &self.trace.blocks;
        let mut by_size: HashMap<(StackId, u64), Counts> = HashMap::new();
        let mut by_stack: HashMap<StackId, Counts> = HashMap::new();
        for (row, guess) in guesses.iter().enumerate() {
            let (stack, size) = (blocks.stack[row], blocks.requested[row]);
            if guess.life == Life::Whole && tells(stack) {
                by_size.entry((stack, size)).or_default()[guess.category as usize] += 1;
                by_stack.entry(stack).or_default()[guess.category as usize] += 1;
            }
        }
        for (row, guess) in guesses.iter_mut().enumerate().filter(|(_, guess)| guess.life == Life::CutShort) {
            let (stack, size) = (blocks.stack[row], blocks.requested[row]);
            let most = by_size.get(&(stack, size)).and_then(|counts| most(counts, guess.category));
            // Short lives of other sizes say nothing: one line may make what is kept beside what is not.
            let all = || only(by_stack.get(&stack)?).filter(|category| *category != Category::Temporary);
            guess.category = most.or_else(all).unwrap_or(guess.category);
        }
    }

    /// Takes kept blocks for no input if others of their call stack are kept too: the program collects them.
    fn settle_collected(&self, guesses: &mut [Guess]) {
        let blocks = &self.trace.blocks;
        let is_kept = |row: usize| blocks.alloc[row].is_some() && !blocks.free_requested[row].is_some();
        let kept = |guesses: &[Guess], category| -> HashSet<StackId> {
            let rows = (0..guesses.len()).filter(|row| is_kept(*row) && guesses[*row].category == category);
            rows.map(|row| blocks.stack[row]).filter(|stack| stack.is_some()).collect()
        };
        let collected = kept(guesses, Category::Unknown);
        for (row, guess) in guesses.iter_mut().enumerate() {
            let is_of_gap = guess.life == Life::Unknown && guess.category == Category::Input && is_kept(row);
            if is_of_gap && collected.contains(&blocks.stack[row]) {
                guess.category = Category::Unknown;
            }
        }
    }

    /// Makes what constructors keep parameters where a gradient or optimizer state has the same size.
    fn settle_constructed(&self, guesses: &mut [Guess]) {
        let blocks = &self.trace.blocks;
        let place = |row: usize| (blocks.device[row], blocks.requested[row]);
        let is_of_parameter = |category| matches!(category, Category::Gradient | Category::OptimizerState);
        let updated: HashSet<(DeviceId, u64)> = guesses
            .iter()
            .enumerate()
            .filter(|(row, guess)| is_of_parameter(guess.category) || is_of_parameter(blocks.category[*row]))
            .map(|(row, _)| place(row))
            .collect();
        for (row, guess) in guesses.iter_mut().enumerate() {
            let is_kept = !blocks.free_requested[row].is_some();
            if is_kept && self.roles.role(blocks.stack[row]) == Role::Constructor && updated.contains(&place(row)) {
                guess.category = Category::Parameter;
            }
        }
    }

    /// The category that a block's own life speaks for.
    fn guess(&self, id: BlockId) -> Guess {
        let block = self.trace.blocks.get(id);
        if block.is_baseline() {
            return Guess { category: self.of_baseline(&block), life: Life::Unknown };
        }
        let Some((runs, outline, made)) = self.place(&block) else {
            return Guess { category: Category::Unknown, life: Life::Unknown };
        };
        let freed = self.freed(runs, outline, &block, made);
        let life = match freed {
            Freed::InRun | Freed::Later(_) => Life::Whole,
            // What is made between steps and kept may be anything, whatever else its line makes.
            Freed::Never if runs.rows()[made].is_gap() => Life::Unknown,
            Freed::Never if outline.is_before_forward[made] => Life::Whole,
            Freed::Never | Freed::Unwound => Life::CutShort,
        };
        match self.of_life(&block, (runs, outline, made), freed) {
            Category::Input => Guess { category: Category::Input, life },
            _ if self.was_saved(&block) => Guess { category: Category::Activation, life: Life::Whole },
            category => Guess { category, life },
        }
    }

    /// Whether forward code made `block` and autograd freed it from the tensors saved for backward.
    fn was_saved(&self, block: &Block) -> bool {
        let is_of_forward =
            matches!(self.roles.role(block.stack), Role::Forward | Role::Recompute | Role::Cache | Role::Unknown);
        let freed_by = block.free_requested.index().and_then(|row| self.trace.events.stack.get(row));
        is_of_forward && freed_by.is_some_and(|stack| self.roles.releases_saved(*stack))
    }

    fn of_life(&self, block: &Block, (runs, outline, made): (&Runs, &Outline, usize), freed: Freed) -> Category {
        let run = &runs.rows()[made];
        let role = self.roles.role(block.stack);
        let stops_here = made + 1 == runs.rows().len();
        match role {
            Role::Workspace => Category::Workspace,
            Role::Optimizer | Role::OptimizerState | Role::OptimizerInit => match freed {
                Freed::InRun if role == Role::OptimizerInit && run.phase != Phase::Optimizer => Category::Unknown,
                Freed::InRun => Category::Temporary,
                Freed::Unwound if role == Role::Optimizer => Category::Unknown,
                Freed::Never if stops_here && role == Role::Optimizer => Category::Unknown,
                _ => Category::OptimizerState,
            },
            Role::ZeroGrad if freed == Freed::InRun => Category::Temporary,
            Role::ZeroGrad => Category::Unknown,
            Role::ModelSetup | Role::Buffer => self.of_setup(block),
            // What it keeps is settled last.
            Role::Constructor => Category::Unknown,
            Role::Cache => match freed {
                Freed::Later(position) if has_backward(&runs.rows()[made..=position]) => Category::Activation,
                _ => Category::Buffer,
            },
            Role::Data => match freed {
                Freed::InRun if run.phase != Phase::Forward => Category::Unknown,
                _ => Category::Input,
            },
            Role::Recompute => match freed {
                Freed::InRun if runs.are_recomputed_together(block.alloc, block.free_requested) => Category::Temporary,
                Freed::Never if outline.is_before_forward[made] => Category::Unknown,
                _ => Category::Activation,
            },
            Role::Backward => self.of_backward(block, runs, made, freed),
            Role::Bare if run.phase == Phase::Backward => self.of_backward(block, runs, made, freed),
            Role::Forward => of_forward(outline, made, freed),
            Role::Bare | Role::Unknown => match run.phase {
                Phase::Forward => of_forward(outline, made, freed),
                Phase::Backward | Phase::Optimizer | Phase::ZeroGrad if freed == Freed::InRun => Category::Temporary,
                Phase::Setup | Phase::Other if role == Role::Unknown => of_gap(outline, run.phase, made, freed),
                _ => Category::Unknown,
            },
        }
    }

    /// The runs of a block's device, and the position of the run in which it was made.
    fn place(&self, block: &Block) -> Option<(&'a Runs, &Outline, usize)> {
        let runs = runs_of(self.runs, block.device)?;
        let outline = self.outlines.get(usize::from(block.device.0))?;
        let made = if block.is_baseline() { 0 } else { runs.position(block.alloc)? };
        (made < runs.rows().len()).then_some((runs, outline, made))
    }

    fn freed(&self, runs: &Runs, outline: &Outline, block: &Block, made: usize) -> Freed {
        if !block.free_requested.is_some() {
            return Freed::Never;
        }
        match runs.position(block.free_requested) {
            Some(position) if position > made => Freed::Later(position),
            _ if self.is_unwound(&runs.rows()[made], outline.is_last[made], block) => Freed::Unwound,
            _ => Freed::InRun,
        }
    }

    /// Whether an exception freed `block` in `run`, in which it was made.
    fn is_unwound(&self, run: &Run, is_last: bool, block: &Block) -> bool {
        let after = self.failures.partition_point(|failure| *failure <= block.alloc);
        let has_failed = self.failures.get(after).is_some_and(|failure| *failure < block.free_requested);
        // Forward that no backward follows, at the end of a recording that trains.
        let is_left = is_last && run.phase == Phase::Forward && block.free_requested > run.last_alloc;
        has_failed || is_left
    }

    /// What set-up of a module made.
    fn of_setup(&self, block: &Block) -> Category {
        let Some((runs, outline, made)) = self.place(block) else {
            return Category::Unknown;
        };
        match self.freed(runs, outline, block, made) {
            Freed::InRun => Category::Temporary,
            _ if self.roles.role(block.stack) == Role::Buffer => Category::Buffer,
            _ => Category::Parameter,
        }
    }

    fn of_baseline(&self, block: &Block) -> Category {
        let role = self.roles.role(block.stack);
        let is_kept = !block.free_requested.is_some();
        match role {
            Role::Workspace => Category::Workspace,
            Role::Optimizer | Role::OptimizerState | Role::OptimizerInit if is_kept => Category::OptimizerState,
            Role::Buffer if is_kept => Category::Buffer,
            Role::ModelSetup if is_kept => Category::Parameter,
            Role::Cache if is_kept => Category::Buffer,
            Role::Backward if is_kept => Category::Gradient,
            Role::Data => Category::Input,
            _ => Category::Unknown,
        }
    }

    fn of_backward(&self, block: &Block, runs: &Runs, made: usize, freed: Freed) -> Category {
        let Some(outline) = self.outlines.get(usize::from(block.device.0)) else {
            return Category::Unknown;
        };
        let by_size = |other: Category| match self.parameter_sizes.contains(&(block.device, block.requested)) {
            true => Category::Gradient,
            false => other,
        };
        let rows = runs.rows();
        let is_updated_next = rows
            .get(made + 1..)
            .is_some_and(|later| later.iter().find(|run| run.phase != Phase::Other).is_some_and(Run::is_update));
        match freed {
            Freed::InRun if is_updated_next || block.free_requested <= rows[made].last_said => Category::Temporary,
            Freed::InRun => by_size(Category::Temporary),
            Freed::Later(position) if outline.is_fused[made] && rows[position].phase != Phase::Forward => {
                by_size(Category::Temporary)
            }
            Freed::Later(_) => Category::Gradient,
            Freed::Never if outline.is_before_update[made] => Category::Gradient,
            Freed::Never | Freed::Unwound => by_size(Category::Unknown),
        }
    }
}

fn of_forward(outline: &Outline, made: usize, freed: Freed) -> Category {
    match freed {
        Freed::InRun => Category::Temporary,
        Freed::Later(_) => Category::Activation,
        Freed::Never if outline.is_before_forward[made] => Category::Unknown,
        Freed::Never | Freed::Unwound => Category::Activation,
    }
}

fn has_backward(runs: &[Run]) -> bool {
    runs.iter().any(|run| run.phase == Phase::Backward)
}

/// What was made where no phase runs.
fn of_gap(outline: &Outline, phase: Phase, made: usize, freed: Freed) -> Category {
    match (outline.next_forward[made], freed) {
        (Some(forward), Freed::Later(position)) if position >= forward => Category::Input,
        // Before the first step all sorts of things are made to stay.
        (Some(forward), Freed::Never) if phase == Phase::Other && !outline.is_before_forward[forward] => {
            Category::Input
        }
        _ => Category::Unknown,
    }
}

impl Run {
    fn is_gap(&self) -> bool {
        matches!(self.phase, Phase::Setup | Phase::Other)
    }

    fn is_update(&self) -> bool {
        matches!(self.phase, Phase::Optimizer | Phase::ZeroGrad)
    }
}

impl Outline {
    /// One pass from the last run to the first.
    fn of(rows: &[Run]) -> Self {
        let mut outline = Self {
            is_before_update: vec![false; rows.len()],
            is_before_forward: vec![false; rows.len()],
            next_forward: vec![None; rows.len()],
            is_fused: Vec::with_capacity(rows.len()),
            is_last: vec![false; rows.len()],
        };
        let computes = |run: &Run| matches!(run.phase, Phase::Forward | Phase::Backward);
        if let Some(last) = rows.iter().rposition(computes) {
            outline.is_last[last] = has_backward(rows);
        }
        let (mut is_before_update, mut is_before_forward) = (false, false);
        let mut next_forward = None;
        for (position, run) in rows.iter().enumerate().rev() {
            outline.is_before_update[position] = is_before_update;
            outline.is_before_forward[position] = is_before_forward;
            outline.next_forward[position] = next_forward;
            is_before_update |= run.phase == Phase::Optimizer;
            is_before_forward |= run.phase == Phase::Forward;
            match run.phase {
                Phase::Forward => next_forward = Some(position),
                // What lies in a gap, or drops gradients at the start of a step, leaves the next forward in sight.
                Phase::Setup | Phase::Other | Phase::ZeroGrad => {}
                Phase::Backward | Phase::Optimizer => next_forward = None,
            }
        }
        for between in rows.split_inclusive(|run| run.phase == Phase::Forward) {
            let optimizer = between.iter().position(|run| run.phase == Phase::Optimizer).unwrap_or(between.len());
            let is_fused = between[optimizer..].iter().any(|run| run.phase == Phase::Backward);
            outline.is_fused.extend(between.iter().map(|_| is_fused));
        }
        outline
    }
}
