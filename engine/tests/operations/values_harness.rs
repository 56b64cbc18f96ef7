//! Test helpers that compare operations with cases computed by PyTorch, as written by `data/ops/make_*.py`.

use std::collections::BTreeMap;

use highwater_engine::{DType, Device, Result, Shape, Tensor};

/// One case: inputs, the result, and the gradients of inputs that are fractions.
#[derive(Default)]
struct Case {
    inputs: Vec<Numbers>,
    result: Option<Numbers>,
    grads: Vec<Numbers>,
}

struct Numbers {
    shape: Shape,
    values: Vec<f64>,
    whole: bool,
}

impl Numbers {
    fn parse(text: &str) -> Self {
        let (shape, values) =
            text.strip_prefix('[').and_then(|text| text.split_once(']')).expect("a shape in brackets");
        let shape: Vec<usize> = shape.split_whitespace().map(|n| n.parse().expect("a length")).collect();
        let shape = Shape::from_slice(&shape).unwrap();
        let whole = !values.contains('.');
        let values: Vec<f64> = values.split_whitespace().map(|n| n.parse().expect("a number")).collect();
        assert_eq!(values.len(), shape.elements());
        Self { shape, values, whole }
    }

    fn tensor(&self, device: &Device, dtype: DType) -> Tensor {
        let tensor = Tensor::from_slice(&self.values, self.shape, device).unwrap();
        if self.whole {
            return tensor.to_dtype(DType::I64).unwrap();
        }
        let tensor = tensor.to_dtype(dtype).unwrap();
        tensor.set_requires_grad(true).unwrap();
        tensor
    }

    fn assert_is(&self, found: &Tensor, tolerance: f64, what: &str) {
        assert_eq!(found.shape(), &self.shape, "{what}");
        for (place, (found, expected)) in found.to_f64_vec().unwrap().into_iter().zip(&self.values).enumerate() {
            let close = (found - expected).abs() <= tolerance * (1.0 + expected.abs());
            assert!(close || found == *expected, "{what}, element {place}: {found} instead of {expected}");
        }
    }
}

fn cases(data: &'static str) -> BTreeMap<&'static str, Case> {
    let mut cases = BTreeMap::new();
    let mut name = "";
    for line in data.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let (what, rest) = line.split_once(' ').expect("a word and what follows");
        if what == "case" {
            name = rest;
            assert!(cases.insert(name, Case::default()).is_none(), "{name} is there twice");
            continue;
        }
        let case = cases.get_mut(name).expect("a case begins with its name");
        match what {
            "input" => case.inputs.push(Numbers::parse(rest)),
            "result" => case.result = Some(Numbers::parse(rest)),
            "grad" => case.grads.push(Numbers::parse(rest)),
            other => panic!("{other} is no part of a case"),
        }
    }
    cases
}

pub(crate) type Operation = fn(&[Tensor]) -> Result<Tensor>;

/// Compares every operation's result and gradients in `dtype` with its case, within the tolerance for its name; those
/// with none are left out. There are as many cases as operations.
pub(crate) fn check(
    data: &'static str,
    operations: &[(&str, Operation)],
    dtype: DType,
    tolerance: impl Fn(&str) -> Option<f64>,
) {
    let cases = cases(data);
    let mut names: Vec<&str> = operations.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    assert_eq!(cases.keys().copied().collect::<Vec<_>>(), names);
    for (name, operation) in operations {
        if let Some(tolerance) = tolerance(name) {
            run(name, &cases[name], *operation, dtype, tolerance);
        }
    }
}

fn run(name: &str, case: &Case, operation: Operation, dtype: DType, tolerance: f64) {
    let device = Device::cpu();
    let inputs: Vec<Tensor> = case.inputs.iter().map(|numbers| numbers.tensor(&device, dtype)).collect();
    let out = operation(&inputs).unwrap();
    let what = format!("{name} in {dtype}");
    case.result.as_ref().expect("every case has a result").assert_is(&out, tolerance, &what);
    assert_eq!(out.requires_grad(), !case.grads.is_empty(), "{what}");
    if case.grads.is_empty() {
        return;
    }
    let weights: Vec<f64> = (0..out.elements()).map(|i| ((7 * i) % 5) as f64 / 2.0 - 1.0).collect();
    let weights = Tensor::from_slice(&weights, out.shape(), &device).unwrap().to_dtype(dtype).unwrap();
    out.backward_from(weights).unwrap();
    let leaves: Vec<&Tensor> = inputs.iter().filter(|input| input.dtype().is_float()).collect();
    assert_eq!(leaves.len(), case.grads.len(), "{what}: a gradient for each input");
    for (place, (leaf, grad)) in leaves.into_iter().zip(&case.grads).enumerate() {
        let found = leaf.grad().expect("every input takes part");
        grad.assert_is(&found, tolerance, &format!("{what}, gradient {place}"));
    }
}
