//! Test helpers for optimizers: PyTorch's values, and parameters with gradients.

use std::sync::{Mutex, MutexGuard, PoisonError};

use highwater_engine::nn::Parameter;
use highwater_engine::{Device, Tensor};
use highwater_recorder::ScopeId;

/// What PyTorch computes, written by `data/torch/make_optim.py`.
const PYTORCH: &str = include_str!("../data/torch/optim.txt");

/// The recorder is one for the whole program.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static RECORDER: Mutex<()> = Mutex::new(());
    RECORDER.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn numbers(text: &str) -> Vec<f64> {
    text.split(' ').map(|number| number.parse().expect("a number")).collect()
}

/// The vectors below each line that begins with `word`, with the rest of that line.
pub(crate) fn cases(word: &str) -> Vec<(&'static str, Vec<Vec<f64>>)> {
    let mut found: Vec<(&str, Vec<Vec<f64>>)> = Vec::new();
    let mut is_inside = false;
    for line in PYTORCH.lines() {
        let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
        let is_vector = ["grads", "clipped", "rates", "scales"].contains(&first);
        if !is_vector {
            is_inside = first == word;
            found.extend(is_inside.then(|| (rest, Vec::new())));
        } else if let (true, Some((_, vectors))) = (is_inside, found.last_mut()) {
            vectors.push(numbers(rest));
        }
    }
    found
}

pub(crate) fn parameter(path: &str, values: &[f64], grad: &[f64], device: &Device) -> Parameter {
    let tensor = Tensor::from_slice(values, values.len(), device).unwrap();
    tensor.set_requires_grad(true).unwrap();
    tensor.set_grad(Tensor::from_slice(grad, grad.len(), device).unwrap()).unwrap();
    Parameter { path: path.to_owned(), scope: ScopeId::NONE, tensor }
}

pub(crate) fn grads(parameters: &[Parameter]) -> Vec<f64> {
    parameters.iter().flat_map(|parameter| parameter.tensor.grad().unwrap().to_f64_vec().unwrap()).collect()
}

pub(crate) fn assert_close(found: &[f64], expected: &[f64], off: f64, what: &str) {
    assert_eq!(found.len(), expected.len(), "{what}");
    let fits = found.iter().zip(expected).all(|(found, expected)| (found - expected).abs() <= off);
    assert!(fits, "{what}: {found:?} in place of {expected:?}");
}
