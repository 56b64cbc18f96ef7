//! Tests training with gradient accumulation, loss scaling, master weights and 8-bit averages.

mod optim_harness;

use highwater_engine::nn::{Init, Linear, Module, Parameter};
use highwater_engine::optim::{
    Accumulation, AdamW, AdamW8bit, Form, LossScaler, LossScaling, MasterWeights, Optimizer, Rule, RuleOptimizer, Sgd,
    clip_grad_norm, clip_grad_value, grad_norm, run_in_backward,
};
use highwater_engine::{DType, Device, Rng, Tensor};
use highwater_recorder::snapshots::EventId;
use highwater_recorder::snapshots::trace::Subject;
use highwater_recorder::{HistoryOptions, Level, ScopeId, record_memory_history};
use optim_harness::{alone, assert_close, cases, grads, parameter};

fn layer(device: &Device, dtype: DType) -> Linear {
    Linear::new(&mut Init::new(device, dtype, 3), [6, 4]).unwrap()
}

fn loss(layer: &Linear, input: &Tensor) -> Tensor {
    layer.forward(input).unwrap().tanh().unwrap().square().unwrap().mean().unwrap()
}

#[test]
fn small_batches_give_the_gradient_of_the_large_one_and_no_more_memory() {
    let _alone = alone();
    let device = Device::cpu();
    let input = Tensor::randn([12, 6], DType::F64, &device, &mut Rng::new(1)).unwrap();
    let (whole, parts) = (layer(&device, DType::F64), layer(&device, DType::F64));
    loss(&whole, &input).backward().unwrap();
    let mut optimizer = RuleOptimizer::new(Sgd { learning_rate: 0.5, ..Sgd::default() }, parts.parameters()).unwrap();
    let mut accumulation = Accumulation::new(4).unwrap();
    for batch in 0..4 {
        assert!(!accumulation.step(&mut optimizer).unwrap(), "batch {batch} is to come");
        let part = input.narrow(0, batch * 3, 3).unwrap();
        accumulation.backward(&loss(&parts, &part)).unwrap();
    }
    assert!(accumulation.is_complete());
    assert_close(&grads(&parts.parameters()), &grads(&whole.parameters()), 1e-15, "gradients");
    let mut reference = RuleOptimizer::new(*optimizer.rule(), whole.parameters()).unwrap();
    reference.step().unwrap();
    assert!(accumulation.step(&mut optimizer).unwrap());
    assert!(parts.parameters().iter().all(|parameter| parameter.tensor.grad().is_none()), "zero_grad comes with it");
    let [found, expected] = [&parts, &whole].map(|layer| layer.weight().to_f64_vec().unwrap());
    assert_close(&found, &expected, 1e-15, "weights");
    assert!(!accumulation.step(&mut optimizer).unwrap(), "the next large batch has begun");
    assert!(Accumulation::new(0).is_err());

    let counted = Device::accounting(1 << 30);
    let counted_layer = layer(&counted, DType::F32);
    let input = Tensor::ones([3, 6], DType::F32, &counted).unwrap();
    let bytes = || counted.allocator().stats().requested_bytes.all;
    let peak_of = |backward: &mut dyn FnMut(&Tensor)| {
        let loss = loss(&counted_layer, &input);
        let before = bytes().current;
        counted.allocator().reset_peak_stats();
        backward(&loss);
        bytes().peak - before
    };
    peak_of(&mut |loss| loss.backward().unwrap());
    let plain = peak_of(&mut |loss| loss.backward().unwrap());
    assert_eq!(peak_of(&mut |loss| accumulation.backward(loss).unwrap()), plain);
    assert_eq!(peak_of(&mut |loss| LossScaler::default().backward(loss).unwrap()), plain);
}

#[test]
fn the_loss_scale_falls_and_rises_as_pytorchs_does() {
    let _alone = alone();
    let device = Device::cpu();
    let expected = cases("scaler");
    let outcome = &expected[0].1[0];
    let settings = LossScaling { first: 1024.0, growth_interval: 3, ..LossScaling::default() };
    let mut scaler = LossScaler::new(settings).unwrap();
    let parameters = vec![parameter("p", &[1.0, 2.0], &[0.0, 0.0], &device)];
    let tensor = parameters[0].tensor.clone();
    let mut optimizer = RuleOptimizer::new(Sgd { learning_rate: 1.0, ..Sgd::default() }, parameters).unwrap();
    for pair in outcome.chunks(2) {
        let is_infinite = pair[0] == 1.0;
        let grad = [scaler.scale() * 0.5, if is_infinite { f64::INFINITY } else { 0.0 }];
        tensor.set_grad(Tensor::from_slice(&grad, 2, &device).unwrap()).unwrap();
        let before = tensor.to_f64_vec().unwrap();
        let has_stepped = scaler.step(&mut optimizer).unwrap();
        assert_eq!((has_stepped, scaler.scale()), (!is_infinite, pair[1]));
        let moved = if is_infinite { 0.0 } else { 0.5 };
        assert_eq!(tensor.to_f64_vec().unwrap(), [before[0] - moved, before[1]]);
    }
}

#[test]
fn unscaled_gradients_can_be_clipped_before_the_step() {
    let _alone = alone();
    let device = Device::cpu();
    let parameters = vec![parameter("p", &[1.0, 2.0], &[3.0 * 65536.0, 4.0 * 65536.0], &device)];
    let mut optimizer = RuleOptimizer::new(Sgd { learning_rate: 1.0, ..Sgd::default() }, parameters).unwrap();
    let mut scaler = LossScaler::default();
    scaler.unscale(optimizer.parameters()).unwrap();
    scaler.unscale(optimizer.parameters()).unwrap();
    assert_eq!(grads(optimizer.parameters()), [3.0, 4.0], "once");
    clip_grad_norm(optimizer.parameters(), 2.5).unwrap();
    assert!(scaler.step(&mut optimizer).unwrap());
    assert_close(&optimizer.parameters()[0].tensor.to_f64_vec().unwrap(), &[-0.5, 0.0], 1e-5, "half a gradient");
}

/// The events of a step with loss scaling, as text without addresses; the third of four overflows where values exist.
fn scaled_events(rule: impl Rule, device: &Device) -> Vec<String> {
    let layer = layer(device, DType::F16);
    let mut optimizer = RuleOptimizer::new(rule, layer.parameters()).unwrap();
    // The first loss overflows f16 at once, so already the first step is left out.
    let mut scaler = LossScaler::new(LossScaling { first: 2_f64.powi(17), ..LossScaling::default() }).unwrap();
    let input = Tensor::ones([2, 6], DType::F16, device).unwrap();
    let mut outcomes = Vec::new();
    let run = record_memory_history(HistoryOptions::in_memory().level(Level::Events), || {
        for _ in 0..4 {
            scaler.backward(&loss(&layer, &input))?;
            outcomes.push(scaler.step(&mut optimizer)?);
            optimizer.zero_grad();
        }
        Ok(())
    })
    .unwrap();
    let expected = if device.has_values() { [false, false, true, true] } else { [true; 4] };
    assert_eq!(outcomes, expected);
    let finite = layer.weight().device().has_values();
    assert!(!finite || layer.weight().to_f64_vec().unwrap().iter().all(|weight| weight.is_finite()));
    let trace = run.trace.unwrap();
    let line = |id: EventId| {
        let subject = match trace.subject(id) {
            Subject::Block(key) => {
                let block = trace.blocks.get(key);
                format!("{key:?} {} bytes {} {}", block.requested, block.category, trace.tables.op_name(block.op))
            }
            other => format!("{other:?}"),
        };
        format!("{:?} {subject}", trace.events.kind[id.index().unwrap()])
    };
    trace.events.ids().map(line).filter(|line| !line.contains("Segment")).collect()
}

#[test]
fn a_step_that_is_left_out_looks_the_same_as_on_a_device_without_values() {
    let _alone = alone();
    for form in [Form::Foreach, Form::PerTensor, Form::Fused] {
        let adamw = MasterWeights { rule: AdamW { form, ..AdamW::default() } };
        assert_eq!(
            scaled_events(adamw, &Device::cpu()),
            scaled_events(adamw, &Device::accounting(1 << 30)),
            "{form:?}"
        );
        let sgd = MasterWeights { rule: Sgd { momentum: 0.9, weight_decay: 0.1, form, ..Sgd::default() } };
        assert_eq!(scaled_events(sgd, &Device::cpu()), scaled_events(sgd, &Device::accounting(1 << 30)), "{form:?}");
    }
    let rule = MasterWeights { rule: AdamW8bit { smallest: 5, ..AdamW8bit::default() } };
    assert_eq!(scaled_events(rule, &Device::cpu()), scaled_events(rule, &Device::accounting(1 << 30)));
}

#[test]
fn a_left_out_first_step_leaves_no_trace_in_the_numbers() {
    let _alone = alone();
    let device = Device::cpu();
    for form in [Form::Foreach, Form::PerTensor, Form::Fused] {
        let rule = Sgd { learning_rate: 0.1, momentum: 0.9, dampening: 0.5, form, ..Sgd::default() };
        let run = |skips: bool| {
            let parameters = vec![parameter("p", &[1.0, 2.0], &[0.5, -0.5], &device)];
            let mut optimizer = RuleOptimizer::new(rule, parameters).unwrap();
            if skips {
                optimizer.skip().unwrap();
            }
            optimizer.step().unwrap();
            optimizer.step().unwrap();
            optimizer.parameters()[0].tensor.to_f64_vec().unwrap()
        };
        assert_eq!(run(true), run(false), "{form:?}");
    }
}

#[test]
fn f16_gradients_are_not_unscaled_in_place() {
    let _alone = alone();
    let device = Device::cpu();
    let layer = layer(&device, DType::F16);
    let mut optimizer = RuleOptimizer::new(Sgd::default(), layer.parameters()).unwrap();
    let mut scaler = LossScaler::new(LossScaling { first: 8.0, ..LossScaling::default() }).unwrap();
    scaler.backward(&loss(&layer, &Tensor::ones([2, 6], DType::F16, &device).unwrap())).unwrap();
    let refusal = scaler.step(&mut optimizer).unwrap_err().to_string();
    assert!(refusal.contains("f16 gradients would underflow"), "{refusal}");
    assert!(scaler.unscale(optimizer.parameters()).is_err());
}

#[test]
fn master_weights_keep_steps_that_the_narrow_type_would_lose() {
    let _alone = alone();
    let device = Device::cpu();
    for form in [Form::Foreach, Form::PerTensor, Form::Fused] {
        for dtype in [DType::Bf16, DType::F16] {
            let run = |rule: &dyn Fn(Vec<Parameter>) -> Box<dyn Optimizer>| {
                let tensor = Tensor::ones(3, dtype, &device).unwrap();
                tensor.set_requires_grad(true).unwrap();
                let mut optimizer =
                    rule(vec![Parameter { path: "p".to_owned(), scope: ScopeId::NONE, tensor: tensor.clone() }]);
                for _ in 0..64 {
                    tensor.set_grad(tensor.ones_like().unwrap()).unwrap();
                    optimizer.step().unwrap();
                }
                tensor.to_f64_vec().unwrap()
            };
            // A 2⁻¹³th is below what f16 and bf16 tell apart at 1; 64 of them are not.
            let rule = Sgd { learning_rate: 2_f64.powi(-13), form, ..Sgd::default() };
            let alone = run(&|parameters| Box::new(RuleOptimizer::new(rule, parameters).unwrap()));
            let kept = run(&|parameters| Box::new(RuleOptimizer::new(MasterWeights { rule }, parameters).unwrap()));
            assert_eq!((alone, kept), (vec![1.0; 3], vec![1.0 - 2_f64.powi(-7); 3]), "{form:?} {dtype}");
        }
    }
}

/// Losses of a regression of 300 numbers, trained by `rule`.
fn regression(rule: impl Rule, dtype: DType) -> Vec<f64> {
    let device = Device::cpu();
    let mut rng = Rng::new(11);
    let model = Linear::new(&mut Init::new(&device, dtype, 2), [300, 20]).unwrap();
    let truth = Linear::new(&mut Init::new(&device, dtype, 9), [300, 20]).unwrap();
    let mut optimizer = RuleOptimizer::new(rule, model.parameters()).unwrap();
    (0..150)
        .map(|_| {
            let input = Tensor::randn([16, 300], dtype, &device, &mut rng).unwrap();
            let target = truth.forward(&input).unwrap().detach();
            let loss = model.forward(&input).unwrap().sub(&target).unwrap().square().unwrap().mean().unwrap();
            loss.backward().unwrap();
            optimizer.step().unwrap();
            optimizer.zero_grad();
            loss.item().unwrap()
        })
        .collect()
}

#[test]
fn eight_bit_averages_and_master_weights_train_as_adamw_does() {
    let _alone = alone();
    let learning_rate = 3e-3;
    let adamw = AdamW { learning_rate, form: Form::Fused, ..AdamW::default() };
    let small = AdamW8bit { learning_rate, smallest: 0, ..AdamW8bit::default() };
    let [full, coded] = [regression(adamw, DType::F32), regression(small, DType::F32)];
    let end = |losses: &[f64]| losses[140..].iter().sum::<f64>() / 10.0;
    assert!(end(&full) < full[0] / 20.0, "the problem can be learnt: {} to {}", full[0], end(&full));
    assert!((end(&coded) / end(&full) - 1.0).abs() < 0.2, "{} by 8 bit, {} in full", end(&coded), end(&full));
    let master = regression(MasterWeights { rule: adamw }, DType::Bf16);
    assert!(end(&master) < master[0] / 20.0, "{} to {} with master weights", master[0], end(&master));
    let both = regression(MasterWeights { rule: small }, DType::Bf16);
    assert!(end(&both) < both[0] / 20.0, "{} to {} with both", both[0], end(&both));
}

#[test]
fn what_needs_all_gradients_says_that_an_optimizer_in_backward_has_used_them_up() {
    let _alone = alone();
    let device = Device::cpu();
    let layer = layer(&device, DType::F32);
    let parameters = layer.parameters();
    let mut optimizer = RuleOptimizer::new(Sgd::default(), layer.parameters()).unwrap();
    run_in_backward(&Sgd::default(), &parameters).unwrap();
    let mut accumulation = Accumulation::new(1).unwrap();
    accumulation.backward(&loss(&layer, &Tensor::ones([2, 6], DType::F32, &device).unwrap())).unwrap();
    let refusals = [
        clip_grad_norm(&parameters, 1.0).map(drop),
        clip_grad_value(&parameters, 1.0),
        accumulation.step(&mut optimizer).map(drop),
        LossScaler::default().step(&mut optimizer).map(drop),
    ];
    for refusal in refusals {
        let refusal = refusal.unwrap_err().to_string();
        assert!(refusal.contains("the gradient of 'weight' was already used"), "{refusal}");
    }
    assert!(clip_grad_norm(&[], 1.0).unwrap_err().to_string().contains("no parameters"));
    assert!(clip_grad_norm(&parameters, -1.0).is_err() && grad_norm(&parameters, 0.0).is_err());
}
