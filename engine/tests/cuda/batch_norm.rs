//! Batch normalization.

use highwater_engine::backend::{self, Spread};
use highwater_engine::{DType, Shape};

use crate::harness::{Both, FLOATS, Pair, on_both, run};

/// Lines of one number, of a few bytes, of packs and not; channels of one block and of several, and more of them than
/// blocks go round.
fn shapes() -> [Shape; 8] {
    [
        Shape::from([40, 9]),
        Shape::from([300, 64]),
        Shape::from([70, 5, 3]),
        Shape::from([6, 80, 2, 8]),
        Shape::from([3, 7, 5, 7]),
        Shape::from([1, 3, 2100]),
        Shape::from([5, 2, 64, 16]),
        Shape::from([0, 3, 4]),
    ]
}

struct Known {
    mean: Pair,
    spread: Pair,
    kind: Spread,
    weight: Pair,
    bias: Pair,
}

fn known(both: &Both, channels: usize, dtype: DType, kind: Spread) -> Known {
    let statistics = dtype.statistics();
    Known {
        mean: both.uniform(channels, [0.5, 1.5], statistics, 11),
        spread: both.uniform(channels, [0.5, 1.5], statistics, 12),
        kind,
        weight: both.uniform(channels, [0.5, 1.5], dtype, 13),
        bias: both.uniform(channels, [0.5, 1.5], dtype, 14),
    }
}

const SPREADS: [Spread; 2] = [Spread::Rstd, Spread::Variance { epsilon: 1e-3 }];

#[test]
fn channels_of_any_shape_are_measured() {
    on_both(|both| {
        both.with_and_without_workspace(|| {
            for dtype in FLOATS {
                for shape in shapes().into_iter().filter(|shape| shape.elements() > 0) {
                    for remembers in [false, true] {
                        let statistics = dtype.statistics();
                        let input = both.uniform(shape, [-1.0, 3.0], dtype, 1);
                        let [mean, rstd] = [7.0, 8.0].map(|number| both.full(shape[1], number, statistics));
                        let running = [21, 22].map(|seed| both.uniform(shape[1], [0.5, 1.5], statistics, seed));
                        run(|of| {
                            let running = remembers.then(|| running.each_ref().map(of));
                            backend::batch_norm_measure(of(&mean), of(&rstd), of(&input), running, 0.25, 1e-5)
                        });
                        for (pair, name) in [&mean, &rstd, &running[0], &running[1]].into_iter().zip([
                            "mean",
                            "deviation",
                            "running mean",
                            "running variance",
                        ]) {
                            pair.assert_near(&format!("{name} of {shape:?}"), 16.0);
                        }
                    }
                }
            }
        });
    });
}

#[test]
fn a_mean_far_from_zero_costs_no_digits_of_the_variance() {
    on_both(|both| {
        for shape in [Shape::from([300, 3]), Shape::from([30, 3, 700])] {
            let input = both.uniform(shape, [1000.0, 1001.0], DType::F32, 1);
            let [mean, rstd] = [7.0, 8.0].map(|number| both.full(shape[1], number, DType::F32));
            run(|of| backend::batch_norm_measure(of(&mean), of(&rstd), of(&input), None, 0.0, 0.0));
            mean.assert_near("mean", 8.0);
            rstd.assert_close("deviation", 1e-4, 0.0);
        }
    });
}

#[test]
fn channels_become_normal_by_their_statistics() {
    on_both(|both| {
        for dtype in FLOATS {
            for shape in shapes() {
                for kind in SPREADS {
                    for has in [[false, false], [true, false], [true, true]] {
                        let known = known(both, shape[1], dtype, kind);
                        let input = both.uniform(shape, [-1.0, 3.0], dtype, 1);
                        let out = both.full(shape, 9.0, dtype);
                        run(|of| {
                            let affine = [has[0].then(|| of(&known.weight)), has[1].then(|| of(&known.bias))];
                            let statistics = [of(&known.mean), of(&known.spread)];
                            backend::batch_norm(of(&out), of(&input), statistics, known.kind, affine)
                        });
                        out.assert_near(&format!("{shape:?}, {kind:?}, weight and bias {has:?}"), 8.0);
                    }
                }
            }
        }
    });
}

#[test]
fn gradients_of_weight_and_bias_are_added_over_examples_and_places() {
    on_both(|both| {
        both.with_and_without_workspace(|| {
            for dtype in FLOATS {
                for shape in shapes() {
                    for (kind, [has_weight, has_bias]) in
                        [(SPREADS[0], [true, true]), (SPREADS[1], [true, false]), (SPREADS[1], [false, true])]
                    {
                        let known = known(both, shape[1], dtype, kind);
                        let input = both.uniform(shape, [-1.0, 3.0], dtype, 1);
                        let grad = both.normal(shape, dtype, 2);
                        run(|of| {
                            let sums = [has_weight.then(|| of(&known.weight)), has_bias.then(|| of(&known.bias))];
                            let statistics = [of(&known.mean), of(&known.spread)];
                            let values = has_weight.then(|| of(&input));
                            backend::batch_norm_backward_affine(of(&grad), values, statistics, known.kind, sums)
                        });
                        known.weight.assert_near(&format!("weight for {shape:?}"), 32.0);
                        known.bias.assert_near(&format!("bias for {shape:?}"), 32.0);
                    }
                }
            }
        });
    });
}

#[test]
fn gradients_of_channels_are_those_of_the_processor() {
    on_both(|both| {
        both.with_and_without_workspace(|| {
            for dtype in FLOATS {
                for shape in shapes() {
                    for (kind, has_input, has_weight) in
                        [(SPREADS[0], true, true), (SPREADS[1], false, true), (SPREADS[1], true, false)]
                    {
                        let known = known(both, shape[1], dtype, kind);
                        let input = both.uniform(shape, [-1.0, 3.0], dtype, 1);
                        let grad = both.normal(shape, dtype, 2);
                        let out = both.full(shape, 9.0, dtype);
                        let backward = |out: &Pair, grad: Option<&Pair>| {
                            run(|of| {
                                let statistics = [of(&known.mean), of(&known.spread)];
                                let (values, weight) =
                                    (has_input.then(|| of(&input)), has_weight.then(|| of(&known.weight)));
                                backend::batch_norm_backward(of(out), grad.map(of), values, statistics, kind, weight)
                            });
                            let what = format!("{shape:?}, {kind:?}, with input {has_input}, apart {}", grad.is_some());
                            out.assert_near(&what, 32.0);
                        };
                        backward(&out, Some(&grad));
                        backward(&grad, None);
                    }
                }
            }
        });
    });
}

#[test]
fn groups_of_channels_become_normal_by_their_statistics() {
    on_both(|both| {
        for dtype in FLOATS {
            for shape in shapes() {
                for groups in (1..=shape[1]).filter(|groups| shape[1] % groups == 0) {
                    let [mean, rstd] =
                        [1, 2].map(|seed| both.uniform([shape[0], groups], [0.5, 1.5], dtype.statistics(), seed));
                    let [weight, bias] = [3, 4].map(|seed| both.uniform(shape[1], [0.5, 1.5], dtype, seed));
                    let input = both.uniform(shape, [-1.0, 3.0], dtype, 5);
                    for has in [[false, false], [true, false], [true, true]] {
                        let out = both.full(shape, 9.0, dtype);
                        run(|of| {
                            let affine = [has[0].then(|| of(&weight)), has[1].then(|| of(&bias))];
                            let known = [of(&mean), of(&rstd)];
                            backend::batch_norm(of(&out), of(&input), known, Spread::Rstd, affine)
                        });
                        out.assert_near(&format!("{groups} groups of {shape:?}, weight and bias {has:?}"), 8.0);
                    }
                    let grad = both.normal(shape, dtype, 6);
                    both.with_and_without_workspace(|| {
                        run(|of| {
                            let (known, sums) = ([of(&mean), of(&rstd)], [Some(of(&weight)), Some(of(&bias))]);
                            let input = Some(of(&input));
                            backend::batch_norm_backward_affine(of(&grad), input, known, Spread::Rstd, sums)
                        });
                        weight.assert_near(&format!("weight for {groups} groups of {shape:?}"), 32.0);
                        bias.assert_near(&format!("bias for {groups} groups of {shape:?}"), 32.0);
                    });
                }
            }
        }
    });
}
