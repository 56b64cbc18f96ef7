//! Softmax and log-softmax.

use highwater_engine::backend::{self, View};
use highwater_engine::{Result, Tensor};

use crate::harness::{FLOATS, on_both, run, view};

/// Rows for one lane, for some lanes and for a block, more than all blocks take at a time; of packs and not.
const SHAPES: [[usize; 2]; 8] = [[5, 1], [700, 3], [1100, 33], [70, 64], [3, 1031], [5, 1024], [70, 2100], [0, 4]];

type Forward = fn(View<'_>, Option<View<'_>>) -> Result<()>;
type Backward = fn(View<'_>, Option<View<'_>>, View<'_>) -> Result<()>;
const FORWARD: [(&str, Forward); 2] = [("softmax", backend::softmax), ("log_softmax", backend::log_softmax)];
const BACKWARD: [(&str, Backward, Forward); 2] = [
    ("softmax_backward", backend::softmax_backward, backend::softmax),
    ("log_softmax_backward", backend::log_softmax_backward, backend::log_softmax),
];

#[test]
fn rows_of_any_length_become_shares_of_one() {
    on_both(|both| {
        for dtype in FLOATS {
            for shape in SHAPES {
                for (name, primitive) in FORWARD {
                    let input = both.uniform(shape, [-9.0, 9.0], dtype, 1);
                    let out = both.full(shape, 9.0, dtype);
                    run(|of| primitive(of(&out), Some(of(&input))));
                    out.assert_near(&format!("{name} of {shape:?}"), 8.0);
                    run(|of| primitive(of(&input), None));
                    input.assert_near(&format!("{name} of {shape:?} in place"), 8.0);
                }
            }
        }
    });
}

#[test]
fn gradients_of_shares_are_those_of_the_processor() {
    on_both(|both| {
        for dtype in FLOATS {
            for shape in SHAPES {
                for (name, primitive, forward) in BACKWARD {
                    let result = both.uniform(shape, [-3.0, 3.0], dtype, 1);
                    forward(view(&result.cpu), None).expect("the processor computes");
                    let result = both.pair(result.cpu);
                    let grad = both.normal(shape, dtype, 2);
                    let out = both.full(shape, 9.0, dtype);
                    run(|of| primitive(of(&out), Some(of(&grad)), of(&result)));
                    out.assert_near(&format!("{name} of {shape:?}"), 32.0);
                    run(|of| primitive(of(&grad), None, of(&result)));
                    grad.assert_near(&format!("{name} of {shape:?} in place"), 32.0);
                }
            }
        }
    });
}

#[test]
fn what_is_infinite_or_no_number_spreads_as_on_the_processor() {
    const WIDTH: usize = 600;
    let [infinite, nothing] = [f64::INFINITY, f64::NAN];
    let rows = [(0, -infinite), (1, infinite), (599, nothing), (300, -infinite), (31, 6e4), (32, -6e4)];
    on_both(|both| {
        for dtype in FLOATS {
            let mut numbers: Vec<f64> = (0..WIDTH * rows.len()).map(|i| (i % 17) as f64 / 4.0).collect();
            for (row, (place, number)) in rows.into_iter().enumerate() {
                numbers[row * WIDTH + place] = number;
            }
            numbers.extend([-infinite; WIDTH]);
            // A lane's first numbers are infinite, and later ones are not.
            numbers.extend((0..WIDTH).map(|i| if i < 300 { -infinite } else { 1.0 }));
            let input = Tensor::from_slice(&numbers, [rows.len() + 2, WIDTH], &both.cpu).expect("they fill it");
            let input = both.pair(input.to_dtype(dtype).expect("numbers become numbers"));
            for (name, primitive) in FORWARD {
                let out = both.full([rows.len() + 2, WIDTH], 9.0, dtype);
                run(|of| primitive(of(&out), Some(of(&input))));
                out.assert_near(name, 8.0);
            }
        }
    });
}

#[test]
fn rows_may_begin_anywhere_and_inputs_lie_in_any_layout() {
    on_both(|both| {
        for dtype in FLOATS {
            for (name, primitive, _) in BACKWARD {
                // From 0 or 1 numbers into memory on; rows of 37 begin everywhere.
                for [to, from, results] in [[0, 0, 0], [1, 1, 1], [1, 0, 1], [0, 1, 0], [1, 1, 0]] {
                    let memory = both.full(800, 7.0, dtype);
                    let at = |start: usize| move |t: &Tensor| t.narrow(0, start, 37 * 9)?.reshape([9, 37]);
                    let out = memory.map(at(to));
                    let grad = both.normal(800, dtype, 1).map(at(from));
                    let result = both.uniform(800, [0.0, 0.1], dtype, 2).map(at(results));
                    run(|of| primitive(of(&out), Some(of(&grad)), of(&result)));
                    memory.assert_near(&format!("{name}, and what is beside it"), 32.0);
                }
                let out = both.full([11, 37], 7.0, dtype);
                let result = both.uniform([11, 37], [0.0, 0.1], dtype, 2);
                let grad = both.normal([37, 12], dtype, 3).map(|t| t.transpose(0, 1)?.narrow(0, 1, 11));
                run(|of| primitive(of(&out), Some(of(&grad)), of(&result)));
                out.assert_near(&format!("{name} of a turned gradient"), 32.0);
            }
            for (name, primitive) in FORWARD {
                let out = both.full([3, 5, 37], 7.0, dtype);
                let input = both.normal([3, 1, 37], dtype, 3).map(|t| t.expand([3, 5, 37]));
                run(|of| primitive(of(&out), Some(of(&input))));
                out.assert_near(&format!("{name} of repeated rows"), 8.0);
            }
        }
    });
}
