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
//!   `reset_running_stats`. A constructor of the program's own may build anything: its blocks count only if kept.
//! - **backward**: what outlives backward is there for the optimizer; everything else dies when the next node has used
//!   it. Three cases cannot be told by the end alone: blocks freed after backward's last allocation where no optimizer
//!   is seen; blocks freed while optimizers run within backward; and blocks kept by a recording that stops before an
//!   optimizer. There a block is a gradient if it has the size of a parameter.
//! - **computed again**: what an activation checkpoint computes again is an activation if it outlives that stretch
//!   of computing, for then backward waits for it.
//! - **forward**: what outlives forward is a result that backward waits for, or that the program holds, such as
//!   logits. A kept result is an activation only in the recording's last forward: what is kept longer may be a cache,
//!   or a leak, and stays unknown.
//! - **input**: what data loaders make, and what other Python code makes between the end of a step and the next
//!   forward, if it is still there in forward. What such code makes and keeps is an input only before the last
//!   forward, and not before the first step, where all sorts of things are made.
//! - **baseline**: a stack is known of some blocks alive at the end; the rest stays unknown: there is nothing to
//!   go by.

use std::collections::HashSet;

use super::phases::{Run, Runs, runs_of};
use super::roles::{Role, Roles};
use crate::ids::{BlockId, DeviceId};
use crate::trace::{Block, Trace};
use crate::{Category, Phase};

/// The built-in rules in short, first match first; for help and documents.
pub const RULES: &str = "\
category         made by                      and
workspace        cuBLAS or cuDNN, as scratch
temporary        an optimizer                 freed in the same run of it
optimizer_state  an optimizer                 freed later, or never
temporary        set-up of a module           freed before anything else runs
buffer           register_buffer and the like freed later, or never
parameter        set-up of a module           freed later, or never
parameter        a program's own constructor  never freed
temporary        backward                     freed in the same run of it
gradient         backward                     freed later, or never
temporary        a checkpoint, once more      freed while it computes
activation       a checkpoint, once more      freed later in backward
temporary        forward                      freed in the same run of it
activation       forward                      freed later, or never (last run)
input            a data loader
input            other code between steps     freed in forward or later
unknown          anything else
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
}

impl<'a> Guesser<'a> {
    /// Gets ready for `trace`: O(events + blocks).
    pub fn new(trace: &'a Trace, roles: &'a Roles, runs: &'a [Runs]) -> Self {
        let outlines = runs.iter().map(|runs| Outline::of(runs.rows())).collect();
        let mut guesser = Self { trace, roles, runs, parameter_sizes: HashSet::new(), outlines };
        for id in trace.blocks.ids() {
            let block = trace.blocks.get(id);
            let is_kept = !block.free_requested.is_some();
            let may_be = match trace.blocks.category.get(id.0 as usize) {
                Some(Category::Unknown) if block.is_baseline() && !block.stack.is_some() => is_kept,
                Some(Category::Unknown) => guesser.of_setup(&block) == Some(Category::Parameter),
                category => category == Some(&Category::Parameter),
            };
            if may_be {
                guesser.parameter_sizes.insert((block.device, block.requested));
            }
        }
        guesser
    }

    /// The category of `id`; [`Category::Unknown`] where nothing speaks for another.
    pub fn category(&self, id: BlockId) -> Category {
        let block = self.trace.blocks.get(id);
        if block.is_baseline() {
            return self.of_baseline(&block);
        }
        let Some((runs, outline, made)) = self.place(&block) else {
            return Category::Unknown;
        };
        let run = &runs.rows()[made];
        let freed = self.freed(runs, &block, made);
        let role = self.roles.role(block.stack);
        let stops_here = made + 1 == runs.rows().len();
        match role {
            Role::Workspace => Category::Workspace,
            Role::Optimizer | Role::OptimizerState | Role::OptimizerInit => match freed {
                Freed::InRun if role == Role::OptimizerInit && run.phase != Phase::Optimizer => Category::Unknown,
                Freed::InRun => Category::Temporary,
                Freed::Never if stops_here && role == Role::Optimizer => Category::Unknown,
                _ => Category::OptimizerState,
            },
            Role::ZeroGrad if freed == Freed::InRun => Category::Temporary,
            Role::ZeroGrad => Category::Unknown,
            Role::ModelSetup | Role::Buffer | Role::Constructor => self.of_setup(&block).unwrap_or(Category::Unknown),
            Role::Data => match freed {
                Freed::InRun if run.phase != Phase::Forward => Category::Unknown,
                _ => Category::Input,
            },
            Role::Recompute => match freed {
                Freed::InRun if runs.are_recomputed_together(block.alloc, block.free_requested) => Category::Temporary,
                Freed::Never if outline.is_before_forward[made] => Category::Unknown,
                _ => Category::Activation,
            },
            Role::Backward => self.of_backward(&block, runs, made, freed),
            Role::Bare if run.phase == Phase::Backward => self.of_backward(&block, runs, made, freed),
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

    fn freed(&self, runs: &Runs, block: &Block, made: usize) -> Freed {
        if !block.free_requested.is_some() {
            return Freed::Never;
        }
        match runs.position(block.free_requested) {
            Some(position) if position > made => Freed::Later(position),
            _ => Freed::InRun,
        }
    }

    /// What set-up made; `None` if it did not make the block, or nothing can be said.
    fn of_setup(&self, block: &Block) -> Option<Category> {
        let role = self.roles.role(block.stack);
        let is_kept = !block.free_requested.is_some();
        if !matches!(role, Role::ModelSetup | Role::Buffer | Role::Constructor) {
            return None;
        }
        let (runs, _, made) = self.place(block)?;
        match self.freed(runs, block, made) {
            _ if role == Role::Constructor => is_kept.then_some(Category::Parameter),
            Freed::InRun => Some(Category::Temporary),
            _ if role == Role::Buffer => Some(Category::Buffer),
            _ => Some(Category::Parameter),
        }
    }

    fn of_baseline(&self, block: &Block) -> Category {
        let role = self.roles.role(block.stack);
        let is_kept = !block.free_requested.is_some();
        match role {
            Role::Workspace => Category::Workspace,
            Role::Optimizer | Role::OptimizerState | Role::OptimizerInit if is_kept => Category::OptimizerState,
            Role::Buffer if is_kept => Category::Buffer,
            Role::ModelSetup | Role::Constructor if is_kept => Category::Parameter,
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
            Freed::Never => by_size(Category::Unknown),
        }
    }
}

fn of_forward(outline: &Outline, made: usize, freed: Freed) -> Category {
    match freed {
        Freed::InRun => Category::Temporary,
        Freed::Later(_) => Category::Activation,
        Freed::Never if outline.is_before_forward[made] => Category::Unknown,
        Freed::Never => Category::Activation,
    }
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
        };
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
