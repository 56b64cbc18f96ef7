//! Tests that the fused, per-tensor and multi-tensor forms of the optimizers have PyTorch's values, and use no more
//! memory than PyTorch's.

use std::sync::{Mutex, MutexGuard, PoisonError};

use highwater_engine::nn::{Filling, Init, Linear, Module, Parameter};
use highwater_engine::optim::run_in_backward;
use highwater_engine::optim::{Adam, AdamW, AdamW8bit, Form, MasterWeights, Optimizer, Rule, RuleOptimizer, Sgd};
use highwater_engine::{DType, Device, Tensor};
use highwater_recorder::ScopeId;

/// What PyTorch computes in f64, written by `data/torch/make_fixtures.py`.
const DOUBLES: &str = include_str!("data/torch/optimizers.txt");
/// What it computes in narrower types, and its memory, written by `data/torch/make_optim.py`.
const PYTORCH: &str = include_str!("data/torch/optim.txt");

const FORMS: [Form; 3] = [Form::Foreach, Form::PerTensor, Form::Fused];

/// The allocator's statistics are each device's own, but the recorder is one for the whole program.
fn alone() -> MutexGuard<'static, ()> {
    static RECORDER: Mutex<()> = Mutex::new(());
    RECORDER.lock().unwrap_or_else(PoisonError::into_inner)
}

fn optimizer(name: &str, form: Form, parameters: Vec<Parameter>) -> Box<dyn Optimizer> {
    fn stepping(rule: impl Rule, parameters: Vec<Parameter>) -> Box<dyn Optimizer> {
        Box::new(RuleOptimizer::new(rule, parameters).unwrap())
    }
    let sgd = Sgd { learning_rate: 0.1, form, ..Sgd::default() };
    let momentum = Sgd { momentum: 0.9, weight_decay: 0.2, ..sgd };
    let adam = Adam { learning_rate: 0.05, betas: [0.8, 0.95], epsilon: 1e-3, weight_decay: 0.2, form };
    let Adam { learning_rate, betas, epsilon, weight_decay, .. } = adam;
    match name {
        "sgd" => stepping(sgd, parameters),
        "sgd-momentum" => stepping(Sgd { momentum: 0.9, ..sgd }, parameters),
        "sgd-dampening" => stepping(Sgd { dampening: 0.3, ..momentum }, parameters),
        "sgd-nesterov" => stepping(Sgd { nesterov: true, ..momentum }, parameters),
        "adam" => stepping(Adam { form, ..Adam::default() }, parameters),
        "adam-decay" => stepping(adam, parameters),
        "adamw" => stepping(AdamW { form, ..AdamW::default() }, parameters),
        "adamw-decay" => stepping(AdamW { learning_rate, betas, epsilon, weight_decay, form }, parameters),
        other => panic!("no rule is called {other}"),
    }
}

fn named(path: &str, tensor: &Tensor) -> Parameter {
    Parameter { path: path.to_owned(), scope: ScopeId::NONE, tensor: tensor.clone() }
}

fn numbers(text: &str) -> Vec<f64> {
    text.split(' ').map(|number| number.parse().expect("a number")).collect()
}

fn vector(values: &[f64], dtype: DType, device: &Device) -> Tensor {
    Tensor::from_slice(values, values.len(), device).unwrap().to_dtype(dtype).unwrap()
}

/// Goes through `start`, `grad` and `after` of `lines` and gives the largest difference from what came out, in units of
/// the last place of `dtype` at the size of the number, 0.25 at least.
fn furthest(lines: &str, name: &str, form: Form, dtype: DType) -> f64 {
    let device = Device::cpu();
    let mut vectors = lines.lines().map(|line| line.split_once(' ').expect("a word and numbers"));
    let parameter = vector(&numbers(vectors.next().expect("a start").1), dtype, &device);
    parameter.set_requires_grad(true).unwrap();
    let mut optimizer = optimizer(name, form, vec![named("p", &parameter)]);
    let place = match dtype {
        DType::F64 => f64::EPSILON,
        DType::F32 => f64::from(f32::EPSILON),
        DType::Bf16 => 2_f64.powi(-7),
        _ => 2_f64.powi(-10),
    };
    let mut furthest = 0.0_f64;
    for (word, values) in vectors {
        let expected = numbers(values);
        if word == "grad" {
            parameter.set_grad(vector(&expected, dtype, &device)).unwrap();
            optimizer.step().unwrap();
            assert_eq!(parameter.grad().unwrap().to_f64_vec().unwrap(), expected, "a step leaves the gradient alone");
        } else {
            for (found, expected) in parameter.to_f64_vec().unwrap().into_iter().zip(&expected) {
                furthest = furthest.max((found - expected).abs() / (expected.abs().max(0.25) * place));
            }
        }
    }
    furthest
}

#[test]
fn fused_steps_give_pytorchs_numbers_in_double_precision() {
    let _alone = alone();
    let mut cases = 0;
    for case in DOUBLES.split("case ").skip(1) {
        let (name, lines) = case.split_once('\n').expect("a name stands alone");
        let off = furthest(lines, name, Form::Fused, DType::F64);
        assert!(off < 100.0, "{name}: off by {off} units of the last place");
        cases += 1;
    }
    assert_eq!(cases, 8);
}

#[test]
fn every_form_gives_pytorchs_numbers_in_narrow_types_with_state_in_the_parameters_type() {
    let _alone = alone();
    let mut cases = 0;
    for case in PYTORCH.split("narrow ").skip(1) {
        let (head, lines) = case.split_once('\n').expect("a head");
        let lines: String = lines.lines().take(11).map(|line| format!("{line}\n")).collect();
        let [dtype, name, form] = head.split(' ').collect::<Vec<_>>()[..] else { panic!("three words: {head}") };
        let dtype = DType::from_name(dtype).expect("a type");
        // One pass rounds once, so in narrow types it must come out to the bit. Operation by operation, PyTorch rounds
        // after each, and so do the other forms, but less often and not after the same ones.
        let (forms, limit) = match form {
            "fused" if dtype != DType::F32 => (&[Form::Fused][..], 0.0),
            "fused" => (&[Form::Fused][..], 2.0),
            _ => (&FORMS[..2], 2.0),
        };
        for &form in forms {
            let off = furthest(&lines, name, form, dtype);
            assert!(off <= limit, "{dtype} {name} {form:?}: off by {off} units of the last place");
            cases += 1;
        }
    }
    assert_eq!(cases, 3 * 4 * 3);
}

#[test]
fn a_fused_step_of_a_large_parameter_with_a_transposed_gradient_gives_the_numbers_of_the_other_forms() {
    let _alone = alone();
    let device = Device::cpu();
    let sizes = [131, 257];
    let values: Vec<f64> = (0..sizes[0] * sizes[1]).map(|i| (0.37 * i as f64).sin()).collect();
    let grad = Tensor::from_slice(&values, [257, 131], &device).unwrap().transpose(0, 1).unwrap();
    for name in ["sgd-nesterov", "adam-decay", "adamw-decay"] {
        let results = FORMS.map(|form| {
            let parameter = Tensor::from_slice(&values, sizes, &device).unwrap();
            parameter.set_requires_grad(true).unwrap();
            parameter.set_grad(grad.clone()).unwrap();
            let mut optimizer = optimizer(name, form, vec![named("p", &parameter)]);
            (0..3).for_each(|_| optimizer.step().unwrap());
            parameter.to_vec::<f64>().unwrap()
        });
        for (one, fused) in results[0].iter().zip(&results[2]) {
            assert!((one - fused).abs() < 1e-12, "{name}: {one} and {fused}");
        }
        assert_eq!(results[0], results[1], "{name}");
        assert!(results[2] != values, "{name} moved");
    }
}

/// Parameters of 8, 4000 and 256 bytes on a device that only counts, each with a gradient.
fn three_parameters(device: &Device, dtype: DType) -> Vec<Parameter> {
    let mut init = Init::new(device, dtype, 0);
    let make = |length| {
        let tensor = init.parameter(length, Filling::Zeros).unwrap();
        tensor.set_grad(tensor.zeros_like().unwrap()).unwrap();
        named("p", &tensor)
    };
    [2, 1000, 64].map(make).to_vec()
}

fn live(device: &Device) -> u64 {
    device.allocator().stats().requested_bytes.all.current
}

fn peak(device: &Device) -> u64 {
    device.allocator().stats().requested_bytes.all.peak
}

/// The state's bytes, and the most that the second step takes above what was there before.
fn state_and_peak(rule: impl Rule, dtype: DType) -> (u64, u64) {
    let device = Device::accounting(1 << 30);
    let mut optimizer = RuleOptimizer::new(rule, three_parameters(&device, dtype)).unwrap();
    let start = live(&device);
    optimizer.step().unwrap();
    let before = live(&device);
    device.allocator().reset_peak_stats();
    optimizer.step().unwrap();
    assert_eq!(live(&device), before, "a step leaves nothing behind");
    (before - start, peak(&device) - before)
}

#[test]
fn no_form_takes_more_memory_than_pytorchs() {
    let _alone = alone();
    let mut cases = 0;
    for line in PYTORCH.lines().filter_map(|line| line.strip_prefix("memory ")) {
        let [rule, form, bytes] = line.split(' ').collect::<Vec<_>>()[..] else { panic!("three words: {line}") };
        let form = match form {
            "foreach" => Form::Foreach,
            "single" => Form::PerTensor,
            _ => Form::Fused,
        };
        let torch: u64 = bytes.parse().unwrap();
        let momentum = Sgd { momentum: 0.9, form, ..Sgd::default() };
        let (_, peak) = match rule {
            "sgd-momentum" => state_and_peak(momentum, DType::F32),
            "sgd-decay" => state_and_peak(Sgd { weight_decay: 0.1, ..momentum }, DType::F32),
            "adam" => state_and_peak(Adam { form, ..Adam::default() }, DType::F32),
            "adam-decay" => state_and_peak(Adam { form, weight_decay: 0.1, ..Adam::default() }, DType::F32),
            "adamw" => state_and_peak(AdamW { form, ..AdamW::default() }, DType::F32),
            other => panic!("no rule is called {other}"),
        };
        let expected = if form == Form::PerTensor { torch.min(4000) } else { torch };
        assert_eq!(peak, expected, "{rule} {form:?}; PyTorch takes {torch}");
        cases += 1;
    }
    assert_eq!(cases, 15);
}

#[test]
fn state_has_the_parameters_type_and_master_weights_take_twelve_bytes_a_number() {
    let _alone = alone();
    let numbers = 2 + 1000 + 64;
    for form in FORMS {
        let (adam, sgd) = (Adam { form, ..Adam::default() }, Sgd { momentum: 0.9, form, ..Sgd::default() });
        assert_eq!(state_and_peak(adam, DType::Bf16).0, 4 * numbers);
        assert_eq!(state_and_peak(sgd, DType::F16).0, 2 * numbers);
        let widest = if form == Form::Fused { 0 } else { 4000 };
        assert_eq!(state_and_peak(MasterWeights { rule: adam }, DType::Bf16), (12 * numbers, widest), "{form:?}");
        assert_eq!(state_and_peak(MasterWeights { rule: sgd }, DType::F16), (8 * numbers, widest), "{form:?}");
    }
}

#[test]
fn eight_bit_averages_take_two_bytes_a_number_and_a_constant_a_block_and_nothing_beside() {
    let _alone = alone();
    let rule = AdamW8bit { smallest: 0, ..AdamW8bit::default() };
    let bytes = |numbers: u64| 2 * (numbers + 4 * numbers.div_ceil(256));
    assert_eq!(state_and_peak(rule, DType::F32), (bytes(2) + bytes(1000) + bytes(64), 0));
    let rule = AdamW8bit { smallest: 64, ..rule };
    assert_eq!(state_and_peak(rule, DType::F32), (8 * 2 + bytes(1000) + bytes(64), 0));
    let rule = MasterWeights { rule };
    assert_eq!(state_and_peak(rule, DType::Bf16), (12 * 2 + 4 * 1064 + bytes(1000) + bytes(64), 0));
}

/// Trains a layer in backward and gives its numbers, and the most bytes above the start of the third step.
fn in_backward(rule: &impl Rule, device: &Device) -> (Vec<Parameter>, u64) {
    let layer = Linear::new(&mut Init::new(device, DType::F32, 5), [40, 30]).unwrap();
    let input = Tensor::ones([2, 40], DType::F32, device).unwrap();
    let handle = run_in_backward(rule, &layer.parameters()).unwrap();
    let mut most = 0;
    for learning_rate in [0.1, 0.07, 0.03] {
        handle.set_learning_rate(learning_rate);
        let loss = layer.forward(&input).unwrap().square().unwrap().sum().unwrap();
        let before = live(device);
        device.allocator().reset_peak_stats();
        loss.backward().unwrap();
        most = peak(device) - before;
        assert!(layer.parameters().iter().all(|parameter| parameter.tensor.grad().is_none()));
    }
    (layer.parameters(), most)
}

#[test]
fn a_rule_in_backward_takes_the_same_memory_and_gives_the_same_numbers_in_every_form() {
    let _alone = alone();
    let rule = |form| Adam { form, ..Adam::default() };
    let [all, each, fused] = FORMS.map(|form| in_backward(&rule(form), &Device::cpu()));
    for ((all, each), fused) in all.0.iter().zip(&each.0).zip(&fused.0) {
        let [all, each, fused] = [all, each, fused].map(|parameter| parameter.tensor.to_vec::<f32>().unwrap());
        assert_eq!(all, each);
        assert!(all.iter().zip(&fused).all(|(one, other)| (one - other).abs() < 1e-6), "{all:?} and {fused:?}");
    }
    assert_eq!([all.1, each.1], [fused.1; 2], "the gradient's own memory serves");
    let counted = FORMS.map(|form| in_backward(&rule(form), &Device::accounting(1 << 30)).1);
    assert_eq!(counted, [fused.1; 3]);
    in_backward(&MasterWeights { rule: rule(Form::PerTensor) }, &Device::cpu());
    in_backward(&AdamW8bit { smallest: 0, ..AdamW8bit::default() }, &Device::cpu());
}

#[test]
fn a_fused_step_refuses_what_it_cannot_walk() {
    let _alone = alone();
    let device = Device::cpu();
    let parameter = Tensor::ones([3, 2], DType::F32, &device).unwrap().transpose(0, 1).unwrap();
    parameter.set_requires_grad(true).unwrap();
    parameter.set_grad(Tensor::ones([2, 3], DType::F32, &device).unwrap()).unwrap();
    let mut optimizer =
        RuleOptimizer::new(Adam { form: Form::Fused, ..Adam::default() }, vec![named("p", &parameter)]).unwrap();
    let refusal = optimizer.step().unwrap_err().to_string();
    assert!(refusal.contains("make the parameter contiguous"), "{refusal}");
}
