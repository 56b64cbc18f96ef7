//! The options of a scenario's run.

use std::fmt;
use std::str::FromStr;

use super::error::ScenarioError;
use crate::dtype::DType;
use crate::optim::Form;

/// How a scenario is run. What is `None` is as the scenario has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Where.
    pub device: DeviceChoice,
    /// How many training steps; with none, the setup alone is recorded.
    pub steps: u32,
    /// Sizes of the model and its data.
    pub sizes: Sizes,
    /// The type of parameters and activations.
    pub dtype: Option<DType>,
    /// The type in which products are computed, whatever the parameters' type.
    pub autocast: Option<DType>,
    /// The rank of the adapters that are trained instead of the weights.
    pub lora: Option<usize>,
    /// The type of the adapters.
    pub adapters: Option<DType>,
    /// Another form of the scenario, by its name.
    pub variant: Option<String>,
    /// Whether each block keeps only its input, and runs again in backward.
    pub checkpoint: bool,
    /// Whether operations keep all that their gradients read, also what is cheap to compute again.
    pub no_recompute: bool,
    /// The optimizer.
    pub optimizer: Option<OptimizerKind>,
    /// How the optimizer goes through the parameters.
    pub form: Option<Form>,
    /// How far a step goes.
    pub learning_rate: Option<f64>,
    /// What parameters lose of themselves in a step.
    pub weight_decay: Option<f64>,
    /// The share of the former steps that SGD keeps; 0.9 if not given.
    pub momentum: Option<f64>,
    /// Whether each parameter is changed as soon as its gradient is complete; there is no optimizer phase then.
    pub optimizer_in_backward: bool,
    /// Bytes that the device has, up to 64 PiB; on the cpu, at most what the host has.
    pub capacity: Option<u64>,
    /// Settings of the caching allocator, in PyTorch's grammar.
    pub alloc_conf: Option<String>,
    /// Where random numbers begin.
    pub seed: u64,
    /// Whether the recording says when blocks are used.
    pub uses: bool,
}

/// Sizes of a model and its data. What is `None` is as the scenario has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Examples in a batch.
    pub batch: Option<usize>,
    /// Tokens in a sequence, or steps in time.
    pub seq: Option<usize>,
    /// Numbers in a layer, for one token or point.
    pub width: Option<usize>,
    /// Layers, or blocks.
    pub layers: Option<usize>,
    /// Attention heads.
    pub heads: Option<usize>,
    /// Heads of keys and values, which groups of attention heads share.
    pub key_heads: Option<usize>,
    /// Numbers in the middle of an MLP, for one token.
    pub hidden: Option<usize>,
    /// Blocks from the input on that are not trained, with what stands before them.
    pub freeze: Option<usize>,
    /// Vocabulary size.
    pub vocab: Option<usize>,
    /// Places in a sequence that have an embedding.
    pub positions: Option<usize>,
    /// Number of classes.
    pub classes: Option<usize>,
    /// Height and width of an image, in pixels.
    pub image: Option<usize>,
    /// Height and width of a patch, in pixels.
    pub patch: Option<usize>,
    /// Points along each ray.
    pub samples: Option<usize>,
    /// Points that go through the network at a time.
    pub chunk: Option<usize>,
    /// Zeros around the image.
    pub padding: Option<usize>,
}

impl Sizes {
    /// Those that are given, by their names on the command line.
    pub(crate) fn given(&self) -> impl Iterator<Item = (&'static str, usize)> {
        let all = [
            ("--batch", self.batch),
            ("--seq", self.seq),
            ("--width", self.width),
            ("--layers", self.layers),
            ("--heads", self.heads),
            ("--key-heads", self.key_heads),
            ("--hidden", self.hidden),
            ("--freeze", self.freeze),
            ("--vocab", self.vocab),
            ("--positions", self.positions),
            ("--classes", self.classes),
            ("--image", self.image),
            ("--patch", self.patch),
            ("--samples", self.samples),
            ("--chunk", self.chunk),
            ("--padding", self.padding),
        ];
        all.into_iter().filter_map(|(option, size)| Some((option, size?)))
    }
}

impl Options {
    /// Those that are given and that not every scenario has, by their names on the command line, each with its value.
    pub(crate) fn given(&self) -> Vec<(&'static str, String)> {
        let mut given: Vec<_> = self.sizes.given().map(|(option, size)| (option, size.to_string())).collect();
        let types = [("--dtype", self.dtype), ("--autocast", self.autocast), ("--adapters", self.adapters)];
        given.extend(types.into_iter().filter_map(|(option, dtype)| Some((option, dtype?.to_string()))));
        given.extend(self.lora.map(|rank| ("--lora", rank.to_string())));
        given.extend(self.variant.clone().map(|variant| ("--variant", variant)));
        given.extend(self.checkpoint.then(|| ("--checkpoint", "given".to_owned())));
        given
    }
}

impl Default for Options {
    /// Three steps on the accounting device, as the scenario has them.
    fn default() -> Self {
        Self {
            device: DeviceChoice::Meta,
            steps: 3,
            sizes: Sizes::default(),
            dtype: None,
            autocast: None,
            lora: None,
            adapters: None,
            variant: None,
            checkpoint: false,
            no_recompute: false,
            optimizer: None,
            form: None,
            learning_rate: None,
            weight_decay: None,
            momentum: None,
            optimizer_in_backward: false,
            capacity: None,
            alloc_conf: None,
            seed: 0,
            uses: false,
        }
    }
}

/// Where a scenario runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// On the accounting device: every byte is counted, nothing is computed, nothing is needed.
    #[default]
    Meta,
    /// On the accounting device, with what a CUDA device keeps for itself.
    MetaForCuda,
    /// On the host.
    Cpu,
    /// On the GPU of this number.
    Cuda(u16),
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Meta => f.write_str("meta"),
            Self::MetaForCuda => f.write_str("meta:cuda"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
        }
    }
}

/// An update rule, with PyTorch's defaults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OptimizerKind {
    /// Stochastic gradient descent with a momentum of 0.9.
    Sgd,
    /// Adam.
    Adam,
    /// Adam with decoupled weight decay.
    AdamW,
}

impl OptimizerKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Sgd, Self::Adam, Self::AdamW];

    /// The one spelling, on the command line and in tables.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sgd => "sgd",
            Self::Adam => "adam",
            Self::AdamW => "adamw",
        }
    }
}

impl fmt::Display for OptimizerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for OptimizerKind {
    type Err = ScenarioError;

    fn from_str(name: &str) -> Result<Self, ScenarioError> {
        let found = Self::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| ScenarioError::UnknownOptimizer { name: name.to_owned() })
    }
}
