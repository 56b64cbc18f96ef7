//! Layer normalization.

use highwater_engine::backend;
use highwater_engine::{DType, Tensor};

use crate::harness::{Both, FLOATS, Pair, on_both, run, view};

const SHAPES: [[usize; 2]; 8] = [[5, 1], [700, 3], [1100, 33], [9, 64], [3, 1031], [70, 2100], [2, 2048], [0, 4]];
/// Whether there are a weight and a bias.
const AFFINE: [[bool; 2]; 4] = [[false, false], [true, false], [false, true], [true, true]];

/// The operands of a layer norm besides the input: weight, bias and statistics.
struct Parameters {
    affine: [Option<Pair>; 2],
    statistics: [Pair; 2],
}

fn parameters(both: &Both, [rows, width]: [usize; 2], dtype: DType, has: [bool; 2]) -> Parameters {
    let affine = [0, 1].map(|n| has[n].then(|| both.uniform(width, [0.5, 1.5], dtype, 10 + n as u64)));
    let statistics = [0, 1].map(|_| both.full(rows, 5.0, dtype.statistics()));
    Parameters { affine, statistics }
}

/// Values whose rows have different means.
fn input(both: &Both, shape: [usize; 2], dtype: DType) -> Pair {
    both.uniform(shape, [-1.0, 3.0], dtype, 1)
}

/// The input with the statistics that the CPU computed, on both devices.
fn measured(both: &Both, shape: [usize; 2], dtype: DType, has: [bool; 2]) -> (Pair, Parameters) {
    let (input, mut known) = (input(both, shape, dtype), parameters(both, shape, dtype, has));
    let [mean, rstd] = &known.statistics;
    let out = both.full(shape, 0.0, dtype);
    backend::layer_norm(view(&out.cpu), Some(view(&mean.cpu)), view(&rstd.cpu), view(&input.cpu), [None; 2], 1e-5)
        .expect("the processor computes");
    known.statistics = known.statistics.map(|statistic| both.pair(statistic.cpu));
    (input, known)
}

#[test]
fn rows_of_any_length_become_normal() {
    on_both(|both| {
        for dtype in FLOATS {
            for shape in SHAPES {
                for has in AFFINE {
                    let (input, known) = (input(both, shape, dtype), parameters(both, shape, dtype, has));
                    let out = both.full(shape, 9.0, dtype);
                    let [mean, rstd] = &known.statistics;
                    run(|of| {
                        let affine = known.affine.each_ref().map(|pair| pair.as_ref().map(of));
                        backend::layer_norm(of(&out), Some(of(mean)), of(rstd), of(&input), affine, 1e-5)
                    });
                    mean.assert_near(&format!("means of {shape:?}"), 8.0);
                    rstd.assert_near(&format!("deviations of {shape:?}"), 8.0);
                    out.assert_near(&format!("layer norm of {shape:?} with {has:?}"), 16.0);
                    let (input, known) = measured(both, shape, dtype, has);
                    let again = both.full(shape, 9.0, dtype);
                    run(|of| {
                        let affine = known.affine.each_ref().map(|pair| pair.as_ref().map(of));
                        backend::layer_norm_again(
                            of(&again),
                            Some(of(&known.statistics[0])),
                            of(&known.statistics[1]),
                            of(&input),
                            affine,
                        )
                    });
                    again.assert_near(&format!("layer norm of {shape:?} with {has:?} again"), 16.0);
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
                for has_weight in [false, true] {
                    let (input, known) = measured(both, shape, dtype, [has_weight, false]);
                    let grad = both.normal(shape, dtype, 2);
                    let out = both.full(shape, 9.0, dtype);
                    let backward = |out: &Pair, grad: Option<&Pair>| {
                        run(|of| {
                            let weight = known.affine[0].as_ref().map(of);
                            let [mean, rstd] = known.statistics.each_ref().map(of);
                            backend::layer_norm_backward(of(out), grad.map(of), Some(mean), rstd, of(&input), weight)
                        });
                        out.assert_near(&format!("gradient of {shape:?}, apart {}", grad.is_some()), 32.0);
                    };
                    backward(&out, Some(&grad));
                    backward(&grad, None);
                }
            }
        }
    });
}

#[test]
fn gradients_of_weight_and_bias_are_summed_over_rows_and_added_to_what_is_to_stay() {
    on_both(|both| {
        both.with_and_without_workspace(|| {
            for dtype in FLOATS {
                for shape in [[5, 1], [70, 3], [1000, 33], [40, 64], [300, 520], [0, 4]] {
                    for has in AFFINE {
                        let (input, known) = measured(both, shape, dtype, has);
                        let grad = both.normal(shape, dtype, 2);
                        // What is not to stay is not read.
                        let keep = if shape[0] % 2 == 0 { [1.0, 0.0] } else { [0.0, 0.5] };
                        for (sum, keep) in known.affine.iter().zip(keep) {
                            if let (Some(sum), 0.0) = (sum, keep) {
                                run(|of| backend::fill(of(sum), f64::NAN));
                            }
                        }
                        run(|of| {
                            let [mean, rstd] = known.statistics.each_ref().map(of);
                            let sums = known.affine.each_ref().map(|pair| pair.as_ref().map(of));
                            backend::layer_norm_backward_affine(of(&grad), Some(mean), rstd, of(&input), sums, keep)
                        });
                        for (sum, name) in known.affine.iter().zip(["weight", "bias"]) {
                            if let Some(sum) = sum {
                                sum.assert_near(&format!("gradient of the {name} for {shape:?}"), 32.0);
                            }
                        }
                    }
                }
            }
        });
    });
}

#[test]
fn rows_may_begin_anywhere() {
    on_both(|both| {
        for dtype in FLOATS {
            // From 0 or 1 numbers into memory on, of 16 columns, so that packs are read where all begin alike.
            for [to, from, slopes, of_weight] in [[1, 1, 1, 1], [1, 1, 1, 0], [0, 1, 0, 0], [0, 0, 1, 0], [1, 0, 0, 0]]
            {
                let rows = |start: usize| move |t: &Tensor| t.narrow(0, start, 16 * 20)?.reshape([20, 16]);
                let memory = both.full(400, 7.0, dtype);
                let (out, input) = (memory.map(rows(to)), both.uniform(400, [-1.0, 3.0], dtype, 1).map(rows(from)));
                let grad = both.normal(400, dtype, 2).map(rows(slopes));
                let weight = both.uniform(20, [0.5, 1.5], dtype, 3).map(|t| t.narrow(0, of_weight, 16));
                let sums = both.full(20, 0.5, dtype);
                let sum = sums.map(|t| t.narrow(0, 1, 16));
                let (mean, rstd) = (both.full(20, 0.9, dtype.statistics()), both.full(20, 1.1, dtype.statistics()));
                let what = format!("rows from {to}, {from}, {slopes}, weight from {of_weight}");
                run(|of| {
                    let (mean, rstd) = (Some(of(&mean)), of(&rstd));
                    backend::layer_norm_again(of(&out), mean, rstd, of(&input), [Some(of(&weight)), None])
                });
                memory.assert_near(&format!("{what}, forward"), 16.0);
                run(|of| {
                    let (mean, rstd) = (Some(of(&mean)), of(&rstd));
                    backend::layer_norm_backward_affine(
                        of(&grad),
                        mean,
                        rstd,
                        of(&input),
                        [Some(of(&sum)), None],
                        [1.0, 0.0],
                    )
                });
                sums.assert_near(&format!("{what}, weight"), 16.0);
                run(|of| {
                    let (mean, rstd) = (Some(of(&mean)), of(&rstd));
                    backend::layer_norm_backward(of(&out), Some(of(&grad)), mean, rstd, of(&input), Some(of(&weight)))
                });
                memory.assert_near(&format!("{what}, backward"), 32.0);
            }
        }
    });
}
