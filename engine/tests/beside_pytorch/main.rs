//! Tests the results and gradients of every operation against PyTorch, for every shape in the PyTorch cases.
//!
//! Each case is run in several ways that must all come to the same: with inputs stored in another order, with a
//! gradient stored in another order, on top of gradients that are there already, and with one input's gradient wanted
//! at a time.

mod cases;
mod operations;
mod training;

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use highwater_engine::{DType, Device, Tensor};

use cases::{Case, Numbers, Outcome};
use operations::{OPERATIONS, Operation};

const FILES: [&str; 2] = [
    include_str!("../../testdata/pytorch/ops/cases.json"),
    include_str!("../../testdata/pytorch/ops/network_cases.json"),
];

/// A way to run a case.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    /// As it is written.
    Plain,
    /// Inputs, and the result's gradient, are stored with their axes in the opposite order.
    Turned,
    /// The same inputs are used twice, so that gradients are added to what is there.
    Twice,
    /// Only this input wants its gradient.
    Only(usize),
}

fn all() -> impl Iterator<Item = Case> {
    FILES.into_iter().flat_map(cases::read)
}

fn tolerance(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => 1e-12,
        DType::F32 => 1e-5,
        DType::F16 => 4e-3,
        _ => 2e-2,
    }
}

/// Memory that holds the numbers as this way wants them.
fn stored(way: Way, numbers: &Tensor) -> Tensor {
    seen(way, numbers).contiguous().expect("there is memory")
}

/// The numbers of that memory with their axes as they should be.
fn seen(way: Way, stored: &Tensor) -> Tensor {
    if way != Way::Turned {
        return stored.clone();
    }
    let opposite: Vec<isize> = (0..stored.rank() as isize).rev().collect();
    stored.permute(&opposite).expect("each axis stands once")
}

fn run(case: &Case, operation: Operation, expected: &Outcome, dtype: DType, way: Way) -> Result<(), String> {
    let tolerance = tolerance(dtype);
    // PyTorch's own rounding within an operation stands against ours in small types.
    let size = if dtype.size() == 2 { 1.0 } else { expected.result.size() };
    let fail = |why: highwater_engine::Error| why.to_string();
    let device = Device::cpu();
    let leaves: Vec<Tensor> = case.inputs.iter().map(|input| stored(way, &input.tensor(dtype, &device))).collect();
    let wanting: Vec<usize> = (0..leaves.len()).filter(|&input| case.inputs[input].wants_grad).collect();
    let wants = |input: usize| wanting.contains(&input) && !matches!(way, Way::Only(only) if only != input);
    for input in (0..leaves.len()).filter(|&input| wants(input)) {
        leaves[input].set_requires_grad(true).map_err(fail)?;
    }
    let times = if way == Way::Twice { 2 } else { 1 };
    for _ in 0..times {
        let inputs: Vec<Tensor> = leaves.iter().map(|leaf| seen(way, leaf)).collect();
        let out = operation(&inputs, &case.args).map_err(fail)?;
        drop(inputs);
        if out.dtype() != dtype {
            return Err(format!("the result is of type {}", out.dtype()));
        }
        expected.result.compare(&out, 1.0, tolerance, size).map_err(|why| format!("result: {why}"))?;
        if out.requires_grad() {
            let seed = Numbers::seed(out.shape()).tensor(dtype, &device);
            let seed = seen(way, &stored(way, &seed));
            out.backward_from(seed).map_err(fail)?;
        }
    }
    for (&input, grad) in wanting.iter().zip(&expected.grads) {
        let found = leaves[input].grad();
        match (found, grad) {
            (Some(found), Some(grad)) if wants(input) => {
                let found = seen(way, &found);
                let compared = grad.compare(&found, f64::from(times), tolerance, 1.0);
                compared.map_err(|why| format!("gradient of input {input}: {why}"))?;
            }
            (Some(_), _) => return Err(format!("input {input} has a gradient that nobody wants")),
            (None, Some(_)) if wants(input) => return Err(format!("input {input} has no gradient")),
            (None, _) => {}
        }
    }
    Ok(())
}

/// Runs every case in the ways that `ways` names, against what `expected` chooses; says all that is not PyTorch's.
fn hold(dtype: DType, ways: impl Fn(&Case) -> Vec<Way>, expected: impl Fn(&Case) -> Option<&Outcome>) {
    let mut wrong = Vec::new();
    let mut held = 0;
    for (number, case) in all().enumerate() {
        let Some(&(_, operation)) = OPERATIONS.iter().find(|(name, _)| *name == case.op) else { continue };
        let Some(outcome) = expected(&case) else { continue };
        for way in ways(&case) {
            let attempt = catch_unwind(AssertUnwindSafe(|| run(&case, operation, outcome, dtype, way)));
            if let Err(why) = attempt.unwrap_or_else(|_| Err("panicked".to_owned())) {
                let shapes: Vec<String> = case.inputs.iter().map(|input| input.numbers.shape.to_string()).collect();
                wrong.push(format!("{} (case {number}, inputs {}), {way:?}: {why}", case.op, shapes.join(" ")));
            }
            held += 1;
        }
    }
    assert!(wrong.is_empty(), "{} of {held} runs are not as PyTorch's:\n{}", wrong.len(), wrong.join("\n"));
    assert!(held > 0, "there are such cases");
}

#[test]
fn every_case_has_an_operation_and_every_operation_has_a_case() {
    let written: BTreeSet<String> = all().map(|case| case.op).collect();
    let known: BTreeSet<String> = OPERATIONS.iter().map(|(name, _)| (*name).to_owned()).collect();
    assert_eq!(known.len(), OPERATIONS.len(), "each operation stands once");
    assert_eq!(written, known);
}

#[test]
fn in_double_precision_results_and_gradients_are_pytorchs() {
    hold(DType::F64, |_| vec![Way::Plain], |case| case.outcome(DType::F64));
}

#[test]
fn the_order_in_memory_changes_nothing() {
    hold(DType::F64, |_| vec![Way::Turned], |case| case.outcome(DType::F64));
}

#[test]
fn gradients_are_added_to_those_that_are_there() {
    hold(DType::F64, |_| vec![Way::Twice], |case| case.outcome(DType::F64));
}

#[test]
fn each_gradient_is_the_same_where_it_is_the_only_one() {
    let wanting =
        |case: &Case| -> Vec<usize> { (0..case.inputs.len()).filter(|&input| case.inputs[input].wants_grad).collect() };
    let ways = |case: &Case| wanting(case).into_iter().map(Way::Only).collect();
    hold(DType::F64, ways, |case| case.outcome(DType::F64));
}

#[test]
fn single_precision_comes_near_to_double() {
    // Where only one of them overflows, PyTorch's own single precision is written as well.
    let ways = |_: &Case| vec![Way::Plain, Way::Turned];
    hold(DType::F32, ways, |case| case.outcome(DType::F32).or_else(|| case.outcome(DType::F64)));
}

#[test]
fn small_types_come_near_to_pytorchs() {
    for dtype in [DType::Bf16, DType::F16] {
        hold(dtype, |_| vec![Way::Plain], |case| case.outcome(dtype));
    }
}
