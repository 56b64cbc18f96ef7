//! The options of a built-in training step, for `highwater record` and `highwater plan`.

use std::str::FromStr;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Arg, ArgMatches, Args, Command, FromArgMatches};
use highwater_engine::DType;
use highwater_engine::optim::Form;
use highwater_engine::scenario::{Checkpoint, OptimizerKind, Options, Sizes};
use highwater_snapshots::ScopePattern;
use highwater_snapshots::scope_pattern::ScopePatternError;

/// Options of a training step that all scenarios share.
#[derive(Clone, Debug, Args)]
pub struct StepArguments {
    /// Number of training steps
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub steps: u32,
    /// Optimizer [default: the scenario's]
    #[arg(long, value_name = "NAME", value_parser = optimizer_parser())]
    pub optimizer: Option<OptimizerKind>,
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
    /// Save everything that backward reads, as PyTorch does, even if it is cheap to recompute
    #[arg(long)]
    pub no_recompute: bool,
    /// Settings of the caching allocator, as in PyTorch: expandable_segments:True,max_split_size_mb:128
    #[arg(long, value_name = "CONF")]
    pub alloc_conf: Option<String>,
    /// Random seed
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
}

/// A scenario and its options, given instead of a recording.
#[derive(Clone, Debug, Args)]
pub struct ScenarioArguments {
    /// Built-in training step, with the options of `record`, in place of a recording
    #[arg(long, value_name = "NAME", conflicts_with = "file")]
    pub scenario: Option<String>,
    /// The options of the training step.
    #[command(flatten)]
    pub step: StepArguments,
    /// The model and its data.
    #[command(flatten)]
    pub model: ModelArguments,
}

/// The model and data of a scenario. Each scenario has some of these options; `record --list` names them.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "The scenario's model and data (each scenario has some of these)")]
pub struct ModelArguments {
    /// Variant of the scenario; `--list` names them
    #[arg(long, value_name = "NAME")]
    pub variant: Option<String>,
    /// The sizes of the model and of its batch.
    #[command(flatten)]
    pub sizes: SizeArguments,
    /// Dtype of parameters and activations
    #[arg(long, value_name = "TYPE", value_parser = dtype_parser())]
    pub dtype: Option<DType>,
    /// Dtype of matrix products, independent of that of the parameters (autocast)
    #[arg(long, value_name = "TYPE", value_parser = dtype_parser())]
    pub autocast: Option<DType>,
    /// Freeze the weights and train LoRA adapters of rank R
    #[arg(long, value_name = "R")]
    pub lora: Option<usize>,
    /// Dtype of the adapters
    #[arg(long, value_name = "TYPE", value_parser = dtype_parser())]
    pub adapters: Option<DType>,
    /// Activation checkpointing: save only each block's input and recompute the rest in backward; with PATTERN, of the
    /// modules whose paths match, such as h.3, h.*.mlp or h.{0-9} (repeatable)
    #[arg(long, value_name = "PATTERN", num_args = 0..=1, default_missing_value = "", action = clap::ArgAction::Append)]
    pub checkpoint: Vec<CheckpointArgument>,
    /// Split the batch into N micro-batches and accumulate their gradients
    #[arg(long, value_name = "N")]
    pub accumulate: Option<usize>,
}

/// A value of `--checkpoint`: a pattern, or the blocks of the model if there is none.
#[derive(Clone, Debug)]
pub struct CheckpointArgument(Option<ScopePattern>);

impl FromStr for CheckpointArgument {
    type Err = ScopePatternError;

    fn from_str(text: &str) -> Result<Self, ScopePatternError> {
        if text.is_empty() { Ok(Self(None)) } else { text.parse().map(Some).map(Self) }
    }
}

/// The sizes of a scenario, each of which is an option with a number.
#[derive(Clone, Copy, Debug, Default)]
pub struct SizeArguments(pub Sizes);

impl Args for SizeArguments {
    fn augment_args(command: Command) -> Command {
        let argument = |(option, about): &(&'static str, &'static str)| {
            let argument = Arg::new(*option).long(option.trim_start_matches('-')).value_name("N").help(*about);
            argument.value_parser(clap::value_parser!(usize))
        };
        command.args(Sizes::OPTIONS.iter().map(argument))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for SizeArguments {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut sizes = Self::default();
        sizes.update_from_arg_matches(matches)?;
        Ok(sizes)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for (option, _) in Sizes::OPTIONS {
            if let (Some(size), Some(given)) = (self.0.of_option(option), matches.get_one::<usize>(option)) {
                *size = Some(*given);
            }
        }
        Ok(())
    }
}

fn optimizer_parser() -> impl TypedValueParser<Value = OptimizerKind> {
    PossibleValuesParser::new(OptimizerKind::ALL.iter().map(|kind| kind.name()))
        .try_map(|name| name.parse::<OptimizerKind>())
}

fn dtype_parser() -> impl TypedValueParser<Value = DType> {
    let floats = DType::ALL.into_iter().filter(|dtype| dtype.is_float()).map(DType::name);
    PossibleValuesParser::new(floats).map(|name| DType::from_name(&name).expect("the value is not the name of a dtype"))
}

impl StepArguments {
    /// Returns the options of a run of `model` on the accounting device.
    pub(crate) fn options(&self, model: &ModelArguments) -> Options {
        let forms = [(self.foreach, Form::Foreach), (self.no_foreach, Form::PerTensor), (self.fused, Form::Fused)];
        Options {
            steps: self.steps,
            sizes: model.sizes.0,
            dtype: model.dtype,
            autocast: model.autocast,
            lora: model.lora,
            adapters: model.adapters,
            variant: model.variant.clone(),
            checkpoint: Checkpoint {
                blocks: model.checkpoint.iter().any(|argument| argument.0.is_none()),
                scopes: model.checkpoint.iter().filter_map(|argument| argument.0.clone()).collect(),
            },
            accumulate: model.accumulate,
            no_recompute: self.no_recompute,
            optimizer: self.optimizer,
            form: forms.into_iter().find_map(|(is_given, form)| is_given.then_some(form)),
            learning_rate: self.learning_rate,
            weight_decay: self.weight_decay,
            momentum: self.momentum,
            optimizer_in_backward: self.optimizer_in_backward,
            alloc_conf: self.alloc_conf.clone(),
            seed: self.seed,
            ..Options::default()
        }
    }
}
