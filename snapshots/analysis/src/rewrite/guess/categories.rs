//! Guesses the category of each block from the role of its call stack, its phase and the moment of its free, by
//! [`RULES`].
//!
//! The rationale, rule by rule. A *run* is a stretch of one phase on the block's device (see
//! [`phases`](super::phases)); a block is *kept* if it is live when the recording ends.
//!
//! - **workspace**: kernel libraries allocate scratch space through a few functions, which C++ frames name.
//! - **optimizer**: blocks that an optimizer allocates and frees within its step are temporaries; those that outlive
//!   the step are its state. If the recording stops within that step, only blocks allocated where optimizers create
//!   their state are classified; the rest stays unknown.
//! - **model set-up**: modules allocate parameters and buffers when they are built, moved or loaded, and free the
//!   copies in between. Parameters and buffers look alike, so a buffer counts as a parameter unless a frame says
//!   `register_buffer` or `reset_running_stats`. A constructor of the user's code may build anything: a block it keeps
//!   is a parameter only if a gradient or a block of optimizer state on the device has its size.
//! - **caches**: attention keys and values are allocated by recognizable functions: vLLM's, SGLang's, transformers'.
//!   They are buffers, except those kept for backward.
//! - **inference**: vLLM, SGLang and `generate` of transformers keep nothing for backward. Blocks that their models
//!   free before other code runs are temporary; the rest, such as outputs and the static tensors of captured graphs,
//!   stay unknown.
//! - **backward**: blocks that outlive backward are for the optimizer; all others are freed once the next node has used
//!   them. Three cases cannot be decided from the end alone: blocks freed after backward's last allocation when no
//!   optimizer is seen; blocks freed while optimizers run within backward; and blocks kept by a recording that stops
//!   before an optimizer. In these cases a block is a gradient if it has the size of a parameter.
//! - **recomputation**: a block that an activation checkpoint recomputes is an activation if it outlives that stretch
//!   of recomputation, since it is then kept for backward.
//! - **saved tensors**: if C++ frames of frees were recorded, autograd's own functions free the tensors that an
//!   operation saved for backward (`SavedVariable::reset_data`, `release_variables`), after backward used them or with
//!   a graph that is dropped without backward. A block that forward code allocates and these functions free is an
//!   activation, however short its life. Parameters, gradients and inputs that autograd held last keep the category of
//!   the code that allocated them.
//! - **forward**: a block that outlives forward is a result that is kept for backward, or that the program keeps, such
//!   as logits. A kept result is an activation only in the recording's last forward: one kept longer may be a cache or
//!   a leak, and stays unknown.
//! - **input**: blocks allocated by data loaders, and by other Python code between the end of a step and the next
//!   forward if they are still live in forward. Kept blocks of such code are inputs only before the last forward, and
//!   if blocks of their call stack were inputs of earlier steps: a program may also keep copies of its weights there.
//! - **baseline**: some blocks live at the end have a known stack; the others stay unknown for lack of evidence.
//!
//! A block's life may be cut short, so that its end is not informative: by the end of the recording; by a failed
//! request, whose exception unwinds the program and frees the blocks of its calls; or by another exception, which shows
//! as a last forward without backward that frees blocks after its last allocation. Such a block gets the category of
//! most blocks of the same call stack and size whose lives were not cut short, or of all blocks of its call stack;
//! otherwise the category of a kept block. So one line of a model has one category, including in the step that failed.

use std::collections::{HashMap, HashSet};

use rayon::prelude::*;

use super::outline::{Outline, has_backward};
use super::phases::{Run, Runs, runs_of};
use super::roles::{Role, Roles};
use highwater_snapshots::ids::{BlockId, DeviceId, EventId, StackId};
use highwater_snapshots::trace::{Block, Trace};
use highwater_snapshots::{Category, Phase};

/// A summary of the built-in rules, first match first, for help texts and documentation.
pub const RULES: &str = "\
category         allocated by                 condition
workspace        cuBLAS or cuDNN scratch
temporary        an optimizer                 freed in the same call
optimizer_state  an optimizer                 freed later, or never
temporary        module set-up                freed before anything else runs
buffer           register_buffer and the like freed later, or never
parameter        module set-up                freed later, or never
activation       forward or recomputation     freed from autograd's saved tensors
buffer           KV cache code                not kept for backward
temporary        inference engine or generate freed in the same call
parameter        a user-defined constructor   never freed; size of a gradient or state
temporary        backward                     freed in the same call
gradient         backward                     freed later, or never
temporary        checkpoint recomputation     freed during recomputation
activation       checkpoint recomputation     freed later in backward
temporary        forward                      freed in the same call
activation       forward                      freed later, or never (last step)
input            a data loader
input            other code between steps     freed in forward or later, or like such a block
activation       other code                   freed from autograd's saved tensors
unknown          anything else
Blocks whose life is cut short by an out-of-memory error, another exception or the end of
the recording are treated like others from the same call stack, else as never freed.
";

/// Guesses the categories of a trace's blocks.
pub struct Guesser<'a> {
    trace: &'a Trace,
    roles: &'a Roles,
    runs: &'a [Runs],
    /// The sizes of possible parameters, by device.
    parameter_sizes: HashSet<(DeviceId, u64)>,
    /// Facts about the runs of each device.
    outlines: Vec<Outline>,
    /// The failed requests on any device, since an exception unwinds the whole program.
    failures: Vec<EventId>,
}

/// A category and its evidence.
#[derive(Clone, Copy, Debug)]
struct Guess {
    category: Category,
    life: Life,
}

/// Number of blocks by category.
type Counts = [u32; Category::ALL.len()];

/// Returns the most frequent category; in a tie, `preferred` if it is among them, otherwise the first.
fn most(counts: &Counts, preferred: Category) -> Option<Category> {
    let rank = |code: &usize| (counts[*code], *code == preferred as usize, std::cmp::Reverse(*code));
    (0..counts.len()).max_by_key(rank).and_then(|code| Category::from_code(code as u8))
}

/// Returns the category that all blocks have, if there is one.
fn only(counts: &Counts) -> Option<Category> {
    let mut codes = (0..counts.len()).filter(|code| counts[*code] > 0);
    let first = codes.next()?;
    Category::from_code(first as u8).filter(|_| codes.next().is_none())
}

/// The part of a block's lifetime that a recording shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    /// Known well enough to determine the category: until the free, or beyond the step.
    Whole,
    /// Cut short by the end of the recording or by an exception.
    CutShort,
    /// The block was allocated before the recording, or between steps and not freed.
    Unknown,
}

/// The run in which a block was freed, or the reason that there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Freed {
    /// Freed in the run of its allocation.
    InRun,
    /// Freed in a later run, with the index of that run.
    Later(usize),
    /// Never freed.
    Never,
    /// Freed by an exception, in the run of its allocation.
    Unwound,
}

impl<'a> Guesser<'a> {
    /// Prepares the facts about `trace`, in time linear in the number of events and blocks.
    pub(crate) fn new(trace: &'a Trace, roles: &'a Roles, runs: &'a [Runs]) -> Self {
        let outlines = runs.iter().map(|runs| Outline::of(runs.rows())).collect();
        let failures = trace.failed_requests().map(|(event, _)| event).collect();
        let mut guesser = Self { trace, roles, runs, parameter_sizes: HashSet::new(), outlines, failures };
        for id in trace.blocks.ids() {
            let row = id.0 as usize;
            let is_elsewhere = trace.blocks.alloc[row].is_some()
                && !matches!(roles.role(trace.blocks.stack[row]), Role::Constructor | Role::ModelSetup);
            if is_elsewhere && trace.blocks.category.get(row) == Some(&Category::Unknown) {
                continue;
            }
            let block = trace.blocks.get(id);
            let is_kept = !block.free_requested.is_some();
            let may_be = match trace.blocks.category.get(row) {
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

    /// Returns the category of each block, by row; [`Category::Unknown`] without evidence. Takes time linear in the
    /// number of blocks.
    pub(crate) fn categories(&self) -> Vec<Category> {
        let blocks = &self.trace.blocks;
        // A thread of a pool, which reads one of several files, would begin to read the next one while it waits.
        let has_threads = rayon::current_num_threads() > 1 && rayon::current_thread_index().is_none();
        let mut guesses: Vec<Guess> = match has_threads {
            true => (0..blocks.len() as u32).into_par_iter().map(|row| self.guess(BlockId(row))).collect(),
            false => blocks.ids().map(|id| self.guess(id)).collect(),
        };
        self.mark_interrupted(&mut guesses);
        self.mark_collected(&mut guesses);
        self.mark_constructed(&mut guesses);
        guesses.into_iter().map(|guess| guess.category).collect()
    }

    /// Assigns blocks whose lifetimes were cut short the most frequent category of blocks with a whole lifetime and the
    /// same call stack and size; if there are none, the only category with the same call stack, unless it is temporary.
    fn mark_interrupted(&self, guesses: &mut [Guess]) {
        // Stacks of backward show the kernel but not the line of the program; set-up runs once.
        let tells = |stack: StackId| {
            matches!(self.roles.role(stack), Role::Forward | Role::Recompute | Role::Unknown | Role::Optimizer)
        };
        let blocks = &self.trace.blocks;
        // Only the stacks of such blocks are counted: most recordings have none.
        let cut_short = guesses.iter().zip(&blocks.stack).filter(|(guess, _)| guess.life == Life::CutShort);
        let cut_short: HashSet<StackId> = cut_short.map(|(_, stack)| *stack).collect();
        if cut_short.is_empty() {
            return;
        }
        let tells = |stack: StackId| cut_short.contains(&stack) && tells(stack);
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
            // Short lives of other sizes are no evidence: one line may allocate both kept and temporary blocks.
            let all = || only(by_stack.get(&stack)?).filter(|category| *category != Category::Temporary);
            guess.category = most.or_else(all).unwrap_or(guess.category);
        }
    }

    /// Makes kept inputs that were allocated between steps unknown if other kept blocks of their call stack are
    /// unknown, or if neither a freed block of their call stack is an input nor a data loader allocated them.
    fn mark_collected(&self, guesses: &mut [Guess]) {
        let blocks = &self.trace.blocks;
        let is_kept = |row: usize| blocks.alloc[row].is_some() && !blocks.free_requested[row].is_some();
        let stacks = |kept: bool, category| -> HashSet<StackId> {
            let rows = (0..guesses.len()).filter(|row| is_kept(*row) == kept && guesses[*row].category == category);
            rows.map(|row| blocks.stack[row]).filter(|stack| stack.is_some()).collect()
        };
        let (collected, replaced) = (stacks(true, Category::Unknown), stacks(false, Category::Input));
        for ((row, guess), stack) in guesses.iter_mut().enumerate().zip(&blocks.stack) {
            let is_replaced = replaced.contains(stack) || self.roles.role(*stack) == Role::Data;
            let is_of_gap = guess.life == Life::Unknown && guess.category == Category::Input && is_kept(row);
            if is_of_gap && (collected.contains(stack) || !is_replaced) {
                guess.category = Category::Unknown;
            }
        }
    }

    /// Classifies blocks that constructors allocate and never free as parameters if a gradient or optimizer state on
    /// the same device has the same size.
    fn mark_constructed(&self, guesses: &mut [Guess]) {
        let blocks = &self.trace.blocks;
        let place = |row: usize| (blocks.device[row], blocks.requested[row]);
        let is_built = |row: usize| {
            !blocks.free_requested[row].is_some() && self.roles.role(blocks.stack[row]) == Role::Constructor
        };
        if !(0..guesses.len()).any(is_built) {
            return;
        }
        let is_of_parameter = |category| matches!(category, Category::Gradient | Category::OptimizerState);
        let updated: HashSet<(DeviceId, u64)> = guesses
            .iter()
            .enumerate()
            .filter(|(row, guess)| is_of_parameter(guess.category) || is_of_parameter(blocks.category[*row]))
            .map(|(row, _)| place(row))
            .collect();
        for (row, guess) in guesses.iter_mut().enumerate() {
            if is_built(row) && updated.contains(&place(row)) {
                guess.category = Category::Parameter;
            }
        }
    }

    /// Returns the category that a block's own lifetime indicates.
    fn guess(&self, id: BlockId) -> Guess {
        let block = self.trace.blocks.get(id);
        if block.is_baseline() {
            return Guess { category: self.of_baseline(&block), life: Life::Unknown };
        }
        let Some((runs, outline, made)) = self.allocation_run(&block) else {
            return Guess { category: Category::Unknown, life: Life::Unknown };
        };
        let freed = self.freed(runs, outline, &block, made);
        let life = match freed {
            Freed::InRun | Freed::Later(_) => Life::Whole,
            // A kept block allocated between steps may be anything, whatever else its line allocates.
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

    /// Whether forward code allocated `block` and autograd freed it from the tensors saved for backward.
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
            // Kept blocks of constructors are decided last.
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
            Role::Inference | Role::ProfilingRun | Role::GraphCapture => match freed {
                Freed::InRun => Category::Temporary,
                _ => Category::Unknown,
            },
            // Nothing is saved for backward.
            Role::Forward if run.phase == Phase::Eval && freed != Freed::InRun => Category::Unknown,
            Role::Forward => of_forward(outline, made, freed),
            Role::Bare | Role::Unknown => match run.phase {
                Phase::Forward => of_forward(outline, made, freed),
                Phase::Backward | Phase::Optimizer | Phase::ZeroGrad | Phase::Eval if freed == Freed::InRun => {
                    Category::Temporary
                }
                // Metrics of the forward before, for example.
                Phase::Other if made > 0 && runs.rows()[made - 1].phase == Phase::Forward => Category::Unknown,
                Phase::Setup | Phase::Other if role == Role::Unknown => of_gap(outline, run.phase, made, freed),
                _ => Category::Unknown,
            },
        }
    }

    /// Returns the runs of a block's device, and the index of the run of the block's allocation.
    fn allocation_run(&self, block: &Block) -> Option<(&'a Runs, &Outline, usize)> {
        let runs = runs_of(self.runs, block.device)?;
        let outline = self.outlines.get(usize::from(block.device.0))?;
        let made = if block.is_baseline() { 0 } else { runs.position(block.alloc)? };
        (made < runs.rows().len()).then_some((runs, outline, made))
    }

    fn freed(&self, runs: &Runs, outline: &Outline, block: &Block, made: usize) -> Freed {
        if !block.free_requested.is_some() {
            return Freed::Never;
        }
        let rows = runs.rows();
        let is_unwound = || self.is_unwound(&rows[made], outline.is_last[made], block);
        match runs.position(block.free_requested) {
            Some(position) if position > made && !(is_left_last(rows, made, position) && is_unwound()) => {
                Freed::Later(position)
            }
            _ if is_unwound() => Freed::Unwound,
            _ => Freed::InRun,
        }
    }

    /// Whether an exception freed `block` in `run`, the run of its allocation.
    fn is_unwound(&self, run: &Run, is_last: bool, block: &Block) -> bool {
        let after = self.failures.partition_point(|failure| *failure <= block.alloc);
        let has_failed = self.failures.get(after).is_some_and(|failure| *failure < block.free_requested);
        // Forward without a following backward, at the end of a training recording.
        let is_left = is_last && run.phase == Phase::Forward && block.free_requested > run.last_alloc;
        has_failed || is_left
    }

    /// The category of a block allocated by module set-up.
    fn of_setup(&self, block: &Block) -> Category {
        let Some((runs, outline, made)) = self.allocation_run(block) else {
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
            Freed::InRun if is_updated_next || block.free_requested <= rows[made].last_recorded => Category::Temporary,
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

/// Returns whether the recording ends in the run `position`, directly after the forward at `made`.
fn is_left_last(rows: &[Run], made: usize, position: usize) -> bool {
    rows[made].phase == Phase::Forward && position == made + 1 && position + 1 == rows.len() && rows[position].is_gap()
}

fn of_forward(outline: &Outline, made: usize, freed: Freed) -> Category {
    match freed {
        Freed::InRun => Category::Temporary,
        Freed::Later(_) => Category::Activation,
        Freed::Never if outline.is_before_forward[made] => Category::Unknown,
        Freed::Never | Freed::Unwound => Category::Activation,
    }
}

/// The category of a block allocated outside of all phases.
fn of_gap(outline: &Outline, phase: Phase, made: usize, freed: Freed) -> Category {
    match (outline.next_forward[made], freed) {
        (Some(forward), Freed::Later(position)) if position >= forward => Category::Input,
        // Before the first step, blocks of all kinds are allocated to stay.
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
