//! The options of a scenario's run.

use std::fmt;
use std::str::FromStr;

use highwater_recorder::snapshots::scope_pattern::ScopePattern;
use highwater_recorder::snapshots::units::format_exact_bytes;
use highwater_recorder::snapshots::vocabulary;

use super::error::ScenarioError;
use crate::DType;
use crate::optim::Form;

/// Options for running a scenario. `None` means the scenario's default, or the device's for `capacity`.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Device to run on.
    pub device: DeviceChoice,
    /// Number of training steps. With 0, only the setup is recorded.
    pub steps: u32,
    /// Sizes of the model and its data.
    pub sizes: Sizes,
    /// Dtype of parameters and activations.
    pub dtype: Option<DType>,
    /// Autocast dtype of matrix products, independent of the parameters' dtype.
    pub autocast: Option<DType>,
    /// Rank of LoRA adapters, which are trained instead of the weights.
    pub lora: Option<usize>,
    /// Dtype of the adapters.
    pub adapters: Option<DType>,
    /// Name of a variant of the scenario.
    pub variant: Option<String>,
    /// Modules to checkpoint. Each saves only its input, and is recomputed in backward.
    pub checkpoint: Checkpoint,
    /// Number of micro-batches into which each step's batch is split, with accumulated gradients.
    pub accumulate: Option<usize>,
    /// Whether operations save everything that their gradients read, even tensors that are cheap to recompute.
    pub no_recompute: bool,
    /// Optimizer.
    pub optimizer: Option<OptimizerKind>,
    /// The form of the optimizer's loop over the parameters.
    pub form: Option<Form>,
    /// Learning rate.
    pub learning_rate: Option<f64>,
    /// Weight decay.
    pub weight_decay: Option<f64>,
    /// Momentum of SGD; 0.9 by default.
    pub momentum: Option<f64>,
    /// Whether to update each parameter as soon as its gradient is complete, without an optimizer phase.
    pub optimizer_in_backward: bool,
    /// Memory of the device in bytes, at most 64 PiB and, on the CPU, at most the host's memory.
    pub capacity: Option<u64>,
    /// Settings of the caching allocator, in PyTorch's syntax.
    pub alloc_conf: Option<String>,
    /// Random seed.
    pub seed: u64,
    /// Whether to record uses of blocks.
    pub uses: bool,
    /// Whether to record the floating-point operations and bytes of each operation.
    pub costs: bool,
}

macro_rules! sizes {
    ($($name:ident $option:literal $about:literal,)+) => {
        /// Sizes of a model and its data. `None` means the scenario's default.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Sizes {
            $(#[doc = concat!($about, ".")] pub $name: Option<usize>,)+
        }

        impl Sizes {
            /// The command-line option of each size, and its description.
            pub const OPTIONS: &[(&str, &str)] = &[$(($option, $about),)+];

            /// Returns the size that is set by `option`, if there is one.
            pub fn of_option(&mut self, option: &str) -> Option<&mut Option<usize>> {
                match option {
                    $($option => Some(&mut self.$name),)+
                    _ => None,
                }
            }

            fn given(&self) -> impl Iterator<Item = (&'static str, usize)> {
                [$(($option, self.$name),)+].into_iter().filter_map(|(option, size)| Some((option, size?)))
            }
        }
    };
}

sizes! {
    batch "--batch" "Batch size",
    seq "--seq" "Sequence length, or number of time steps",
    width "--width" "Hidden size",
    layers "--layers" "Number of layers or blocks",
    heads "--heads" "Number of attention heads",
    key_heads "--key-heads" "Number of key-value heads (grouped-query attention)",
    hidden "--hidden" "MLP hidden size",
    freeze "--freeze" "Freeze the first N blocks (and the embeddings)",
    vocab "--vocab" "Vocabulary size",
    positions "--positions" "Maximum sequence length",
    classes "--classes" "Number of classes",
    image "--image" "Height and width of an image, in pixels",
    patch "--patch" "Height and width of a patch, in pixels",
    samples "--samples" "Samples per ray",
    chunk "--chunk" "Points per forward pass",
    padding "--padding" "Padding of the image in pixels",
}

impl Options {
    /// Returns the options that are set and not supported by every scenario, with their command-line names and values.
    pub(crate) fn given(&self) -> Vec<(&'static str, String)> {
        let mut given: Vec<_> = self.sizes.given().map(|(option, size)| (option, size.to_string())).collect();
        let types = [("--dtype", self.dtype), ("--autocast", self.autocast), ("--adapters", self.adapters)];
        given.extend(types.into_iter().filter_map(|(option, dtype)| Some((option, dtype?.to_string()))));
        given.extend(self.lora.map(|rank| ("--lora", rank.to_string())));
        given.extend(self.variant.clone().map(|variant| ("--variant", variant)));
        given.extend((self.checkpoint != Checkpoint::default()).then(|| ("--checkpoint", "given".to_owned())));
        given.extend(self.accumulate.map(|count| ("--accumulate", count.to_string())));
        given
    }
}

impl Options {
    /// Returns the command-line arguments for these options, without options at their defaults, and without
    /// [`Self::steps`], [`Self::uses`] and [`Self::costs`], which concern the recording.
    pub fn words(&self) -> Vec<String> {
        let mut words: Vec<String> = Vec::new();
        let mut give = |option: &str, value: Option<String>| {
            if let Some(value) = value {
                words.extend([option.to_owned(), value]);
            }
        };
        give("--device", (self.device != DeviceChoice::Meta).then(|| self.device.to_string()));
        for (option, value) in self.given() {
            if option != "--checkpoint" {
                give(option, Some(value));
            }
        }
        for pattern in &self.checkpoint.scopes {
            give("--checkpoint", Some(pattern.to_string()));
        }
        give("--optimizer", self.optimizer.map(|kind| kind.to_string()));
        give("--learning-rate", self.learning_rate.map(|value| value.to_string()));
        give("--weight-decay", self.weight_decay.map(|value| value.to_string()));
        give("--momentum", self.momentum.map(|value| value.to_string()));
        give("--alloc-conf", self.alloc_conf.clone());
        give("--capacity", self.capacity.map(format_exact_bytes));
        give("--seed", (self.seed != 0).then(|| self.seed.to_string()));
        let form = self.form.map(|form| match form {
            Form::Foreach => "--foreach",
            Form::PerTensor => "--no-foreach",
            Form::Fused => "--fused",
        });
        let flags = [
            form,
            self.optimizer_in_backward.then_some("--optimizer-in-backward"),
            self.no_recompute.then_some("--no-recompute"),
            self.checkpoint.blocks.then_some("--checkpoint"),
        ];
        words.extend(flags.into_iter().flatten().map(str::to_owned));
        words
    }
}

impl Default for Options {
    /// Returns options for three steps on the accounting device, with the scenario's defaults.
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
            checkpoint: Checkpoint::default(),
            accumulate: None,
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
            costs: false,
        }
    }
}

/// The modules of a scenario's model to checkpoint. By default, there are none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// Whether to checkpoint all blocks of the model.
    pub blocks: bool,
    /// Patterns of the paths of further modules.
    pub scopes: Vec<ScopePattern>,
}

impl Checkpoint {
    /// All blocks of the model.
    pub const BLOCKS: Self = Self { blocks: true, scopes: Vec::new() };
}

/// Device to run a scenario on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DeviceChoice {
    /// The accounting device, which tracks memory, computes nothing and needs no hardware.
    #[default]
    Meta,
    /// The accounting device, with the workspace of a CUDA device.
    MetaForCuda,
    /// The host's CPU.
    Cpu,
    /// The CUDA device with this ordinal.
    Cuda(u16),
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let ordinal = |text: &str| {
            text.parse().map_err(|_| format!("invalid device number '{text}': expected an integer, as in cuda:0"))
        };
        match text.split_once(':') {
            None if text == "meta" => Ok(Self::Meta),
            Some(("meta", "cuda")) => Ok(Self::MetaForCuda),
            None if text == "cpu" => Ok(Self::Cpu),
            None if text == "cuda" => Ok(Self::Cuda(0)),
            Some(("cuda", number)) => ordinal(number).map(Self::Cuda),
            _ => Err("expected meta, meta:cuda, cpu, cuda or cuda:N".to_owned()),
        }
    }
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

vocabulary!(
    /// Optimizers of scenarios, with PyTorch's defaults except for SGD's momentum.
    OptimizerKind {
        /// Stochastic gradient descent with a momentum of 0.9, unless another is set.
        Sgd = "sgd",
        /// Adam.
        Adam = "adam",
        /// Adam with decoupled weight decay.
        AdamW = "adamw",
        /// AdamW with 8-bit state.
        AdamW8bit = "adamw8bit",
    }
);

impl FromStr for OptimizerKind {
    type Err = ScenarioError;

    fn from_str(name: &str) -> Result<Self, ScenarioError> {
        Self::from_name(name).ok_or_else(|| ScenarioError::UnknownOptimizer { name: name.to_owned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_read_back_and_mistakes_say_what_is_allowed() {
        for text in ["meta", "meta:cuda", "cpu", "cuda:3"] {
            assert_eq!(text.parse::<DeviceChoice>().unwrap().to_string(), text);
        }
        assert_eq!("cuda".parse(), Ok(DeviceChoice::Cuda(0)));
        assert!("cuda:x".parse::<DeviceChoice>().unwrap_err().contains("cuda:0"));
        assert!("tpu".parse::<DeviceChoice>().unwrap_err().contains("meta, meta:cuda, cpu"));
    }

    #[test]
    fn every_size_is_set_by_its_option() {
        let mut sizes = Sizes::default();
        for (value, (option, _)) in Sizes::OPTIONS.iter().enumerate() {
            *sizes.of_option(option).unwrap() = Some(value);
        }
        let given: Vec<_> = sizes.given().collect();
        assert_eq!(given, Sizes::OPTIONS.iter().enumerate().map(|(n, (option, _))| (*option, n)).collect::<Vec<_>>());
        assert_eq!(sizes.of_option("--size"), None);
    }
}
