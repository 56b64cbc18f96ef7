//! Tests that decoders have PyTorch's values and sizes, and keep less memory than in PyTorch.

use highwater_engine::models::{Falcon, FalconSize, Gpt2, Gpt2Size, LanguageModel, Llama, LlamaSize};
use highwater_engine::nn::{Init, LoraOptions, Module, Parameter, checkpoint_scopes};
use highwater_engine::optim::{AdamW, Form, Optimizer, RuleOptimizer};
use highwater_engine::{DType, Device, Result, Tensor, no_grad};
use highwater_recorder::Category;

/// Losses and gradients by PyTorch, written by `make.py` beside them.
const GPT2: &str = include_str!("../../testdata/pytorch/decoders/gpt2.txt");
const FALCON: &str = include_str!("../../testdata/pytorch/decoders/falcon.txt");
const LLAMA: &str = include_str!("../../testdata/pytorch/decoders/llama.txt");
const LLAMA_LORA: &str = include_str!("../../testdata/pytorch/decoders/llama_lora.txt");

const VOCABULARY: usize = 11;

/// The numbers that the script computes from their position.
fn fill(parameters: &[Parameter]) {
    let _mode = no_grad();
    let mut first = 0;
    for Parameter { tensor, .. } in parameters {
        let values: Vec<f64> = (first..first + tensor.elements()).map(|i| 0.3 * (0.7 * i as f64 + 1.0).sin()).collect();
        tensor.copy_(&Tensor::from_slice(&values, tensor.shape(), tensor.device()).unwrap()).unwrap();
        first += tensor.elements();
    }
}

fn loss(model: &dyn LanguageModel, tokens: &Tensor, labels: &Tensor) -> Result<Tensor> {
    model.forward(tokens)?.reshape([labels.elements(), model.head_weight().shape()[0]])?.cross_entropy(labels, None)
}

fn whole(numbers: impl Iterator<Item = usize>, modulus: usize) -> Vec<i64> {
    numbers.map(|number| (number % modulus) as i64).collect()
}

/// Trains as the script does and compares every number in `fixture`.
fn train_like_pytorch(fixture: &str, make: impl Fn(&mut Init) -> Box<dyn LanguageModel>) {
    let device = Device::cpu();
    let tokens = whole((0..10).map(|i| 5 * i + i * i), VOCABULARY);
    let tokens = Tensor::from_slice(&tokens, [2, 5], &device).unwrap();
    let labels = Tensor::from_slice(&whole((0..10).map(|i| 3 * i + 1), VOCABULARY), 10, &device).unwrap();
    let model = make(&mut Init::new(&device, DType::F64, 0));
    let parameters = model.parameters();
    fill(&parameters);
    let (learning_rate, betas, epsilon, weight_decay) = (0.05, [0.8, 0.95], 1e-3, 0.2);
    let rule = AdamW { learning_rate, betas, epsilon, weight_decay, form: Form::default() };
    let mut optimizer = RuleOptimizer::new(rule, parameters.clone()).unwrap();
    let near = |found: f64, expected: &str, what: &str| {
        let expected: f64 = expected.parse().unwrap();
        assert!((found - expected).abs() <= 1e-11, "{what}: {found} in place of PyTorch's {expected}");
    };
    let losses = fixture.lines().find_map(|line| line.strip_prefix("losses adamw-decay ")).unwrap();
    for (step, expected) in losses.split(' ').enumerate() {
        let loss = loss(&*model, &tokens, &labels).unwrap();
        loss.backward().unwrap();
        near(loss.item().unwrap(), expected, "loss");
        if step == 0 {
            let trained: Vec<&Parameter> = parameters.iter().filter(|p| p.tensor.requires_grad()).collect();
            let expected: Vec<&str> = fixture.lines().filter_map(|line| line.strip_prefix("grad ")).collect();
            assert_eq!(expected.len(), trained.len(), "as many parameters are trained as in PyTorch's model");
            for (Parameter { path, tensor, .. }, line) in trained.into_iter().zip(expected) {
                let words: Vec<&str> = line.split(' ').collect();
                assert_eq!(path, words[0], "the same names in the same order");
                let grad = tensor.grad().expect("every trained parameter has a gradient").to_vec::<f64>().unwrap();
                near(grad.iter().sum(), words[1], path);
                near(grad.iter().enumerate().map(|(i, value)| value * (i as f64).cos()).sum(), words[2], path);
            }
            assert!(parameters.iter().all(|p| p.tensor.grad().is_some() == p.tensor.requires_grad()));
        }
        optimizer.step().unwrap();
        optimizer.zero_grad();
    }
}

#[test]
fn gpt2_has_pytorchs_gradients_and_losses() {
    let size = Gpt2Size { vocabulary: VOCABULARY, positions: 7, layers: 2, width: 8, heads: 2, dropout: 0.0 };
    train_like_pytorch(GPT2, |init| Box::new(Gpt2::new(init, size, None).unwrap()));
}

#[test]
fn falcon_has_pytorchs_gradients_and_losses() {
    let size = FalconSize { vocabulary: VOCABULARY, layers: 2, width: 12, heads: 3, key_heads: 1, hidden: 20 };
    train_like_pytorch(FALCON, |init| Box::new(Falcon::new(init, size, None).unwrap()));
}

#[test]
fn llama_has_pytorchs_gradients_and_losses_whole_and_with_corrections() {
    let (vocabulary, rotary_base) = (VOCABULARY, 500_000.0);
    let size = LlamaSize { vocabulary, layers: 2, width: 16, heads: 4, key_heads: 2, hidden: 24, rotary_base };
    train_like_pytorch(LLAMA, |init| Box::new(Llama::new(init, size, None).unwrap()));
    let lora = LoraOptions { alpha: 3.0, ..LoraOptions::new(2, &["q_proj", "v_proj", "down_proj"]) };
    train_like_pytorch(LLAMA_LORA, |init| Box::new(Llama::new(init, size, Some(&lora)).unwrap()));
}

/// Makes a model of a published size.
type Make = Box<dyn Fn(&mut Init) -> Box<dyn LanguageModel>>;

fn falcon(lora: Option<LoraOptions>) -> Make {
    Box::new(move |init| Box::new(Falcon::new(init, FalconSize::FALCON_7B, lora.as_ref()).unwrap()))
}

fn llama(lora: Option<LoraOptions>) -> Make {
    Box::new(move |init| Box::new(Llama::new(init, LlamaSize::LLAMA_3_8B, lora.as_ref()).unwrap()))
}

fn gpt2() -> Make {
    Box::new(|init| Box::new(Gpt2::new(init, Gpt2Size::SMALLEST_PUBLISHED, None).unwrap()))
}

fn in_f32(lora: LoraOptions) -> LoraOptions {
    LoraOptions { dtype: Some(DType::F32), ..lora }
}

fn live(device: &Device) -> u64 {
    device.allocator().stats().requested_bytes.all.current
}

/// Parameters, and bytes beside them that forward leaves without the logits.
fn measure(make: &Make, dtype: DType, shape: [usize; 2]) -> [u64; 3] {
    let device = Device::accounting(400 << 30);
    let model = make(&mut Init::new(&device, dtype, 0));
    let parameters = model.parameters();
    let elements = parameters.iter().map(|parameter| parameter.tensor.elements() as u64).sum();
    let bytes = live(&device);
    assert_eq!(parameters.iter().map(|parameter| parameter.tensor.bytes()).sum::<u64>(), bytes);
    assert!(parameters.iter().all(|parameter| parameter.tensor.storage().category() == Category::Parameter));
    let tokens = Tensor::zeros(shape, DType::I64, &device).unwrap();
    let start = live(&device);
    let logits = model.forward(&tokens).unwrap();
    [elements, bytes, live(&device) - start - logits.bytes()]
}

/// A model of a published size, and what PyTorch needs for it.
struct Published {
    name: &'static str,
    make: Make,
    dtype: DType,
    tokens: [usize; 2],
    elements: u64,
    bytes: u64,
    /// What is saved for backward, less the logits.
    saved: u64,
}

#[test]
fn published_sizes_have_their_parameters_and_keep_less_than_pytorch() {
    let (qkv, qv) = (LoraOptions::new(16, &["query_key_value"]), LoraOptions::new(16, &["q_proj", "v_proj"]));
    let all = LoraOptions::new(16, Llama::LORA_TARGETS);
    let (f32, bf16) = (DType::F32, DType::Bf16);
    // The last number is that of all saved bytes; Llama's logits are in single precision.
    let of_falcon = |name, lora, numbers: [u64; 3]| {
        let (dtype, tokens, [elements, bytes, saved]) = (bf16, [1, 512], numbers);
        Published { name, make: falcon(lora), dtype, tokens, elements, bytes, saved: saved - 512 * 65_024 * 2 }
    };
    let of_llama = |name, lora, numbers: [u64; 3]| {
        let (dtype, tokens, [elements, bytes, saved]) = (bf16, [1, 1024], numbers);
        Published { name, make: llama(lora), dtype, tokens, elements, bytes, saved: saved - 1024 * 128_256 * 4 }
    };
    let of_gpt2 = |name, dtype: DType, [elements, bytes, saved]: [u64; 3]| {
        let logits = 8 * 1024 * 50_257 * dtype.size() as u64;
        Published { name, make: gpt2(), dtype, tokens: [8, 1024], elements, bytes, saved: saved - logits }
    };
    let cases = [
        of_falcon("falcon", None, [6_921_720_704, 13_843_441_408, 2_022_512_386]),
        of_falcon("falcon, LoRA", Some(qkv), [6_926_439_296, 13_852_878_592, 1_399_523_074]),
        of_falcon("falcon, LoRA in f32", Some(in_f32(qkv)), [6_926_439_296, 13_862_315_776, 1_548_945_154]),
        of_llama("llama", None, [8_030_261_248, 16_060_522_496, 6_049_501_956]),
        of_llama("llama, LoRA", Some(qv), [8_037_076_992, 16_074_153_984, 4_826_858_244]),
        of_llama("llama, LoRA in f32", Some(in_f32(qv)), [8_037_076_992, 16_087_785_472, 5_634_261_764]),
        of_llama("llama, LoRA everywhere", Some(all), [8_072_204_288, 16_144_408_576, 6_040_060_676]),
        of_gpt2("gpt2", f32, [124_439_808, 497_759_232, 6_535_356_612]),
        of_gpt2("gpt2 in bf16", bf16, [124_439_808, 248_879_616, 3_270_861_090]),
    ];
    for Published { name, make, dtype, tokens, elements, bytes, saved } in cases {
        let [found_elements, found_bytes, kept] = measure(&make, dtype, tokens);
        assert_eq!((found_elements, found_bytes), (elements, bytes), "{name}");
        assert!(kept * 10 <= saved * 8, "{name} keeps {kept} bytes, where PyTorch keeps {saved}");
    }
}

/// What forward leaves of a model on `shape` tokens without the logits, for each block that is added to it.
fn kept_by_a_block(make: impl Fn(&mut Init, usize) -> Box<dyn LanguageModel>, dtype: DType, shape: [usize; 2]) -> u64 {
    let kept = |layers| {
        let device = Device::accounting(1 << 40);
        let model = make(&mut Init::new(&device, dtype, 0), layers);
        let start = live(&device);
        let out = model.hidden(&Tensor::zeros(shape, DType::I64, &device).unwrap()).unwrap();
        let kept = live(&device) - start;
        drop(out);
        kept
    };
    let [two, three] = [2, 3].map(kept);
    assert_eq!(kept(4) - three, three - two, "blocks are alike");
    three - two
}

#[test]
fn a_block_keeps_its_products_and_inputs_of_norms_once_and_nothing_else() {
    let (batch, length) = (2, 8);
    let tokens = (batch * length) as u64;
    let size = Gpt2Size { vocabulary: 16, positions: 8, layers: 0, width: 64, heads: 4, dropout: 0.0 };
    let make = |init: &mut Init, layers| {
        Box::new(Gpt2::new(init, Gpt2Size { layers, ..size }, None).unwrap()) as Box<dyn LanguageModel>
    };
    // Both norms' inputs, packed query, key and value, attention's result, the MLP's middle; one number a head, and two
    // a norm, for each token.
    let expected = tokens * ((1 + 3 + 1 + 1 + 4) * 64 + 4 + 2 * 2) * 4;
    assert_eq!(kept_by_a_block(make, DType::F32, [batch, length]), expected);

    let size = FalconSize { vocabulary: 16, layers: 0, width: 48, heads: 3, key_heads: 1, hidden: 192 };
    let make = |lora: Option<LoraOptions>| {
        move |init: &mut Init, layers| {
            Box::new(Falcon::new(init, FalconSize { layers, ..size }, lora.as_ref()).unwrap()) as Box<dyn LanguageModel>
        }
    };
    // One norm's input; query, key and value; attention's result; the MLP's middle.
    let halves = tokens * (48 + 5 * 16 + 48 + 192) * 2;
    let singles = tokens * (3 + 2) * 4;
    assert_eq!(kept_by_a_block(make(None), DType::Bf16, [batch, length]), halves + singles);
    let lora = LoraOptions::new(4, &["query_key_value"]);
    let corrected = halves + singles + tokens * 4 * 2;
    assert_eq!(kept_by_a_block(make(Some(lora)), DType::Bf16, [batch, length]), corrected);
    // Adapters of a wider type need no wider copy of their input.
    let corrected = halves + singles + tokens * 4 * 4;
    assert_eq!(kept_by_a_block(make(Some(in_f32(lora))), DType::Bf16, [batch, length]), corrected);

    let size = LlamaSize { vocabulary: 16, width: 64, heads: 4, key_heads: 2, hidden: 160, ..LlamaSize::SMALL };
    let make = |lora: Option<LoraOptions>| {
        move |init: &mut Init, layers| {
            Box::new(Llama::new(init, LlamaSize { layers, ..size }, lora.as_ref()).unwrap()) as Box<dyn LanguageModel>
        }
    };
    // Both norms' inputs; query, keys, values and attention's result; gate and up.
    let halves = tokens * (64 + 64 + 32 + 32 + 64 + 64 + 2 * 160) * 2;
    let singles = tokens * (4 + 2) * 4;
    assert_eq!(kept_by_a_block(make(None), DType::Bf16, [batch, length]), halves + singles);
    let all = LoraOptions::new(4, Llama::LORA_TARGETS);
    let corrected = halves + singles + tokens * 7 * 4 * 2;
    assert_eq!(kept_by_a_block(make(Some(all)), DType::Bf16, [batch, length]), corrected);
}

#[test]
fn with_corrections_nothing_is_recorded_before_the_first_of_them() {
    let device = Device::accounting(1 << 40);
    let lora = LoraOptions { dtype: Some(DType::F32), ..LoraOptions::new(2, &["down_proj"]) };
    let model = Llama::new(&mut Init::new(&device, DType::Bf16, 0), LlamaSize::SMALL, Some(&lora)).unwrap();
    let trained: Vec<Parameter> = model.parameters().into_iter().filter(|p| p.tensor.requires_grad()).collect();
    let paths: Vec<&str> = trained.iter().map(|parameter| parameter.path.as_str()).collect();
    assert_eq!(paths.len(), 2 * LlamaSize::SMALL.layers);
    assert_eq!(paths[..2], ["layers.0.mlp.down_proj.lora_A.weight", "layers.0.mlp.down_proj.lora_B.weight"]);
    assert!(trained.iter().all(|parameter| parameter.tensor.dtype() == DType::F32));
    let one = LlamaSize { layers: 1, ..LlamaSize::SMALL };
    let model = Llama::new(&mut Init::new(&device, DType::Bf16, 0), one, Some(&lora)).unwrap();
    let start = live(&device);
    let hidden = model.hidden(&Tensor::zeros([1, 16], DType::I64, &device).unwrap()).unwrap();
    let left = live(&device) - start;
    // The product of the gate and two columns of the correction; the last norm's input and its number; its result.
    assert_eq!(left, 16 * (one.hidden as u64 * 2 + 2 * 4 + one.width as u64 * 2 + 4) + hidden.bytes());
    hidden.backward_from(hidden.detach()).unwrap();
    let others = model.parameters().into_iter().filter(|parameter| !parameter.path.contains("lora"));
    assert!(others.into_iter().all(|parameter| parameter.tensor.grad().is_none()));
}

/// Each kind of model, small.
fn small_models(init: &mut Init) -> [(&'static str, Box<dyn LanguageModel>); 4] {
    let qv = LoraOptions::new(4, &["q_proj", "v_proj", "up_proj", "down_proj"]);
    [
        ("h.*", Box::new(Gpt2::new(init, Gpt2Size { dropout: 0.1, ..Gpt2Size::SMALL }, None).unwrap())),
        ("h.*", Box::new(Falcon::new(init, FalconSize::SMALL, None).unwrap())),
        ("layers.*", Box::new(Llama::new(init, LlamaSize::SMALL, None).unwrap())),
        ("layers.*", Box::new(Llama::new(init, LlamaSize::SMALL, Some(&qv)).unwrap())),
    ]
}

/// Tokens of `[3, 12]`, and the one that follows each.
fn text(device: &Device) -> (Tensor, Tensor) {
    let numbers = whole((0..37).map(|i| 7 * i + i * i / 3), 96);
    let tensor = |numbers: &[i64], shape: &[usize]| {
        Tensor::from_slice(numbers, highwater_engine::Shape::from_slice(shape).unwrap(), device).unwrap()
    };
    (tensor(&numbers[..36], &[3, 12]), tensor(&numbers[1..], &[36]))
}

#[test]
fn small_models_learn_a_text_in_moments() {
    let device = Device::cpu();
    let (tokens, targets) = text(&device);
    for (place, (_, model)) in small_models(&mut Init::new(&device, DType::F32, 0)).into_iter().enumerate() {
        let rule = AdamW { learning_rate: 0.01, ..AdamW::default() };
        let mut optimizer = RuleOptimizer::new(rule, model.parameters()).unwrap();
        let mut losses = Vec::new();
        for _ in 0..20 {
            let loss = loss(&*model, &tokens, &targets).unwrap();
            loss.backward().unwrap();
            losses.push(loss.item().unwrap());
            optimizer.step().unwrap();
            optimizer.zero_grad();
        }
        // Corrections alone cannot change the table and the head.
        let share = if place == 3 { 0.97 } else { 0.5 };
        assert!(losses[19] < share * losses[0], "model {place}: {losses:?}");
    }
}

#[test]
fn blocks_that_run_again_give_the_same_gradients_and_keep_their_inputs_alone() {
    let device = Device::cpu();
    let (tokens, targets) = text(&device);
    let gradients = |checkpoints: bool| -> Vec<(u64, Vec<Option<Vec<f32>>>)> {
        let models = small_models(&mut Init::new(&device, DType::F32, 0));
        models
            .map(|(blocks, model)| {
                if checkpoints {
                    assert_eq!(checkpoint_scopes(&*model, blocks).unwrap(), 3);
                }
                let start = live(&device);
                let loss = loss(&*model, &tokens, &targets).unwrap();
                let kept = live(&device) - start;
                loss.backward().unwrap();
                let grad = |parameter: Parameter| parameter.tensor.grad().map(|grad| grad.to_vec().unwrap());
                (kept, model.parameters().into_iter().map(grad).collect())
            })
            .into()
    };
    for (place, (all, inputs)) in gradients(false).into_iter().zip(gradients(true)).enumerate() {
        assert!(all.1.iter().any(Option::is_some) && all.1 == inputs.1, "model {place}");
        let logits = 36 * 96 * 4;
        assert!((inputs.0 - logits) * 2 < all.0 - logits, "model {place}: {} of {} bytes", inputs.0, all.0);
    }
}

#[test]
fn every_device_sees_the_same_memory() {
    let step = |device: &Device| {
        small_models(&mut Init::new(device, DType::Bf16, 0)).map(|(_, model)| {
            let (tokens, targets) = text(device);
            device.allocator().reset_peak_stats();
            let loss = loss(&*model, &tokens, &targets).unwrap();
            let after_forward = live(device);
            loss.backward().unwrap();
            let stats = device.allocator().stats();
            [after_forward, stats.requested_bytes.all.peak, live(device), stats.allocated_bytes.all.allocated]
        })
    };
    assert_eq!(step(&Device::cpu()), step(&Device::accounting(1 << 40)));
}

#[test]
fn dropout_draws_anew_for_each_text_and_not_at_all_without_a_share() {
    let device = Device::cpu();
    let (tokens, _) = text(&device);
    let twice = |dropout| {
        let model = Gpt2::new(&mut Init::new(&device, DType::F32, 1), Gpt2Size { dropout, ..Gpt2Size::SMALL }, None);
        let model = model.unwrap();
        [0, 1].map(|_| model.hidden(&tokens).unwrap().to_vec::<f32>().unwrap())
    };
    let [first, second] = twice(0.1);
    assert_ne!(first, second);
    let [first, second] = twice(0.0);
    assert_eq!(first, second);
}

#[test]
fn what_does_not_fit_is_refused_with_what_would() {
    let device = Device::accounting(1 << 30);
    let mut init = Init::new(&device, DType::F32, 0);
    let said = |outcome: String, words: &[&str]| assert!(words.iter().all(|word| outcome.contains(word)), "{outcome}");
    let gpt2 = Gpt2::new(&mut init, Gpt2Size { heads: 5, ..Gpt2Size::SMALL }, None).unwrap_err();
    said(gpt2.to_string(), &["gpt2", "5 heads", "hidden size of 48"]);
    let falcon = Falcon::new(&mut init, FalconSize { heads: 16, ..FalconSize::SMALL }, None).unwrap_err();
    said(falcon.to_string(), &["falcon", "16 heads", "even width"]);
    let llama = Llama::new(&mut init, LlamaSize { key_heads: 3, ..LlamaSize::SMALL }, None).unwrap_err();
    said(llama.to_string(), &["llama", "heads, 4,", "key heads, 3"]);
    let lora = |rank, targets| {
        let options = LoraOptions::new(rank, targets);
        Llama::new(&mut Init::new(&device, DType::F32, 0), LlamaSize::SMALL, Some(&options)).unwrap_err().to_string()
    };
    said(lora(4, &["q_proj", "query"]), &["lora", "query", "q_proj, k_proj"]);
    said(lora(4, &[]), &["lora", "no target layers", "down_proj"]);
    said(lora(0, &["q_proj"]), &["lora", "invalid rank 0"]);
    let model = Gpt2::new(&mut init, Gpt2Size::SMALL, None).unwrap();
    let tokens = |shape: &[usize]| {
        Tensor::zeros(highwater_engine::Shape::from_slice(shape).unwrap(), DType::I64, &device).unwrap()
    };
    said(model.forward(&tokens(&[1, 65])).unwrap_err().to_string(), &["gpt2", "65 tokens", "64 positions"]);
    said(model.forward(&tokens(&[8])).unwrap_err().to_string(), &["gpt2", "[8]", "[batch, length]"]);
}
