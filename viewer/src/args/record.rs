//! Record arguments: those of `highwater record`.

use std::path::PathBuf;

use clap::Args;
use clap::builder::PossibleValuesParser;
use highwater_snapshots::units::parse_bytes;

use super::RunDevice;

/// The types that parameters can have.
const FRACTIONS: [&str; 4] = ["f64", "f32", "bf16", "f16"];

/// `highwater record`.
#[derive(Clone, Debug, Args)]
pub struct RecordArguments {
    /// The training step to run; `--list` names them
    #[arg(value_name = "SCENARIO", required_unless_present = "list")]
    pub scenario: Option<String>,
    /// Name the scenarios and say what each shows
    #[arg(long)]
    pub list: bool,
    /// Where to run: meta counts every byte and computes nothing, meta:cuda counts what a GPU keeps for itself as well, cpu
    /// computes, cuda:N is an NVIDIA GPU of compute capability 8.0 or later, which needs the driver, and of CUDA 12 or 13
    /// NVRTC and cuBLASLt: where they are not installed, `pip install nvidia-cuda-nvrtc nvidia-cublas` and name the folders
    /// of their libraries in HIGHWATER_CUDA_PATH
    #[arg(long, value_name = "meta[:cuda]|cpu|cuda[:N]", default_value = "meta")]
    pub device: RunDevice,
    /// How many training steps
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub steps: u32,
    /// The file to write [default: SCENARIO.snap]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// The optimizer [default: the scenario's]
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(["sgd", "adam", "adamw"]))]
    pub optimizer: Option<String>,
    /// Update all parameters at once, which is faster and takes temporaries for all of them
    #[arg(long, overrides_with_all = ["no_foreach", "fused"])]
    pub foreach: bool,
    /// Update one parameter after the other
    #[arg(long, overrides_with_all = ["foreach", "fused"])]
    pub no_foreach: bool,
    /// Update each parameter in one pass, which takes no temporaries
    #[arg(long, overrides_with_all = ["foreach", "no_foreach"])]
    pub fused: bool,
    /// How far a step goes [default: the optimizer's]
    #[arg(long, value_name = "X")]
    pub learning_rate: Option<f64>,
    /// What parameters lose of themselves in a step [default: the optimizer's]
    #[arg(long, value_name = "X")]
    pub weight_decay: Option<f64>,
    /// The share of former steps that SGD keeps [default: 0.9]
    #[arg(long, value_name = "X")]
    pub momentum: Option<f64>,
    /// Update each parameter as soon as its gradient is there, and drop the gradient
    #[arg(long)]
    pub optimizer_in_backward: bool,
    /// Keep all that backward reads, also what is cheap to compute again, as PyTorch does
    #[arg(long)]
    pub no_recompute: bool,
    /// Record when each block is used as well, so that what is held and never used again can be told; the file about doubles
    #[arg(long)]
    pub uses: bool,
    /// Memory of the device, such as 24GiB; when it is too small, the run ends in a described out-of-memory
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub capacity: Option<u64>,
    /// Settings of the caching allocator, as in PyTorch: expandable_segments:True,max_split_size_mb:128
    #[arg(long, value_name = "CONF")]
    pub alloc_conf: Option<String>,
    /// Seed of all random numbers
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Open the recording in the app afterwards
    #[arg(long)]
    pub open: bool,
    /// Print one JSON object
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
    /// Another form of the scenario; `--list` names them
    #[arg(long, value_name = "NAME")]
    pub variant: Option<String>,
    /// Examples in a batch
    #[arg(long, value_name = "N")]
    pub batch: Option<usize>,
    /// Tokens in a sequence, or steps in time
    #[arg(long, value_name = "N")]
    pub seq: Option<usize>,
    /// Numbers in a layer, for one token or point
    #[arg(long, value_name = "N")]
    pub width: Option<usize>,
    /// Layers, or blocks
    #[arg(long, value_name = "N")]
    pub layers: Option<usize>,
    /// Attention heads
    #[arg(long, value_name = "N")]
    pub heads: Option<usize>,
    /// Heads of keys and values, which groups of attention heads share
    #[arg(long, value_name = "N")]
    pub key_heads: Option<usize>,
    /// Numbers in the middle of an MLP, for one token
    #[arg(long, value_name = "N")]
    pub hidden: Option<usize>,
    /// Blocks from the input on that are not trained, with what stands before them
    #[arg(long, value_name = "N")]
    pub freeze: Option<usize>,
    /// Tokens that there are
    #[arg(long, value_name = "N")]
    pub vocab: Option<usize>,
    /// Places in a sequence that have an embedding
    #[arg(long, value_name = "N")]
    pub positions: Option<usize>,
    /// Classes that images are told apart into
    #[arg(long, value_name = "N")]
    pub classes: Option<usize>,
    /// Height and width of an image, in pixels
    #[arg(long, value_name = "N")]
    pub image: Option<usize>,
    /// Height and width of a patch, in pixels
    #[arg(long, value_name = "N")]
    pub patch: Option<usize>,
    /// Points along each ray
    #[arg(long, value_name = "N")]
    pub samples: Option<usize>,
    /// Points that go through the network at a time
    #[arg(long, value_name = "N")]
    pub chunk: Option<usize>,
    /// Zeros around the image
    #[arg(long, value_name = "N")]
    pub padding: Option<usize>,
    /// Type of parameters and activations
    #[arg(long, value_name = "TYPE", value_parser = PossibleValuesParser::new(FRACTIONS))]
    pub dtype: Option<String>,
    /// Type in which products are computed, whatever the parameters' type
    #[arg(long, value_name = "TYPE", value_parser = PossibleValuesParser::new(FRACTIONS))]
    pub autocast: Option<String>,
    /// Freeze the weights, and train adapters of rank R beside them
    #[arg(long, value_name = "R")]
    pub lora: Option<usize>,
    /// Type of the adapters
    #[arg(long, value_name = "TYPE", value_parser = PossibleValuesParser::new(FRACTIONS))]
    pub adapters: Option<String>,
    /// Keep only the input of each block, and run it again in backward
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
