//! The options of `highwater record`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::PossibleValuesParser;
use highwater_snapshots::units::parse_size;

use super::RunDevice;

/// The types that parameters can have.
const FRACTIONS: [&str; 4] = ["f64", "f32", "bf16", "f16"];

/// `highwater record`.
#[derive(Clone, Debug, Args)]
pub struct RecordArguments {
    /// Training step to run; `--list` names them
    #[arg(value_name = "SCENARIO", required_unless_present = "list")]
    pub scenario: Option<String>,
    /// List the scenarios and what each shows
    #[arg(long)]
    pub list: bool,
    /// Device: meta (counts every byte, computes nothing), meta:cuda (also counts what a GPU reserves), cpu, or cuda:N
    ///
    /// cuda:N is an NVIDIA GPU of compute capability 8.0 or later. It needs the driver, and NVRTC and cuBLASLt of CUDA 12
    /// or 13: if they are not installed, run `pip install nvidia-cuda-nvrtc nvidia-cublas` and set HIGHWATER_CUDA_PATH to
    /// the folders of their libraries.
    #[arg(long, value_name = "meta[:cuda]|cpu|cuda[:N]", default_value = "meta")]
    pub device: RunDevice,
    /// Number of training steps
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub steps: u32,
    /// File to write [default: SCENARIO.snap]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Optimizer [default: the scenario's]
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(["sgd", "adam", "adamw"]))]
    pub optimizer: Option<String>,
    /// Update all parameters at once: faster, with temporaries for all of them
    #[arg(long, overrides_with_all = ["no_foreach", "fused"])]
    pub foreach: bool,
    /// Update the parameters one by one
    #[arg(long, overrides_with_all = ["foreach", "fused"])]
    pub no_foreach: bool,
    /// Update each parameter in one fused pass, without temporaries
    #[arg(long, overrides_with_all = ["foreach", "no_foreach"])]
    pub fused: bool,
    /// Learning rate [default: the optimizer's]
    #[arg(long, value_name = "X")]
    pub learning_rate: Option<f64>,
    /// Weight decay [default: the optimizer's]
    #[arg(long, value_name = "X")]
    pub weight_decay: Option<f64>,
    /// Momentum of SGD [default: 0.9]
    #[arg(long, value_name = "X")]
    pub momentum: Option<f64>,
    /// Update each parameter in backward, as soon as its gradient is computed, and free the gradient
    #[arg(long)]
    pub optimizer_in_backward: bool,
    /// Save everything that backward reads, even if it is cheap to recompute, as PyTorch does
    #[arg(long)]
    pub no_recompute: bool,
    /// Record each use of a block too, to find memory that is no longer used; about doubles the file
    #[arg(long)]
    pub uses: bool,
    /// Memory of the device, such as 24GiB; the run ends with an out-of-memory error if it is too small
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub capacity: Option<u64>,
    /// Settings of the caching allocator, as in PyTorch: expandable_segments:True,max_split_size_mb:128
    #[arg(long, value_name = "CONF")]
    pub alloc_conf: Option<String>,
    /// Random seed
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Open the recording in the app afterwards
    #[arg(long)]
    pub open: bool,
    /// Print one JSON object to standard output
    #[arg(long)]
    pub json: bool,
    // Last, since its heading would stand over all that follows.
    /// The model and its data.
    #[command(flatten)]
    pub model: ModelArguments,
}

/// What a scenario's model and data are like. Each scenario has some of these; `record --list` tells which.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "The scenario's model and data (each scenario has some of these)")]
pub struct ModelArguments {
    /// Variant of the scenario; `--list` names them
    #[arg(long, value_name = "NAME")]
    pub variant: Option<String>,
    /// Batch size
    #[arg(long, value_name = "N")]
    pub batch: Option<usize>,
    /// Sequence length, or number of time steps
    #[arg(long, value_name = "N")]
    pub seq: Option<usize>,
    /// Hidden size
    #[arg(long, value_name = "N")]
    pub width: Option<usize>,
    /// Number of layers or blocks
    #[arg(long, value_name = "N")]
    pub layers: Option<usize>,
    /// Number of attention heads
    #[arg(long, value_name = "N")]
    pub heads: Option<usize>,
    /// Number of key-value heads (grouped-query attention)
    #[arg(long, value_name = "N")]
    pub key_heads: Option<usize>,
    /// MLP hidden size
    #[arg(long, value_name = "N")]
    pub hidden: Option<usize>,
    /// Freeze the first N blocks (and the embeddings)
    #[arg(long, value_name = "N")]
    pub freeze: Option<usize>,
    /// Vocabulary size
    #[arg(long, value_name = "N")]
    pub vocab: Option<usize>,
    /// Maximum sequence length
    #[arg(long, value_name = "N")]
    pub positions: Option<usize>,
    /// Number of classes
    #[arg(long, value_name = "N")]
    pub classes: Option<usize>,
    /// Height and width of an image, in pixels
    #[arg(long, value_name = "N")]
    pub image: Option<usize>,
    /// Height and width of a patch, in pixels
    #[arg(long, value_name = "N")]
    pub patch: Option<usize>,
    /// Samples per ray
    #[arg(long, value_name = "N")]
    pub samples: Option<usize>,
    /// Points per forward pass
    #[arg(long, value_name = "N")]
    pub chunk: Option<usize>,
    /// Padding of the image in pixels
    #[arg(long, value_name = "N")]
    pub padding: Option<usize>,
    /// Dtype of parameters and activations
    #[arg(long, value_name = "TYPE", value_parser = PossibleValuesParser::new(FRACTIONS))]
    pub dtype: Option<String>,
    /// Dtype of matrix products, independent of that of the parameters (autocast)
    #[arg(long, value_name = "TYPE", value_parser = PossibleValuesParser::new(FRACTIONS))]
    pub autocast: Option<String>,
    /// Freeze the weights and train LoRA adapters of rank R
    #[arg(long, value_name = "R")]
    pub lora: Option<usize>,
    /// Dtype of the adapters
    #[arg(long, value_name = "TYPE", value_parser = PossibleValuesParser::new(FRACTIONS))]
    pub adapters: Option<String>,
    /// Activation checkpointing: save only each block's input and recompute the rest in backward
    #[arg(long)]
    pub checkpoint: bool,
}

impl RecordArguments {
    /// The file that is written.
    pub fn file(&self) -> PathBuf {
        let default = || PathBuf::from(format!("{}.snap", self.scenario.as_deref().unwrap_or("recording")));
        self.out.clone().unwrap_or_else(default)
    }
}
