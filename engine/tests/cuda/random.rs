//! Random numbers, which are the same on every device, and ranges.

use highwater_engine::backend::{self, Distribution};
use highwater_engine::rng::Draw;
use highwater_engine::{DType, Rng};

use crate::harness::{FLOATS, on_both, run};

const SIZES: [usize; 6] = [0, 1, 3, 4, 1027, 9000];

/// Draws near the beginning of a stream, and at positions that need more than one word.
fn draws() -> [Draw; 2] {
    let mut rng = Rng::new(0x1234_5678_9abc_def1);
    rng.draw(5);
    let first = rng.draw(9000);
    rng.draw(1 << 40);
    [first, rng.draw(9000)]
}

#[test]
fn even_numbers_are_the_same_bit_by_bit() {
    on_both(|both| {
        for dtype in FLOATS {
            for size in SIZES {
                for draw in draws() {
                    for [low, high] in [[0.0, 1.0], [-0.37, 0.73], [-5.0, 1e-3]] {
                        let memory = both.full(size + 3, 7.0, dtype);
                        for first in [0, 1] {
                            let out = memory.map(|t| t.narrow(0, first, size));
                            run(|of| backend::random(of(&out), Distribution::Uniform { low, high }, draw));
                            memory.assert_equal(&format!("{size} from {low} to {high}"));
                        }
                    }
                }
            }
        }
    });
}

#[test]
fn numbers_of_the_bell_curve_differ_by_their_last_digit_at_most() {
    on_both(|both| {
        for dtype in FLOATS {
            for size in SIZES {
                for draw in draws() {
                    let memory = both.full(size + 3, 7.0, dtype);
                    for first in [0, 1] {
                        let out = memory.map(|t| t.narrow(0, first, size));
                        let distribution = Distribution::Normal { mean: 0.5, deviation: 1.75 };
                        run(|of| backend::random(of(&out), distribution, draw));
                        let digits = if dtype == DType::F64 { 1.2e2 } else { 1.2e-7 };
                        memory.assert_close(&format!("{size} numbers"), digits, digits);
                    }
                }
            }
        }
    });
}

#[test]
fn the_same_numbers_are_left_out() {
    on_both(|both| {
        let draw = draws()[1];
        for dtype in FLOATS {
            for share in [0.0, 0.3, 0.5, 1.0 - 1.0 / 1024.0] {
                for shape in [[0, 3], [1, 1], [5, 32], [7, 19], [3, 2001]] {
                    for (name, input) in both.layouts(shape, |both, shape| both.normal(shape, dtype, 1)) {
                        let out = both.full(shape, 7.0, dtype);
                        run(|of| backend::dropout(of(&out), Some(of(&input)), share, draw));
                        out.assert_equal(&format!("{share} of {shape:?}, {name}"));
                    }
                    let memory = both.normal([shape[0] * shape[1] + 2], dtype, 2);
                    let out = memory.map(|t| t.narrow(0, 1, shape[0] * shape[1]));
                    run(|of| backend::dropout(of(&out), None, share, draw));
                    memory.assert_equal(&format!("{share} of {shape:?} in place"));
                }
            }
        }
    });
}

#[test]
fn sequences_rise_and_fall_by_their_step() {
    on_both(|both| {
        for dtype in FLOATS.into_iter().chain([DType::I64]) {
            for size in SIZES {
                for [start, step] in [[0.0, 1.0], [2.5, -0.1], [-3.0, 7.0]] {
                    let memory = both.full(size + 2, 7.0, dtype);
                    let out = memory.map(|t| t.narrow(0, 1, size));
                    run(|of| backend::arange(of(&out), start, step));
                    memory.assert_equal(&format!("{size} from {start} by {step}"));
                }
            }
        }
    });
}
