//! Fused optimizer steps, with running averages in full precision and in 8 bits.

use highwater_engine::backend::{self, AdamStep, CODE_BLOCK, SgdStep};
use highwater_engine::{DType, Error};

use crate::harness::{Both, FLOATS, Pair, on_both, run};

/// The dtypes of a parameter and of its gradient.
pub(crate) const TYPES: [[DType; 2]; 6] = [
    [DType::F64, DType::F64],
    [DType::F32, DType::F32],
    [DType::Bf16, DType::Bf16],
    [DType::F16, DType::F16],
    [DType::F32, DType::Bf16],
    [DType::F32, DType::F16],
];

pub(crate) const ADAM: AdamStep = AdamStep {
    rate: 0.01,
    betas: [0.9, 0.99],
    square_scale: 1.25,
    epsilon: 1e-6,
    weight_decay: 0.02,
    keep: 0.995,
    grad_scale: 0.5,
};

pub(crate) const SGD: SgdStep = SgdStep {
    learning_rate: 0.1,
    momentum: 0.9,
    dampening: 0.25,
    weight_decay: 0.01,
    nesterov: false,
    is_first: false,
    grad_scale: 0.5,
};

/// Shapes of nothing, of one number, of parts of a pack, of more than a block takes.
const SHAPES: [[usize; 2]; 6] = [[0, 3], [1, 1], [7, 19], [5, 32], [3, 5467], [2, 8192]];

/// Tolerance for the results of a step.
const OFF: f64 = 4e-6;

/// A contiguous matrix that begins at an unaligned element, or at an aligned one.
fn at(both: &Both, first: usize, [rows, columns]: [usize; 2], make: impl Fn(&Both, usize) -> Pair) -> Pair {
    make(both, rows * columns + 1).map(|t| t.narrow(0, first, rows * columns)?.reshape([rows, columns]))
}

#[test]
fn steps_of_descent_are_those_of_the_processor() {
    on_both(|both| {
        for [dtype, narrow] in TYPES {
            for shape in SHAPES {
                for (place, (name, grad)) in
                    both.layouts(shape, |both, shape| both.normal(shape, narrow, 1)).iter().enumerate()
                {
                    for variant in 0..8 {
                        let (nesterov, is_first) = (variant & 1 == 1, variant & 2 == 2);
                        let step = SgdStep { nesterov, is_first, ..SGD };
                        let parameter = at(both, place % 2, shape, |both, n| both.normal(n, dtype, 2));
                        let rounded = at(both, place % 2, shape, |both, n| both.full(n, 7.0, narrow));
                        // Before the first step, a direction means nothing.
                        let former = if is_first { f64::NAN } else { 0.5 };
                        let direction = at(both, place % 2, shape, |both, n| both.full(n, former, dtype));
                        let (has_copy, has_momentum) = (place % 3 != 0, variant & 4 == 0);
                        run(|of| {
                            let copy = has_copy.then(|| of(&rounded));
                            backend::sgd(of(&parameter), copy, of(grad), has_momentum.then(|| of(&direction)), step)
                        });
                        let what = format!("{dtype} by {narrow}, {shape:?}, gradient {name}, variant {variant}");
                        parameter.assert_close(&what, OFF, OFF);
                        rounded.assert_close(&format!("{what}, rounded"), OFF, OFF);
                        direction.assert_close(&format!("{what}, direction"), OFF, OFF);
                    }
                }
            }
        }
    });
}

#[test]
fn steps_of_adam_are_those_of_the_processor() {
    on_both(|both| {
        for [dtype, narrow] in TYPES {
            for shape in SHAPES {
                for (place, (name, grad)) in
                    both.layouts(shape, |both, shape| both.normal(shape, narrow, 1)).iter().enumerate()
                {
                    let parameter = at(both, place % 2, shape, |both, n| both.normal(n, dtype, 2));
                    let rounded = at(both, place % 2, shape, |both, n| both.full(n, 7.0, narrow));
                    let mean = at(both, 0, shape, |both, n| both.normal(n, dtype, 3));
                    let square = at(both, place % 2, shape, |both, n| both.uniform(n, [0.0, 2.0], dtype, 4));
                    run(|of| {
                        let copy = (place % 3 != 0).then(|| of(&rounded));
                        backend::adam(of(&parameter), copy, of(grad), [of(&mean), of(&square)], ADAM)
                    });
                    let what = format!("{dtype} by {narrow}, {shape:?}, gradient {name}");
                    parameter.assert_close(&what, OFF, OFF);
                    rounded.assert_close(&format!("{what}, rounded"), OFF, OFF);
                    mean.assert_close(&format!("{what}, mean"), OFF, OFF);
                    square.assert_close(&format!("{what}, square"), OFF, OFF);
                }
            }
        }
    });
}

#[test]
fn averages_are_coded_as_on_the_processor() {
    on_both(|both| {
        for [dtype, narrow] in TYPES {
            for shape in [[0, 3], [1, 1], [1, 255], [1, 256], [7, 109], [4, 256], [3, 2900]] {
                let elements: usize = shape[0] * shape[1];
                let blocks = elements.div_ceil(CODE_BLOCK);
                for (place, (name, grad)) in
                    both.layouts(shape, |both, shape| both.normal(shape, narrow, 1)).iter().enumerate()
                {
                    let parameter = at(both, place % 2, shape, |both, n| both.normal(n, dtype, 2));
                    let rounded = at(both, place % 2, shape, |both, n| both.full(n, 7.0, narrow));
                    let codes = [3, 4].map(|seed| both.whole(elements, [0.0, 256.0], DType::U8, seed));
                    let scales = [5, 6].map(|seed| both.uniform(blocks, [0.0, 2.0], DType::F32, seed));
                    run(|of| {
                        let copy = (place % 3 != 0).then(|| of(&rounded));
                        let state = [of(&codes[0]), of(&codes[1]), of(&scales[0]), of(&scales[1])];
                        backend::adam_8bit(of(&parameter), copy, of(grad), state, ADAM)
                    });
                    let what = format!("{dtype} by {narrow}, {shape:?}, gradient {name}");
                    parameter.assert_close(&what, OFF, OFF);
                    rounded.assert_close(&format!("{what}, rounded"), OFF, OFF);
                    for (scales, codes) in scales.iter().zip(&codes) {
                        scales.assert_close(&format!("{what}, scales"), 1e-6, 0.0);
                        // A number between two codes may fall to either side.
                        codes.assert_close(&format!("{what}, codes"), 0.0, 1.0);
                    }
                }
            }
        }
    });
}

#[test]
fn codes_of_nothing_and_of_what_is_no_number_are_those_of_the_processor() {
    on_both(|both| {
        let size = 700;
        for number in [0.0, f64::INFINITY, f64::NAN, 1e-30] {
            let (parameter, grad) = (both.normal(size, DType::F32, 1), both.full(size, 0.0, DType::F32));
            let one = grad.map(|t| t.narrow(0, 300, 1));
            run(|of| backend::fill(of(&one), number));
            let codes = [0, 1].map(|_| both.full(size, 0.0, DType::U8));
            let scales = [0, 1].map(|_| both.full(3, 0.0, DType::F32));
            run(|of| {
                let state = [of(&codes[0]), of(&codes[1]), of(&scales[0]), of(&scales[1])];
                let step = AdamStep { weight_decay: 0.0, ..ADAM };
                backend::adam_8bit(of(&parameter), None, of(&grad), state, step)
            });
            for pair in [&codes[0], &codes[1], &scales[0], &scales[1]] {
                pair.assert_close(&format!("one gradient is {number}"), 1e-6, 0.0);
            }
            parameter.assert_close(&format!("one gradient is {number}"), OFF, OFF);
        }
    });
}

#[test]
fn a_gradient_of_another_type_is_refused() {
    on_both(|both| {
        for dtype in FLOATS {
            let (parameter, grad) = (both.full(5, 1.0, dtype), both.full(5, 1.0, DType::F64));
            let state = [both.full(5, 0.0, dtype), both.full(5, 0.0, dtype)];
            let stepped = backend::adam(
                crate::harness::view(&parameter.cuda),
                None,
                crate::harness::view(&grad.cuda),
                [&state[0], &state[1]].map(|pair| crate::harness::view(&pair.cuda)),
                ADAM,
            );
            let is_refused = matches!(stepped, Err(Error::DType { op: "adam", found: DType::F64, .. }));
            assert_eq!(is_refused, dtype != DType::F64, "{dtype}");
        }
    });
}
