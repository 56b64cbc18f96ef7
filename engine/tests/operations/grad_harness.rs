//! Test helpers that compare an operation's gradients with central differences.

use highwater_engine::{DType, Device, Result, Rng, Shape, Tensor};

const STEP: f64 = 1e-5;

/// What stands between the operation and the loss.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Loss {
    /// Σ weight · result, all weights different.
    Weighted,
    /// Σ result: its gradient is one number, repeated.
    Sum,
    /// Σ weight · result of two runs with the same inputs.
    Twice,
}

type Operation<'a> = &'a dyn Fn(&[Tensor]) -> Result<Tensor>;

fn loss(operation: Operation<'_>, inputs: &[Tensor], kind: Loss) -> Tensor {
    let weighted = |out: &Tensor| {
        let weights = Tensor::uniform(out.shape(), [-1.0, 2.0], DType::F64, out.device(), &mut Rng::new(99)).unwrap();
        out.mul(&weights.to_dtype(out.dtype()).unwrap()).unwrap().sum().unwrap()
    };
    let out = operation(inputs).unwrap();
    match kind {
        Loss::Weighted => weighted(&out),
        Loss::Sum => out.sum().unwrap(),
        Loss::Twice => {
            let second = operation(inputs).unwrap();
            weighted(&out).add(&weighted(&second)).unwrap()
        }
    }
}

fn leaves(numbers: &[Vec<f64>], shapes: &[Shape], dtype: DType, device: &Device) -> Vec<Tensor> {
    let leaf = |(numbers, shape): (&Vec<f64>, &Shape)| {
        let tensor = Tensor::from_slice(numbers, shape, device).unwrap().to_dtype(dtype).unwrap();
        tensor.set_requires_grad(true).unwrap();
        tensor
    };
    numbers.iter().zip(shapes).map(leaf).collect()
}

fn gradients(operation: Operation<'_>, inputs: &[Tensor], kind: Loss) -> Vec<Vec<f64>> {
    let loss = loss(operation, inputs, kind);
    if inputs.iter().all(|input| input.elements() == 0) && !loss.requires_grad() {
        return inputs.iter().map(|_| Vec::new()).collect();
    }
    loss.backward().unwrap();
    inputs.iter().map(|input| input.grad().expect("every input takes part").to_f64_vec().unwrap()).collect()
}

/// Holds the gradients of `operation` at random inputs of these shapes, within `range`, against differences.
pub(crate) fn check_within<S: Into<Shape>, const N: usize>(
    range: [f64; 2],
    shapes: [S; N],
    operation: impl Fn(&[Tensor]) -> Result<Tensor>,
) {
    let device = Device::cpu();
    let mut rng = Rng::new(7);
    let shapes: Vec<Shape> = shapes.into_iter().map(Into::into).collect();
    let numbers: Vec<Vec<f64>> = shapes
        .iter()
        .map(|shape| Tensor::uniform(shape, range, DType::F64, &device, &mut rng).unwrap().to_vec().unwrap())
        .collect();
    for kind in [Loss::Weighted, Loss::Sum, Loss::Twice] {
        let found = gradients(&operation, &leaves(&numbers, &shapes, DType::F64, &device), kind);
        let single = gradients(&operation, &leaves(&numbers, &shapes, DType::F32, &device), kind);
        for input in 0..numbers.len() {
            for place in 0..numbers[input].len() {
                let at = |step: f64| {
                    let mut moved = numbers.clone();
                    moved[input][place] += step;
                    loss(&operation, &leaves(&moved, &shapes, DType::F64, &device), kind).item().unwrap()
                };
                let expected = (at(STEP) - at(-STEP)) / (2.0 * STEP);
                let (double, single) = (found[input][place], single[input][place]);
                let scale = 1.0 + expected.abs();
                let place = format!("{kind:?}, input {input}, element {place}");
                assert!((double - expected).abs() < 1e-7 * scale, "{place}: {double} instead of {expected}");
                assert!(
                    (single - double).abs() < 2e-4 * scale,
                    "{place}: {single} in single precision instead of {double}"
                );
            }
        }
    }
}

pub(crate) fn check<S: Into<Shape>, const N: usize>(shapes: [S; N], operation: impl Fn(&[Tensor]) -> Result<Tensor>) {
    check_within([-2.0, 2.0], shapes, operation);
}
