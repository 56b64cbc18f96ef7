//! Tests that each of many calls gives the same result as on its own, and that calls of the same kind share a kernel
//! launch.

use highwater_engine::backend::{self, AdamStep, Binary, CODE_BLOCK, Call, SgdStep, Ternary, Unary};
use highwater_engine::{DType, Shape};

use crate::harness::{Both, FLOATS, Pair, on_both, view};
use crate::optim::{ADAM, SGD, TYPES};

/// Tensors of every size from nothing to several chunks, more of them than fit in the arguments of one launch, some from
/// an odd place on and some not in order.
fn tensors(both: &Both, dtype: DType, seed: u64, make: impl Fn(&Both, Shape, DType, u64) -> Pair) -> Vec<Pair> {
    let sizes = [1, 5, 16, 33, 0, 8192, 7, 64, 8193, 3, 129, 20_000];
    let of = |place: usize| {
        let (size, seed) = (sizes[place % sizes.len()], seed + place as u64);
        match place % 7 {
            3 => make(both, Shape::from(size + 1), dtype, seed).map(|t| t.narrow(0, 1, size)),
            5 => make(both, Shape::from([size.min(40), 3]), dtype, seed).map(|t| t.transpose(0, 1)),
            _ => make(both, Shape::from(size), dtype, seed),
        }
    };
    (0..210).map(of).collect()
}

fn normal(both: &Both, shape: Shape, dtype: DType, seed: u64) -> Pair {
    both.normal(shape, dtype, seed)
}

fn positive(both: &Both, shape: Shape, dtype: DType, seed: u64) -> Pair {
    both.uniform(shape, [0.25, 2.0], dtype, seed)
}

fn zeros_like(both: &Both, like: &[Pair], dtype: DType) -> Vec<Pair> {
    like.iter().map(|pair| both.full(*pair.cpu.shape(), 0.0, dtype)).collect()
}

/// Runs these calls at once on the CUDA device, and one by one on the cpu device.
fn run_each<'a>(calls: impl Fn(fn(&'a Pair) -> backend::View<'a>) -> Vec<Call<'a>>) {
    backend::run_all(&calls(|pair| view(&pair.cpu))).expect("the processor computes");
    backend::run_all(&calls(|pair| view(&pair.cuda))).expect("kernels start");
}

fn assert_all_close(pairs: &[Pair], what: &str, off: f64) {
    for (place, pair) in pairs.iter().enumerate() {
        pair.assert_close(&format!("{what}, tensor {place}, {:?}", pair.cpu.shape()), off, off);
    }
}

#[test]
fn functions_of_many_tensors_are_those_of_each() {
    on_both(|both| {
        for dtype in FLOATS {
            let out = tensors(both, dtype, 1, positive);
            let (left, right) = (tensors(both, dtype, 1000, positive), tensors(both, dtype, 2000, positive));
            let operands = || out.iter().zip(left.iter().zip(&right)).enumerate();
            // Several functions in one list, some with numbers of their own, some without a kernel for many.
            run_each(|of| {
                let call = |(place, (out, (left, _))): (usize, (_, (_, _)))| match place % 5 {
                    0 => Call::Unary(of(out), Unary::AffineSqrt { scale: 1.5, shift: 0.25 }, Some(of(left))),
                    1 => Call::Unary(of(out), Unary::Exp, None),
                    2 => Call::Unary(of(out), Unary::Affine { scale: 0.5, shift: 0.25 }, None),
                    _ => Call::Unary(of(out), Unary::Affine { scale: -0.5, shift: 0.125 }, Some(of(left))),
                };
                operands().map(call).collect()
            });
            assert_all_close(&out, "of one", 2e-6);
            run_each(|of| {
                let call = |(place, (out, (left, right))): (usize, (_, (_, _)))| match place % 5 {
                    0 => Call::Binary(of(out), Binary::Lerp(0.1), None, of(right)),
                    1 => Call::Binary(of(out), Binary::Mul, Some(of(left)), of(right)),
                    2 => Call::Binary(of(out), Binary::AddScaled(-2.0), Some(of(left)), of(right)),
                    _ => Call::Binary(of(out), Binary::AddScaled(0.75), None, of(right)),
                };
                operands().map(call).collect()
            });
            assert_all_close(&out, "of two", 2e-6);
            run_each(|of| {
                let call = |(place, (out, (left, right))): (usize, (_, (_, _)))| match place % 3 {
                    0 => Call::Ternary(of(out), Ternary::AddMul { keep: 1.0, scale: 0.5 }, of(left), of(right)),
                    1 => Call::Ternary(of(out), Ternary::AddMul { keep: 0.75, scale: -0.25 }, of(right), of(right)),
                    _ => Call::Ternary(of(out), Ternary::AddDiv(0.5), of(left), of(right)),
                };
                operands().map(call).collect()
            });
            assert_all_close(&out, "of three", 4e-6);
        }
    });
}

#[test]
fn steps_of_many_tensors_are_those_of_each() {
    on_both(|both| {
        for [dtype, narrow] in TYPES {
            // Parameters are in order, their gradients not all.
            let grads = tensors(both, narrow, 1, normal);
            let parameters: Vec<Pair> = grads
                .iter()
                .enumerate()
                .map(|(place, grad)| both.normal(*grad.cpu.shape(), dtype, 1000 + place as u64))
                .collect();
            let rounded = zeros_like(both, &grads, narrow);
            let state = [zeros_like(both, &grads, dtype), zeros_like(both, &grads, dtype)];
            let places = || (0..grads.len()).map(|place| (place, (place % 4 == 0).then(|| &rounded[place])));
            run_each(|of| {
                let call = |(place, rounded): (usize, Option<_>)| {
                    let step = SgdStep { is_first: place % 5 == 0, ..SGD };
                    let direction = (place % 6 != 1).then(|| of(&state[0][place]));
                    Call::Sgd(of(&parameters[place]), rounded.map(of), of(&grads[place]), direction, step)
                };
                places().map(call).collect()
            });
            assert_all_close(&parameters, "descent", 4e-6);
            assert_all_close(&state[0], "descent, directions", 4e-6);
            run_each(|of| {
                let call = |(place, rounded): (usize, Option<_>)| {
                    let step = AdamStep { rate: if place % 5 == 0 { 0.02 } else { 0.01 }, ..ADAM };
                    let moments = [of(&state[0][place]), of(&state[1][place])];
                    Call::Adam(of(&parameters[place]), rounded.map(of), of(&grads[place]), moments, step)
                };
                places().map(call).collect()
            });
            for (pairs, what) in
                [(&parameters, "parameters"), (&rounded, "rounded"), (&state[0], "means"), (&state[1], "squares")]
            {
                assert_all_close(pairs, what, 8e-6);
            }
        }
    });
}

#[test]
fn coded_steps_of_many_tensors_are_those_of_each() {
    on_both(|both| {
        for [dtype, narrow] in [[DType::F32, DType::F32], [DType::F32, DType::Bf16], [DType::Bf16, DType::Bf16]] {
            let mut grads = tensors(both, narrow, 1, normal);
            grads.truncate(60);
            let parameters: Vec<Pair> = grads
                .iter()
                .enumerate()
                .map(|(place, grad)| both.normal(*grad.cpu.shape(), dtype, 1000 + place as u64))
                .collect();
            let codes = [0, 1].map(|_| zeros_like(both, &grads, DType::U8));
            let blocks = |pair: &Pair| pair.cpu.elements().div_ceil(CODE_BLOCK);
            let scales =
                [0, 1].map(|_| grads.iter().map(|grad| both.full(blocks(grad), 0.0, DType::F32)).collect::<Vec<_>>());
            run_each(|of| {
                let call = |place: usize| {
                    let state =
                        [of(&codes[0][place]), of(&codes[1][place]), of(&scales[0][place]), of(&scales[1][place])];
                    Call::Adam8bit(of(&parameters[place]), None, of(&grads[place]), state, ADAM)
                };
                (0..grads.len()).map(call).collect()
            });
            assert_all_close(&parameters, "parameters", 8e-6);
            for state in [0, 1] {
                assert_all_close(&scales[state], "scales", 1e-6);
                for (place, codes) in codes[state].iter().enumerate() {
                    codes.assert_close(&format!("codes of tensor {place}"), 0.0, 1.0);
                }
            }
        }
    });
}

#[test]
fn gradients_of_many_tensors_are_measured_and_clipped_as_each() {
    on_both(|both| {
        both.with_and_without_workspace(|| {
            for dtype in FLOATS {
                let grads = tensors(both, dtype, 1, normal);
                for order in [2.0, 1.0, 3.0, f64::INFINITY] {
                    let total = both.full((), 0.25, DType::F64);
                    run_each(|of| grads.iter().map(|grad| Call::AddNorm(of(&total), of(grad), order)).collect());
                    total.assert_close(&format!("norm of order {order} of {dtype}"), 1e-4, 0.0);
                }
                let norm = both.full((), 3.0, DType::F64);
                run_each(|of| grads.iter().map(|grad| Call::ClipToNorm(of(grad), of(&norm), 2.0)).collect());
                assert_all_close(&grads, "clipped to a norm", 1e-6);
                run_each(|of| grads.iter().map(|grad| Call::Clamp(of(grad), -0.5, 0.75)).collect());
                assert_all_close(&grads, "clamped", 0.0);
                let found = both.full((), 0.0, DType::F32);
                let find =
                    || run_each(|of| grads.iter().map(|grad| Call::FindNonfinite(of(&found), of(grad))).collect());
                find();
                found.assert_equal("all are finite");
                for (place, number) in [(11, f64::INFINITY), (12, f64::NAN)] {
                    let one = grads[place].map(|t| t.narrow(0, t.elements() - 1, 1));
                    crate::harness::run(|of| backend::fill(of(&one), number));
                    let found = both.full((), 0.0, DType::F32);
                    run_each(|of| grads.iter().map(|grad| Call::FindNonfinite(of(&found), of(grad))).collect());
                    assert_eq!(found.cuda.item().expect("it can be read"), 1.0, "{number} is found");
                }
            }
        });
    });
}

#[test]
fn tensors_may_be_parts_of_one_memory() {
    on_both(|both| {
        let memory = both.normal(20_000, DType::F32, 1);
        let parts: Vec<Pair> = [(0, 100), (100, 1), (101, 8999), (9100, 10_900)]
            .map(|(first, size)| memory.map(|t| t.narrow(0, first, size)))
            .into();
        let function = Unary::Affine { scale: 2.0, shift: 1.0 };
        run_each(|of| parts.iter().map(|part| Call::Unary(of(part), function, None)).collect());
        memory.assert_equal("all of it");
    });
}
