//! Tests that parts recomputed in backward give the same gradients with less memory.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use highwater_engine::autograd::{checkpoint, is_running_again};
use highwater_engine::models::{VisionTransformer, VitSize};
use highwater_engine::nn::{Init, Linear, Module, checkpoint_scopes};
use highwater_engine::{DType, Device, Result, Rng, Tensor};

const F32: DType = DType::F32;

fn leaf(shape: [usize; 2], device: &Device, seed: u64) -> Tensor {
    let tensor = Tensor::randn(shape, F32, device, &mut Rng::new(seed)).unwrap();
    tensor.set_requires_grad(true).unwrap();
    tensor
}

/// Three layers with activation, norm and dropout, each its own part; gives the gradients of input and weights.
fn three_layers(device: &Device, is_checkpointed: bool) -> Vec<Tensor> {
    let input = leaf([6, 8], device, 1);
    let weights: Vec<Tensor> = (0..3).map(|layer| leaf([8, 8], device, 2 + layer)).collect();
    let rng = Arc::new(Mutex::new(Rng::new(9)));
    let mut x = input.clone();
    for weight in &weights {
        let (weight, rng) = (weight.clone(), rng.clone());
        let part = move |x: &[Tensor]| -> Result<Tensor> {
            let hidden = x[0].layer_norm(None, None, 1e-5)?.linear(&weight, None)?.gelu()?;
            let hidden = hidden.dropout(0.3, &mut rng.lock().unwrap())?.linear(&weight, None)?.into_relu()?;
            hidden.add(&x[0])
        };
        x = if is_checkpointed { checkpoint(&[&x], part).unwrap() } else { part(&[x]).unwrap() };
    }
    // What is drawn afterwards must not depend on it either.
    x = x.dropout(0.5, &mut rng.lock().unwrap()).unwrap();
    x.mul(&x).unwrap().sum().unwrap().backward().unwrap();
    assert_eq!(rng.lock().unwrap().draw(1), {
        let mut expected = Rng::new(9);
        for _ in 0..4 {
            expected.draw(48);
        }
        expected.draw(1)
    });
    std::iter::once(input).chain(weights).map(|tensor| tensor.grad().unwrap()).collect()
}

#[test]
fn gradients_are_the_same_to_the_bit_with_and_without() {
    let device = Device::cpu();
    let (with, without) = (three_layers(&device, true), three_layers(&device, false));
    for (with, without) in with.iter().zip(&without) {
        assert_eq!(with.to_vec::<f32>().unwrap(), without.to_vec::<f32>().unwrap());
    }
}

#[test]
fn until_backward_only_the_inputs_are_kept() {
    let device = Device::accounting(1 << 30);
    let weight = leaf([256, 256], &device, 0);
    let input = leaf([64, 256], &device, 1);
    let held = |device: &Device| device.allocator().stats().requested_bytes.all.current;
    let before = held(&device);
    let out =
        checkpoint(&[&input], move |x| (0..8).try_fold(x[0].clone(), |x, _| x.linear(&weight, None)?.into_relu()));
    let loss = out.unwrap().sum().unwrap();
    assert_eq!(held(&device) - before, 4, "of eight layers nothing but the loss is left");
    loss.backward().unwrap();
    assert!(input.grad().is_some());
}

#[test]
fn parts_within_parts_and_parts_of_frozen_things_work() {
    let device = Device::cpu();
    let weight = leaf([5, 5], &device, 0);
    let run = |is_checkpointed: bool| {
        weight.take_grad();
        let input = Tensor::randn([3, 5], F32, &device, &mut Rng::new(4)).unwrap();
        let inner_weight = weight.clone();
        let inner = move |x: &[Tensor]| x[0].linear(&inner_weight, None)?.tanh();
        let (outer_weight, nested) = (weight.clone(), inner.clone());
        let outer = move |x: &[Tensor]| {
            let x = x[0].linear(&outer_weight, None)?.silu()?;
            let x = if is_checkpointed { checkpoint(&[&x], nested.clone())? } else { nested(&[x])? };
            x.mul(&x)
        };
        let out = if is_checkpointed { checkpoint(&[&input], outer) } else { outer(&[input]) };
        out.unwrap().sum().unwrap().backward().unwrap();
        weight.grad().unwrap().to_vec::<f32>().unwrap()
    };
    assert_eq!(run(true), run(false));
}

#[test]
fn a_hook_is_called_once_with_the_whole_gradient_of_a_shared_weight() {
    let device = Device::cpu();
    let weight = leaf([4, 4], &device, 0);
    let calls = Arc::new(AtomicU32::new(0));
    let counted = calls.clone();
    weight
        .on_grad_ready(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            Ok(())
        })
        .unwrap();
    let mut x = Tensor::ones([2, 4], F32, &device).unwrap();
    for _ in 0..3 {
        let weight = weight.clone();
        x = checkpoint(&[&x], move |x| x[0].linear(&weight, None)?.tanh()).unwrap();
    }
    x.linear(&weight, None).unwrap().sum().unwrap().backward().unwrap();
    assert_eq!(calls.load(Ordering::Relaxed), 1);
}

#[test]
fn a_part_knows_that_it_runs_again() {
    let device = Device::cpu();
    let input = leaf([2, 2], &device, 0);
    let runs = Arc::new(Mutex::new(Vec::new()));
    let noted = runs.clone();
    let part = move |x: &[Tensor]| {
        noted.lock().unwrap().push(is_running_again());
        x[0].square()
    };
    checkpoint(&[&input], part).unwrap().sum().unwrap().backward().unwrap();
    assert_eq!(*runs.lock().unwrap(), [false, true]);
}

#[test]
fn a_part_that_does_something_else_the_second_time_is_an_error_that_says_so() {
    let device = Device::cpu();
    let input = leaf([2, 2], &device, 0);
    let part = |x: &[Tensor]| if is_running_again() { x[0].square()?.exp() } else { x[0].square() };
    let loss = checkpoint(&[&input], part).unwrap().sum().unwrap();
    let error = loss.backward().unwrap_err().to_string();
    assert!(error.contains("make it deterministic"), "{error}");
}

#[test]
fn a_model_is_checkpointed_by_the_scopes_of_its_blocks() {
    let device = Device::accounting(1 << 30);
    let run = |pattern: Option<&str>| {
        let model = VisionTransformer::new(&mut Init::new(&device, F32, 0), VitSize::SMALL).unwrap();
        if let Some(pattern) = pattern {
            assert_eq!(checkpoint_scopes(&model, pattern).unwrap(), VitSize::SMALL.layers);
        }
        let images = Tensor::zeros([8, 3, 32, 32], F32, &device).unwrap();
        let before = device.allocator().stats().requested_bytes.all.current;
        let loss = model.forward(&images).unwrap().sum().unwrap();
        let kept = device.allocator().stats().requested_bytes.all.current - before;
        loss.backward().unwrap();
        assert!(model.parameters().iter().all(|parameter| parameter.tensor.grad().is_some()));
        kept
    };
    let (whole, by_block) = (run(None), run(Some("encoder.layers.*")));
    assert!(by_block * 5 < whole, "{by_block} of {whole} bytes");
}

#[test]
fn a_pattern_that_matches_no_module_is_an_error_that_lists_the_modules() {
    let device = Device::accounting(1 << 30);
    let model = VisionTransformer::new(&mut Init::new(&device, F32, 0), VitSize::SMALL).unwrap();
    let said = |module: &dyn Module, pattern: &str| checkpoint_scopes(module, pattern).unwrap_err().to_string();
    let unknown = said(&model, "encoder.blocks.*");
    assert!(unknown.starts_with("checkpoint_scopes: no module matches 'encoder.blocks.*'; the modules"), "{unknown}");
    assert!(unknown.contains(&format!("encoder.layers.{{0-{}}}, ", VitSize::SMALL.layers - 1)), "{unknown}");
    let invalid = said(&model, "encoder.layers.{3-1}");
    assert!(invalid.contains("encoder.layers.{3-1}") && !invalid.contains("no module matches"), "{invalid}");
    let alone = said(&Linear::new(&mut Init::new(&device, F32, 0), [2, 2]).unwrap(), "*");
    assert!(alone.contains("the model has no submodules"), "{alone}");
}
