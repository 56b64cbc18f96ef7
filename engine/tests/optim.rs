//! Tests that the optimizers have PyTorch's values, and use no more memory than PyTorch's.

use std::sync::{Mutex, MutexGuard, PoisonError};

use highwater_engine::nn::{Filling, Init, Linear, Module, Parameter};
use highwater_engine::optim::{Adam, AdamW, Form, Optimizer, Rule, RuleOptimizer, Sgd, run_in_backward};
use highwater_engine::{DType, Device, Tensor};
use highwater_recorder::snapshots::Trace;
use highwater_recorder::snapshots::event::EventKind;
use highwater_recorder::{Category, HistoryOptions, Level, record_memory_history};

/// Five steps of each rule by PyTorch, written by `data/torch/make_fixtures.py`.
const STEPS: &str = include_str!("data/torch/optimizers.txt");

/// The recorder is one for the whole program.
fn alone() -> MutexGuard<'static, ()> {
    static RECORDER: Mutex<()> = Mutex::new(());
    RECORDER.lock().unwrap_or_else(PoisonError::into_inner)
}

fn rule_named(name: &str, form: Form, check: impl FnOnce(&dyn Check)) {
    let sgd = Sgd { learning_rate: 0.1, form, ..Sgd::default() };
    let adam = Adam { learning_rate: 0.05, betas: [0.8, 0.95], epsilon: 1e-3, weight_decay: 0.2, form };
    let Adam { learning_rate, betas, epsilon, weight_decay, .. } = adam;
    match name {
        "sgd" => check(&sgd),
        "sgd-momentum" => check(&Sgd { momentum: 0.9, ..sgd }),
        "sgd-dampening" => check(&Sgd { momentum: 0.9, dampening: 0.3, weight_decay: 0.2, ..sgd }),
        "sgd-nesterov" => check(&Sgd { momentum: 0.9, weight_decay: 0.2, nesterov: true, ..sgd }),
        "adam" => check(&Adam { form, ..Adam::default() }),
        "adam-decay" => check(&adam),
        "adamw" => check(&AdamW { form, ..AdamW::default() }),
        "adamw-decay" => check(&AdamW { learning_rate, betas, epsilon, weight_decay, form }),
        other => panic!("no rule is called {other}"),
    }
}

/// What can be done with any rule.
trait Check {
    fn optimizer(&self, parameters: Vec<Parameter>) -> Box<dyn Optimizer>;
}

impl<R: Rule> Check for R {
    fn optimizer(&self, parameters: Vec<Parameter>) -> Box<dyn Optimizer> {
        Box::new(RuleOptimizer::new(self.clone(), parameters).expect("the settings make sense"))
    }
}

fn numbers(text: &str) -> Vec<f64> {
    text.split(' ').map(|number| number.parse().expect("a number")).collect()
}

fn assert_close(found: &[f64], expected: &[f64], what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    for (found_one, expected_one) in found.iter().zip(expected) {
        let off = (found_one - expected_one).abs();
        assert!(off <= 1e-12, "{what}: {found:?} in place of PyTorch's {expected:?}");
    }
}

#[test]
fn five_steps_of_every_rule_give_pytorchs_numbers_in_both_forms() {
    let _alone = alone();
    let device = Device::cpu();
    let mut steps = 0;
    for form in [Form::Foreach, Form::PerTensor] {
        for case in STEPS.split("case ").skip(1) {
            let (name, lines) = case.split_once('\n').expect("a name stands alone");
            let mut vectors = lines.lines().map(|line| line.split_once(' ').expect("a word and numbers"));
            let (_, start) = vectors.next().expect("a start");
            let start = numbers(start);
            let parameter = Tensor::from_slice(&start, start.len(), &device).unwrap();
            parameter.set_requires_grad(true).unwrap();
            rule_named(name, form, |rule| {
                let mut optimizer = rule.optimizer(vec![named("p", &parameter)]);
                for (word, vector) in vectors {
                    let vector = numbers(vector);
                    if word == "grad" {
                        parameter.set_grad(Tensor::from_slice(&vector, vector.len(), &device).unwrap()).unwrap();
                        optimizer.step().unwrap();
                        let left = parameter.grad().unwrap().to_vec::<f64>().unwrap();
                        assert_close(&left, &vector, "a step leaves the gradient alone");
                    } else {
                        assert_close(&parameter.to_vec::<f64>().unwrap(), &vector, name);
                        steps += 1;
                    }
                }
            });
        }
    }
    assert_eq!(steps, 80, "both forms, eight rules, five steps");
}

fn named(path: &str, tensor: &Tensor) -> Parameter {
    Parameter { path: path.to_owned(), scope: highwater_recorder::ScopeId::NONE, tensor: tensor.clone() }
}

/// Parameters of 8, 4000 and 256 bytes on a device that only counts, each with a gradient.
fn three_parameters(device: &Device) -> Vec<Parameter> {
    let mut init = Init::new(device, DType::F32, 0);
    [2, 1000, 64]
        .map(|length| {
            let tensor = init.parameter(length, Filling::Zeros).unwrap();
            tensor.set_grad(tensor.zeros_like().unwrap()).unwrap();
            named("p", &tensor)
        })
        .to_vec()
}

/// The most bytes that were allocated during the second step above what was there before it, and the recording.
fn second_step(rule: impl Rule) -> (u64, Trace) {
    let device = Device::accounting(1 << 30);
    let mut optimizer = RuleOptimizer::new(rule, three_parameters(&device)).unwrap();
    let _alone = alone();
    let run = record_memory_history(HistoryOptions::in_memory().level(Level::Events), || {
        optimizer.step()?;
        device.allocator().reset_peak_stats();
        let before = device.allocator().stats().requested_bytes.all.current;
        optimizer.step()?;
        Ok(device.allocator().stats().requested_bytes.all.peak - before)
    })
    .unwrap();
    (run.value, run.trace.unwrap())
}

fn bytes_of(trace: &Trace, category: Category) -> u64 {
    let blocks = trace.blocks.ids().map(|id| trace.blocks.get(id));
    blocks.filter(|block| block.category == category).map(|block| block.requested).sum()
}

#[test]
fn foreach_holds_a_temporary_for_every_parameter_and_per_tensor_only_one() {
    let all = 8 + 4000 + 256;
    let (peak, trace) = second_step(Adam::default());
    assert_eq!(peak, all);
    assert_eq!(bytes_of(&trace, Category::OptimizerState), 2 * all, "two averages each, made in the first step alone");
    let (peak, _) = second_step(Adam { form: Form::PerTensor, ..Adam::default() });
    assert_eq!(peak, 4000);
    let (peak, _) = second_step(Adam { weight_decay: 0.1, form: Form::PerTensor, ..Adam::default() });
    assert_eq!(peak, 4000, "the decayed gradient is gone before the divisor comes");
    let (peak, trace) = second_step(Sgd { momentum: 0.9, ..Sgd::default() });
    assert_eq!((peak, bytes_of(&trace, Category::OptimizerState)), (0, all));
    let (peak, _) = second_step(Sgd { momentum: 0.9, weight_decay: 0.1, ..Sgd::default() });
    assert_eq!(peak, all);
    let (_, trace) = second_step(Sgd::default());
    assert!(!trace.events.kind.contains(&EventKind::Alloc), "without momentum and decay nothing is allocated");
}

#[test]
fn a_rule_in_backward_gives_the_same_numbers_and_leaves_no_gradient() {
    let _alone = alone();
    let device = Device::cpu();
    let input = Tensor::ones([2, 3], DType::F64, &device).unwrap();
    let rule = Adam { learning_rate: 0.1, ..Adam::default() };
    let make = || Linear::new(&mut Init::new(&device, DType::F64, 5), [3, 2]).unwrap();
    let (apart, within) = (make(), make());
    let mut optimizer = RuleOptimizer::new(rule, apart.parameters()).unwrap();
    run_in_backward(&rule, &within.parameters()).unwrap();
    for _ in 0..3 {
        apart.forward(&input).unwrap().square().unwrap().sum().unwrap().backward().unwrap();
        optimizer.step().unwrap();
        optimizer.zero_grad();
        within.forward(&input).unwrap().square().unwrap().sum().unwrap().backward().unwrap();
    }
    for (one, other) in apart.parameters().iter().zip(within.parameters()) {
        assert!(one.tensor.grad().is_none() && other.tensor.grad().is_none());
        assert_eq!(one.tensor.to_vec::<f64>().unwrap(), other.tensor.to_vec::<f64>().unwrap(), "{}", one.path);
    }
}

#[test]
fn parameters_without_a_gradient_stay_as_they_are() {
    let _alone = alone();
    let device = Device::cpu();
    let layer = Linear::new(&mut Init::new(&device, DType::F32, 1), [2, 2]).unwrap();
    let before = layer.weight().to_vec::<f32>().unwrap();
    let mut optimizer = RuleOptimizer::new(AdamW::default(), layer.parameters()).unwrap();
    optimizer.step().unwrap();
    assert_eq!(layer.weight().to_vec::<f32>().unwrap(), before);
    layer.weight().set_requires_grad(false).unwrap();
    assert_eq!(RuleOptimizer::new(AdamW::default(), layer.parameters()).unwrap().parameters().len(), 1, "the bias");
}

#[test]
fn settings_that_make_no_sense_are_refused_by_name() {
    let _alone = alone();
    let refusal = |rule: Sgd| RuleOptimizer::new(rule, Vec::new()).unwrap_err().to_string();
    assert!(refusal(Sgd { nesterov: true, ..Sgd::default() }).contains("nesterov needs a momentum"));
    assert!(refusal(Sgd { learning_rate: f64::NAN, ..Sgd::default() }).contains("invalid learning_rate NaN"));
    let adam = Adam { betas: [0.9, 1.0], ..Adam::default() };
    assert!(RuleOptimizer::new(adam, Vec::new()).unwrap_err().to_string().contains("invalid beta 1"));
    assert!(run_in_backward(&AdamW { weight_decay: -1.0, ..AdamW::default() }, &[]).is_err());
}
