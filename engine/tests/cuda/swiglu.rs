//! SwiGLU and both gradients.

use highwater_engine::{DType, backend};

use crate::harness::{Both, FLOATS, Pair, on_both, run};

const SIZES: [usize; 5] = [0, 1, 5, 37, 3001];

/// Values that begin at an unaligned or an aligned element.
fn inputs(both: &Both, dtype: DType, size: usize, first: usize) -> [Pair; 3] {
    [1, 2, 3].map(|seed| both.normal(size + 1, dtype, seed).map(|t| t.narrow(0, first, size)))
}

#[test]
fn gated_numbers_are_those_of_the_processor() {
    on_both(|both| {
        for dtype in FLOATS {
            for size in SIZES {
                for first in [0, 1] {
                    let [gate, up, _] = inputs(both, dtype, size, first);
                    let out = both.full(size, 7.0, dtype);
                    run(|of| backend::swiglu(of(&out), of(&gate), of(&up)));
                    out.assert_close(&format!("{size} numbers"), 2e-6, 1e-7);
                }
            }
        }
    });
}

#[test]
fn gradients_are_written_beside_or_over_what_they_are_computed_from() {
    on_both(|both| {
        for dtype in FLOATS {
            for size in SIZES {
                for first in [0, 1] {
                    // Where the gradients of gate and up go: nowhere, to memory of their own, or over what is read.
                    for of_gate in 0..5 {
                        for of_up in 0..5 {
                            if of_gate == of_up && of_gate > 1 {
                                continue;
                            }
                            let read = inputs(both, dtype, size, first);
                            let own = [both.full(size, 7.0, dtype), both.full(size, 7.0, dtype)];
                            let place = |n: usize, to: usize| match to {
                                0 => None,
                                1 => Some(&own[n]),
                                _ => Some(&read[to - 2]),
                            };
                            let to = [place(0, of_gate), place(1, of_up)];
                            let [gate, up, grad] = &read;
                            run(|of| backend::swiglu_backward(of(grad), [of(gate), of(up)], to.map(|to| to.map(of))));
                            for pair in own.iter().chain(&read) {
                                pair.assert_close(&format!("{size} numbers, to {of_gate} and {of_up}"), 4e-6, 1e-6);
                            }
                        }
                    }
                }
            }
        }
    });
}
