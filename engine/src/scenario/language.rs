//! Decoders trained to predict the next token of random sequences: GPT-2, Falcon-7B and Llama-3-8B.

use highwater_recorder::{Category, scope};

use super::definition::{Scenario, ScenarioInfo, Variant};
use super::options::{OptimizerKind, Options};
use super::task::{Reduction, Task, checkpoint_if_asked, data_rng, freeze_if_asked, of_batch};
use crate::device::Device;
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::models::{Falcon, FalconSize, Gpt2, Gpt2Size, LanguageModel, Llama, LlamaSize};
use crate::nn::{Init, LoraOptions};
use crate::rng::Rng;
use crate::shape::Shape;
use crate::tensor::Tensor;

/// Target of rows that are ignored in the loss.
const NO_TARGET: i64 = -100;

const FULL: &str = "full";
const ALL_LINEAR: &str = "lora-all-linear";

/// The options of models with grouped queries.
const GROUPED_QUERY_OPTIONS: [&str; 14] = [
    "--batch",
    "--accumulate",
    "--seq",
    "--width",
    "--layers",
    "--heads",
    "--key-heads",
    "--hidden",
    "--freeze",
    "--vocab",
    "--dtype",
    "--lora",
    "--adapters",
    "--checkpoint",
];

pub(crate) const GPT2: Scenario = Scenario {
    info: ScenarioInfo {
        name: "gpt2",
        about: "GPT-2 (124 million parameters, f32) on 8 sequences of 1024 tokens: peak at the start of backward",
        options: &[
            "--batch",
            "--accumulate",
            "--seq",
            "--width",
            "--layers",
            "--heads",
            "--freeze",
            "--vocab",
            "--positions",
            "--dtype",
            "--autocast",
            "--lora",
            "--adapters",
            "--checkpoint",
        ],
        variants: &[],
    },
    optimizer: Some(OptimizerKind::AdamW),
    build: gpt2,
};

pub(crate) const FALCON_7B: Scenario = Scenario {
    info: ScenarioInfo {
        name: "falcon-7b",
        about: "fine-tuning of Falcon-7B in bf16 on 512 tokens: 51.6 GiB after the step, 64.5 GiB at the peak, in temporaries of the optimizer",
        options: &GROUPED_QUERY_OPTIONS,
        variants: &[],
    },
    optimizer: Some(OptimizerKind::AdamW),
    build: falcon,
};

pub(crate) const LLAMA_3_8B: Scenario = Scenario {
    info: ScenarioInfo {
        name: "llama-3-8b",
        about: "Llama-3-8B in bf16 on 1024 tokens with LoRA adapters of rank 16 on queries and values: nothing is saved for frozen layers",
        options: &GROUPED_QUERY_OPTIONS,
        variants: &[
            Variant { name: ALL_LINEAR, about: "LoRA adapters on every linear layer of the blocks" },
            Variant { name: FULL, about: "full fine-tuning without adapters" },
        ],
    },
    optimizer: Some(OptimizerKind::AdamW),
    build: llama,
};

fn gpt2(device: &Device, options: &Options) -> Result<Box<dyn Task>> {
    let (sizes, known) = (&options.sizes, Gpt2Size::SMALLEST_PUBLISHED);
    let seq = sizes.seq.unwrap_or(known.positions);
    let width = sizes.width.unwrap_or(known.width);
    let size = Gpt2Size {
        vocabulary: sizes.vocab.unwrap_or(known.vocabulary),
        positions: sizes.positions.unwrap_or(known.positions.max(seq)),
        layers: sizes.layers.unwrap_or(known.layers),
        heads: sizes.heads.unwrap_or(if width == known.width { known.heads } else { (width / 64).max(1) }),
        width,
        ..known
    };
    let dtype = options.dtype.unwrap_or(DType::F32);
    let lora = adapters_if_asked("gpt2", &["c_attn"], options)?;
    let model = Gpt2::new(&mut Init::new(device, dtype, options.seed), size, lora.as_ref())?;
    checkpoint_if_asked(&model, "h.*", options)?;
    freeze_if_asked(&model, &["wte", "wpe"], "h", options)?;
    next_token(model, [sizes.batch.unwrap_or(8), seq], size.vocabulary, device, options)
}

fn falcon(device: &Device, options: &Options) -> Result<Box<dyn Task>> {
    let (sizes, known) = (&options.sizes, FalconSize::FALCON_7B);
    let width = sizes.width.unwrap_or(known.width);
    let size = FalconSize {
        vocabulary: sizes.vocab.unwrap_or(known.vocabulary),
        layers: sizes.layers.unwrap_or(known.layers),
        width,
        heads: sizes.heads.unwrap_or(if width == known.width { known.heads } else { (width / 64).max(1) }),
        key_heads: sizes.key_heads.unwrap_or(known.key_heads),
        hidden: sizes.hidden.unwrap_or(4 * width),
    };
    let dtype = options.dtype.unwrap_or(DType::Bf16);
    let lora = adapters_if_asked("falcon-7b", &["query_key_value"], options)?;
    let model = Falcon::new(&mut Init::new(device, dtype, options.seed), size, lora.as_ref())?;
    checkpoint_if_asked(&model, "h.*", options)?;
    freeze_if_asked(&model, &["word_embeddings"], "h", options)?;
    let shape = [sizes.batch.unwrap_or(1), sizes.seq.unwrap_or(512)];
    next_token(model, shape, size.vocabulary, device, options)
}

fn llama(device: &Device, options: &Options) -> Result<Box<dyn Task>> {
    let (sizes, known) = (&options.sizes, LlamaSize::LLAMA_3_8B);
    let width = sizes.width.unwrap_or(known.width);
    let heads = sizes.heads.unwrap_or(if width == known.width { known.heads } else { (width / 128).max(1) });
    let size = LlamaSize {
        vocabulary: sizes.vocab.unwrap_or(known.vocabulary),
        layers: sizes.layers.unwrap_or(known.layers),
        width,
        heads,
        key_heads: sizes.key_heads.unwrap_or(if heads.is_multiple_of(4) { heads / 4 } else { heads }),
        hidden: sizes.hidden.unwrap_or(if width == known.width { known.hidden } else { width / 2 * 7 }),
        ..known
    };
    let dtype = options.dtype.unwrap_or(DType::Bf16);
    let rank = options.lora.unwrap_or(16);
    let lora = match options.variant.as_deref() {
        Some(FULL) if options.lora.is_some() || options.adapters.is_some() => {
            let what = "the variant full trains all parameters and has no adapters; leave --lora and --adapters out";
            return Err(Error::Setting { op: "llama-3-8b", what: what.to_owned() });
        }
        Some(FULL) => None,
        Some(ALL_LINEAR) => Some(adapters(rank, Llama::LORA_TARGETS, options)),
        _ => Some(adapters(rank, &["q_proj", "v_proj"], options)),
    };
    let model = Llama::new(&mut Init::new(device, dtype, options.seed), size, lora.as_ref())?;
    checkpoint_if_asked(&model, "layers.*", options)?;
    freeze_if_asked(&model, &["embed_tokens"], "layers", options)?;
    let shape = [sizes.batch.unwrap_or(1), sizes.seq.unwrap_or(1024)];
    next_token(model, shape, size.vocabulary, device, options)
}

fn adapters_if_asked(
    op: &'static str,
    targets: &'static [&'static str],
    options: &Options,
) -> Result<Option<LoraOptions>> {
    if options.lora.is_none() && options.adapters.is_some() {
        let what = "--adapters sets the dtype of LoRA adapters; it needs --lora".to_owned();
        return Err(Error::Setting { op, what });
    }
    Ok(options.lora.map(|rank| adapters(rank, targets, options)))
}

fn adapters(rank: usize, targets: &'static [&'static str], options: &Options) -> LoraOptions {
    LoraOptions { dtype: options.adapters, ..LoraOptions::new(rank, targets) }
}

/// Returns the task of training `model` on next-token prediction. Every sequence has the same number of targets, so the
/// mean over all targets is the mean of the micro-batches' means.
fn next_token<M: LanguageModel + 'static>(
    model: M,
    shape: [usize; 2],
    vocabulary: usize,
    device: &Device,
    options: &Options,
) -> Result<Box<dyn Task>> {
    let [tokens, targets] = random_sequences(shape, vocabulary, device, options)?;
    of_batch(model, (shape[0], Reduction::Mean), move |model, part| {
        let (tokens, targets) = (part.of(&tokens)?, part.of(&targets)?);
        let hidden = model.hidden(&tokens)?;
        let width = hidden.shape()[2];
        let rows = hidden.reshape([targets.elements(), width])?;
        drop(hidden);
        rows.linear_cross_entropy(model.head_weight(), &targets, Some(NO_TARGET))
    })
}

/// Returns random tokens, `[batch, length]`, and as `[batch · length]` the next token after each of them, or
/// [`NO_TARGET`] at the end of a sequence.
fn random_sequences(shape: [usize; 2], vocabulary: usize, device: &Device, options: &Options) -> Result<[Tensor; 2]> {
    let _category = scope::category(Category::Input);
    let [batch, seq] = shape;
    let rows = batch.saturating_mul(seq);
    if !device.has_values() {
        let empty = |shape: Shape| Tensor::as_from_slice(shape, DType::I64, device);
        return Ok([empty(shape.into())?, empty(rows.into())?]);
    }
    let tokens = random_tokens(rows, vocabulary, &mut data_rng(options));
    let next = |place: usize| if (place + 1).is_multiple_of(seq) { NO_TARGET } else { tokens[place + 1] };
    let targets: Vec<i64> = (0..tokens.len()).map(next).collect();
    Ok([Tensor::from_slice(&tokens, shape, device)?, Tensor::from_slice(&targets, rows, device)?])
}

fn random_tokens(count: usize, vocabulary: usize, rng: &mut Rng) -> Vec<i64> {
    let draw = rng.draw(count);
    let words = (0..count.div_ceil(4) as u64).flat_map(|group| draw.words(group));
    words.take(count).map(|word| i64::from(word) % vocabulary as i64).collect()
}
