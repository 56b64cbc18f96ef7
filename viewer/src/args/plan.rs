//! The options of `highwater plan`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use highwater_app::answers::plan::{Allowance, Forbidden};
use highwater_app::figures::planned::Budget;
use highwater_snapshots::scope_pattern::ScopePattern;
use highwater_snapshots::units::parse_size;

use super::{CategoryChoice, ScenarioArguments};
use crate::gpu::{Gpu, Roofline};

/// A size of the step to make as large as possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Maximize {
    /// The batch size, without micro-batches.
    Batch,
    /// The sequence length.
    Seq,
}

impl Maximize {
    /// Returns the size as a noun phrase.
    pub fn name(self) -> &'static str {
        match self {
            Self::Batch => "batch",
            Self::Seq => "sequence length",
        }
    }
}

impl PlanArguments {
    /// Returns the budget; without the option nothing of it is reserved.
    pub fn budget(&self) -> Budget {
        Budget { bytes: self.budget, reserve: self.reserve.unwrap_or(0) }
    }

    /// Returns what the time of a step is estimated from, if that is asked for.
    pub fn roofline(&self) -> Option<Roofline> {
        // That of a program chooses its kernels.
        let gpu = self.gpu.filter(|_| self.words.is_empty())?;
        Some(Roofline { rates: gpu.rates().ok()?, tf32: self.tf32 })
    }
}

/// `highwater plan`.
#[derive(Clone, Debug, Args)]
pub struct PlanArguments {
    /// The recording; one of `highwater record` is run again with the changes, others are replayed; `-` is standard input
    #[arg(value_name = "FILE", required_unless_present_any = ["scenario", "words"])]
    pub file: Option<PathBuf>,
    /// Device memory, such as 24GiB
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub budget: u64,
    /// Part of the budget for what lives outside the allocator, such as the CUDA context and communication buffers
    /// [default: what others use according to the recording's samples]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub reserve: Option<u64>,
    /// Changes that give other numbers or train other weights, comma-separated: 8bit (optimizer state), bf16 (parameters
    /// and activations), lora (adapters of rank 16), freeze (the first blocks)
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub allow: Vec<Allowance>,
    /// Changes that the program cannot make, comma-separated: fused, in-backward (as it clips the norm of all gradients),
    /// micro-batches, recompute, settings (of the allocator)
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub forbid: Vec<Forbidden>,
    /// Modules that may be recomputed: layers.3, layers.*.mlp or layers.{0-9}; repeatable [default: the repeated blocks of
    /// the model]
    #[arg(long, value_name = "PATTERN")]
    pub modules: Vec<ScopePattern>,
    /// Find the largest batch size or sequence length with which some plan fits, and that plan; for `record`'s steps
    #[arg(long, value_name = "batch|seq")]
    pub maximize: Option<Maximize>,
    /// GPU: of a program, the one that it is simulated on, which decides its kernels [default: a100]; of `record`'s steps,
    /// the one whose peak rates the time of a step is estimated from (a10, a100, h100, h200, l4, l40s or rtx4090)
    #[arg(long, value_name = "NAME")]
    pub gpu: Option<Gpu>,
    /// Estimate products of f32 matrices in TF32, which PyTorch uses only if it is allowed
    #[arg(long, requires = "gpu")]
    pub tf32: bool,
    /// Program and its arguments, after `--`: it is simulated, and once more with the plan's lines on a device of the budget
    #[arg(value_name = "PROGRAM", last = true, conflicts_with_all = ["file", "scenario"])]
    pub words: Vec<OsString>,
    /// Print one JSON object: sizes in bytes, times in microseconds
    #[arg(long)]
    pub json: bool,
    /// The categories.
    #[command(flatten)]
    pub categories: CategoryChoice,
    // Last, since a heading in it applies to everything after it.
    /// The scenario.
    #[command(flatten)]
    pub training: ScenarioArguments,
}
