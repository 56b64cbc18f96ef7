//! RMS normalization.

use highwater_engine::DType;
use highwater_engine::backend;

use crate::harness::{Both, FLOATS, Pair, on_both, run, view};

const SHAPES: [[usize; 2]; 8] = [[5, 1], [700, 3], [1100, 33], [9, 64], [3, 1031], [70, 2100], [2, 2048], [0, 4]];

fn weight(both: &Both, width: usize, dtype: DType) -> Pair {
    both.uniform(width, [0.5, 1.5], dtype, 10)
}

/// An input and the statistics that the CPU computed of it, on both devices.
fn measured(both: &Both, shape: [usize; 2], dtype: DType) -> (Pair, Pair) {
    let input = both.uniform(shape, [-1.0, 3.0], dtype, 1);
    let (out, inverse) = (both.full(shape, 0.0, dtype), both.full(shape[0], 5.0, dtype.statistics()));
    backend::layer_norm(view(&out.cpu), None, view(&inverse.cpu), view(&input.cpu), [None; 2], 1e-6)
        .expect("the processor computes");
    (input, both.pair(inverse.cpu))
}

#[test]
fn rows_of_any_length_are_scaled() {
    on_both(|both| {
        for dtype in FLOATS {
            for shape in SHAPES {
                for weight in [None, Some(weight(both, shape[1], dtype))] {
                    let input = both.uniform(shape, [-1.0, 3.0], dtype, 1);
                    let (out, inverse) = (both.full(shape, 9.0, dtype), both.full(shape[0], 5.0, dtype.statistics()));
                    let what = format!("{shape:?}, with a weight {}", weight.is_some());
                    run(|of| {
                        let affine = [weight.as_ref().map(of), None];
                        backend::layer_norm(of(&out), None, of(&inverse), of(&input), affine, 1e-6)
                    });
                    inverse.assert_near(&format!("1 / root of {what}"), 64.0);
                    out.assert_near(&what, 64.0);
                    let (input, inverse) = measured(both, shape, dtype);
                    let again = both.full(shape, 9.0, dtype);
                    run(|of| {
                        let affine = [weight.as_ref().map(of), None];
                        backend::layer_norm_again(of(&again), None, of(&inverse), of(&input), affine)
                    });
                    again.assert_near(&format!("{what} again"), 4.0);
                }
            }
        }
    });
}

#[test]
fn gradients_of_rows_are_those_of_the_processor() {
    on_both(|both| {
        for dtype in FLOATS {
            for shape in SHAPES {
                for weight in [None, Some(weight(both, shape[1], dtype))] {
                    let (input, inverse) = measured(both, shape, dtype);
                    let (grad, out) = (both.normal(shape, dtype, 2), both.full(shape, 9.0, dtype));
                    let backward = |out: &Pair, grad: Option<&Pair>| {
                        run(|of| {
                            let weight = weight.as_ref().map(of);
                            backend::layer_norm_backward(of(out), grad.map(of), None, of(&inverse), of(&input), weight)
                        });
                        let what = format!("gradient of {shape:?}, with a weight {}", weight.is_some());
                        out.assert_near(&format!("{what}, apart {}", grad.is_some()), 16.0);
                    };
                    backward(&out, Some(&grad));
                    backward(&grad, None);
                }
            }
        }
    });
}

#[test]
fn gradients_of_the_weight_are_summed_over_rows_and_added_to_what_is_to_stay() {
    on_both(|both| {
        both.with_and_without_workspace(|| {
            for dtype in FLOATS {
                for shape in [[5, 1], [70, 3], [1000, 33], [40, 64], [300, 520], [0, 4]] {
                    let (input, inverse) = measured(both, shape, dtype);
                    let (grad, sum) = (both.normal(shape, dtype, 2), weight(both, shape[1], dtype));
                    for keep in [1.0, 0.0] {
                        if keep == 0.0 {
                            run(|of| backend::fill(of(&sum), f64::NAN));
                        }
                        run(|of| {
                            let (grad, inverse, input) = (of(&grad), of(&inverse), of(&input));
                            let sums = [Some(of(&sum)), None];
                            backend::layer_norm_backward_affine(grad, None, inverse, input, sums, [keep, 0.0])
                        });
                        sum.assert_near(&format!("gradient of the weight for {shape:?}, of which {keep} stays"), 32.0);
                    }
                }
            }
        });
    });
}
