//! Piecewise linear functions and their slopes.

use highwater_engine::backend::{self, Piecewise, Side};
use highwater_engine::{DType, Tensor};

use crate::harness::{Both, FLOATS, Pair, on_both, run};

const FUNCTIONS: [(Piecewise, bool); 4] = [
    (Piecewise::Abs, false),
    (Piecewise::Clamp { low: -0.5, high: 1.0 }, false),
    (Piecewise::Maximum, true),
    (Piecewise::Minimum, true),
];

const SHAPES: [[usize; 2]; 6] = [[0, 3], [1, 1], [5, 32], [7, 19], [3, 1501], [2, 3]];

#[test]
fn values_and_slopes_are_those_of_the_processor() {
    on_both(|both| {
        for dtype in FLOATS {
            for shape in SHAPES {
                // Of few different numbers, many are equal.
                let right = both.layouts(shape, |both, shape| both.whole(shape, [-2.0, 3.0], dtype, 2));
                let left = both.layouts(shape, |both, shape| both.whole(shape, [-2.0, 3.0], dtype, 1));
                for (place, (name, left)) in left.iter().enumerate() {
                    for (number, (function, has_right)) in FUNCTIONS.into_iter().enumerate() {
                        let (other, right) = &right[(place + number) % right.len()];
                        let what = format!("{function:?} of {shape:?}, {name} and {other}");
                        check(both, &what, function, left, has_right.then_some(right));
                    }
                }
            }
        }
    });
}

#[test]
fn what_is_no_number_and_zeros_of_either_sign_are_treated_alike() {
    on_both(|both| {
        let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1.0, -0.5];
        for dtype in FLOATS {
            let column = Tensor::from_slice(&special, [7, 1], &both.cpu).expect("they fill it");
            let column = both.pair(column.to_dtype(dtype).expect("numbers become numbers"));
            let left = column.map(|t| t.expand([7, 7]));
            let right = column.map(|t| t.transpose(0, 1)?.expand([7, 7]));
            for (function, has_right) in FUNCTIONS {
                check(both, &format!("{function:?}"), function, &left, has_right.then_some(&right));
            }
        }
    });
}

/// Compares values, slopes and gradients.
fn check(both: &Both, what: &str, function: Piecewise, left: &Pair, right: Option<&Pair>) {
    let (shape, dtype) = (*left.cpu.shape(), left.cpu.dtype());
    let out = both.full(shape, 7.0, dtype);
    run(|of| backend::piecewise(of(&out), None, function, of(left), right.map(of)));
    out.assert_equal(&format!("{what}, without slopes"));
    let out = both.full(shape, 7.0, dtype);
    let slopes = both.full(shape.elements().div_ceil(4), 7.0, DType::U8);
    run(|of| backend::piecewise(of(&out), Some(of(&slopes)), function, of(left), right.map(of)));
    out.assert_equal(what);
    slopes.assert_equal(&format!("slopes of {what}"));
    let sides: &[Side] = if right.is_some() { &[Side::Left, Side::Right] } else { &[Side::Only] };
    for &side in sides {
        let grad = both.normal(shape, dtype, 3);
        run(|of| backend::piecewise_backward(of(&out), Some(of(&grad)), of(&slopes), side));
        out.assert_equal(&format!("gradient of {what}, {side:?}"));
        run(|of| backend::piecewise_backward(of(&grad), None, of(&slopes), side));
        grad.assert_equal(&format!("gradient of {what}, {side:?}, in place"));
    }
}

#[test]
fn gradients_may_lie_anywhere() {
    on_both(|both| {
        for dtype in FLOATS {
            for shape in SHAPES {
                let elements = shape[0] * shape[1];
                let slopes = both.whole(elements.div_ceil(4), [0.0, 256.0], DType::U8, 4);
                for (name, grad) in both.layouts(shape, |both, shape| both.normal(shape, dtype, 5)) {
                    for side in [Side::Only, Side::Left, Side::Right] {
                        let memory = both.full(elements + 1, 7.0, dtype);
                        let out = memory.map(|t| t.narrow(0, 1, elements)?.reshape(shape));
                        run(|of| backend::piecewise_backward(of(&out), Some(of(&grad)), of(&slopes), side));
                        memory.assert_equal(&format!("{side:?} of {shape:?}, {name}"));
                    }
                }
            }
        }
    });
}
