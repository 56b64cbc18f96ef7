//! Language models: decoders have PyTorch's numbers and sizes, and keep less than PyTorch does.

use highwater_engine::models::{Falcon, FalconSize, Gpt2, Gpt2Size, LanguageModel, Llama, LlamaSize};
use highwater_engine::nn::{Init, LoraOptions, Parameter};
use highwater_engine::optim::{AdamW, Form, Optimizer, Stepping};
use highwater_engine::{DType, Device, Result, Tensor, no_grad};
use highwater_recorder::Category;

/// Losses and gradients by PyTorch, written by `data/torch/make_decoders.py`.
const GPT2: &str = include_str!("data/torch/gpt2.txt");
const FALCON: &str = include_str!("data/torch/falcon.txt");
const LLAMA: &str = include_str!("data/torch/llama.txt");
const LLAMA_LORA: &str = include_str!("data/torch/llama_lora.txt");

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
    let mut optimizer = Stepping::new(rule, parameters.clone()).unwrap();
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
    let size = FalconSize { vocabulary: VOCABULARY, layers: 2, width: 12, heads: 3, hidden: 20 };
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

#[test]
fn published_sizes_have_their_parameters_and_keep_less_than_pytorch() {
    let (qkv, qv) = (LoraOptions::new(16, &["query_key_value"]), LoraOptions::new(16, &["q_proj", "v_proj"]));
    let all = LoraOptions::new(16, Llama::LORA_TARGETS);
    let (f32, bf16) = (DType::F32, DType::Bf16);
    // What PyTorch saves for backward, the logits' logarithmic softmax included, which is of the type given last.
    let cases: [(&str, Make, DType, [usize; 2], [u64; 3], DType); 9] = [
        ("falcon", falcon(None), bf16, [1, 512], [6_921_720_704, 13_843_441_408, 2_022_512_386], bf16),
        ("falcon, LoRA", falcon(Some(qkv)), bf16, [1, 512], [6_926_439_296, 13_852_878_592, 1_399_523_074], bf16),
        (
            "falcon, f32",
            falcon(Some(in_f32(qkv))),
            bf16,
            [1, 512],
            [6_926_439_296, 13_862_315_776, 1_548_945_154],
            bf16,
        ),
        ("llama", llama(None), bf16, [1, 1024], [8_030_261_248, 16_060_522_496, 6_049_501_956], f32),
        ("llama, LoRA", llama(Some(qv)), bf16, [1, 1024], [8_037_076_992, 16_074_153_984, 4_826_858_244], f32),
        ("llama, f32", llama(Some(in_f32(qv))), bf16, [1, 1024], [8_037_076_992, 16_087_785_472, 5_634_261_764], f32),
        ("llama, all", llama(Some(all)), bf16, [1, 1024], [8_072_204_288, 16_144_408_576, 6_040_060_676], f32),
        ("gpt2", gpt2(), f32, [8, 1024], [124_439_808, 497_759_232, 6_535_356_612], f32),
        ("gpt2, bf16", gpt2(), bf16, [8, 1024], [124_439_808, 248_879_616, 3_270_861_090], bf16),
    ];
    for (name, make, dtype, shape, [elements, bytes, pytorch], logits) in cases {
        let [found, found_bytes, kept] = measure(&make, dtype, shape);
        assert_eq!((found, found_bytes), (elements, bytes), "{name}");
        let vocabulary = match &name[..3] {
            "fal" => 65024,
            "lla" => 128_256,
            _ => 50257,
        };
        let pytorch = pytorch - (shape[0] * shape[1] * vocabulary * logits.size()) as u64;
        assert!(kept * 10 <= pytorch * 8, "{name} keeps {kept} bytes, where PyTorch keeps {pytorch}");
    }
}
