//! Elementwise functions, fills and copies.

use highwater_engine::backend::{self, Binary, Ternary, Unary};
use highwater_engine::{DType, Shape};

use crate::harness::{Both, FLOATS, Pair, on_both, run};

const UNARY: [Unary; 14] = [
    Unary::Affine { scale: -1.5, shift: 0.25 },
    Unary::Exp,
    Unary::Log,
    Unary::Sqrt,
    Unary::AffineSqrt { scale: 1.5, shift: -0.5 },
    Unary::Square,
    Unary::Tanh,
    Unary::Sin,
    Unary::Cos,
    Unary::Sigmoid,
    Unary::Silu,
    Unary::Relu,
    Unary::Gelu,
    Unary::GeluTanh,
];

const BINARY: [Binary; 17] = [
    Binary::Add,
    Binary::Sub,
    Binary::Mul,
    Binary::Div,
    Binary::AddScaled(-0.75),
    Binary::Lerp(0.3),
    Binary::NegMul,
    Binary::SquareGrad,
    Binary::SqrtGrad,
    Binary::TanhGrad,
    Binary::SinGrad,
    Binary::CosGrad,
    Binary::SigmoidGrad,
    Binary::SiluGrad,
    Binary::ReluGrad,
    Binary::GeluGrad,
    Binary::GeluTanhGrad,
];

const TERNARY: [Ternary; 3] =
    [Ternary::AddMul { keep: 1.0, scale: 0.5 }, Ternary::AddMul { keep: 0.75, scale: -2.0 }, Ternary::AddDiv(-0.5)];

/// Rows that are copied in packs of 16 bytes, whatever the dtype, and rows that are not.
const SHAPES: [[usize; 2]; 2] = [[5, 32], [7, 19]];

/// Values for which every function is defined.
fn positive(dtype: DType, seed: u64) -> impl Fn(&Both, Shape) -> Pair {
    move |both, shape| both.uniform(shape, [0.1, 3.0], dtype, seed)
}

#[test]
fn functions_of_one_number_are_those_of_the_processor() {
    on_both(|both| {
        for dtype in FLOATS {
            for function in UNARY {
                for shape in [Shape::from([5, 7]), Shape::from([0, 3]), Shape::from(1), Shape::from([3, 1031])] {
                    let input = both.uniform(shape, [0.1, 3.0], dtype, 1);
                    let out = both.full(shape, 9.0, dtype);
                    run(|of| backend::unary(of(&out), function, Some(of(&input))));
                    out.assert_close(&format!("{function:?}"), 2e-6, 1e-6);
                    run(|of| backend::unary(of(&input), function, None));
                    input.assert_close(&format!("{function:?} in place"), 2e-6, 1e-6);
                }
            }
        }
    });
}

#[test]
fn numbers_below_zero_and_beyond_all_bounds_give_what_they_give_the_processor() {
    on_both(|both| {
        for dtype in FLOATS {
            for (place, function) in UNARY.into_iter().enumerate() {
                let input = both.normal([3, 50], dtype, place as u64);
                for (at, number) in
                    [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 30.0].into_iter().enumerate()
                {
                    let one = input.map(|t| t.narrow(1, at, 1));
                    run(|of| backend::fill(of(&one), number));
                }
                run(|of| backend::unary(of(&input), function, None));
                input.assert_close(&format!("{function:?}"), 3e-6, 1e-6);
            }
        }
    });
}

#[test]
fn functions_of_one_number_take_any_layout() {
    on_both(|both| {
        for dtype in FLOATS {
            for shape in SHAPES {
                for (name, input) in both.layouts(shape, positive(dtype, 1)) {
                    for (number, function) in UNARY.into_iter().enumerate() {
                        let wide = both.full([shape[0], shape[1] + 16], 7.0, dtype);
                        let out = wide.map(|t| t.narrow(1, 8 * (number % 2), shape[1]));
                        run(|of| backend::unary(of(&out), function, Some(of(&input))));
                        wide.assert_close(&format!("{function:?} of what is {name}"), 2e-6, 1e-6);
                    }
                }
            }
        }
    });
}

#[test]
fn functions_of_two_numbers_take_any_layouts() {
    on_both(|both| {
        for dtype in FLOATS {
            for shape in SHAPES {
                let left = both.layouts(shape, positive(dtype, 1));
                let right = both.layouts(shape, positive(dtype, 2));
                for (number, function) in BINARY.into_iter().enumerate() {
                    for (place, (name, left)) in left.iter().enumerate() {
                        // Every layout of one side meets every layout of the other, with one function or another.
                        let (other, right) = &right[(place + number) % right.len()];
                        let what = format!("{function:?} of what is {name} and {other}");
                        let out = both.full(shape, 7.0, dtype);
                        run(|of| backend::binary(of(&out), function, Some(of(left)), of(right)));
                        out.assert_close(&what, 3e-6, 1e-6);
                        run(|of| backend::binary(of(&out), function, None, of(right)));
                        out.assert_close(&format!("{what}, then in place"), 1e-5, 1e-5);
                    }
                }
            }
        }
    });
}

#[test]
fn functions_of_three_numbers_take_any_layouts() {
    on_both(|both| {
        for dtype in FLOATS {
            for shape in SHAPES {
                let left = both.layouts(shape, positive(dtype, 1));
                let right = both.layouts(shape, positive(dtype, 2));
                for function in TERNARY {
                    for (place, (name, left)) in left.iter().enumerate() {
                        for turn in [0, 1, 3] {
                            let (other, right) = &right[(place + turn) % right.len()];
                            let wide = both.normal([shape[0], shape[1] + 16], dtype, 3);
                            let out = wide.map(|t| t.narrow(1, 8 * (place % 2), shape[1]));
                            run(|of| backend::ternary(of(&out), function, of(left), of(right)));
                            wide.assert_close(&format!("{function:?} of what is {name} and {other}"), 3e-6, 1e-6);
                        }
                    }
                }
            }
        }
    });
}

#[test]
fn more_than_one_block_is_done_and_nothing_is_done_for_nothing() {
    on_both(|both| {
        for dtype in FLOATS {
            for shape in [[0, 5], [3, 0], [1, 1], [2, 7001], [700, 3]] {
                let (left, right) = (both.normal(shape, dtype, 1), both.uniform(shape, [0.5, 2.0], dtype, 2));
                let row = both.normal([shape[1]], dtype, 3).map(|t| t.expand(shape));
                for function in [Binary::Sub, Binary::Lerp(0.25)] {
                    let out = both.full(shape, 7.0, dtype);
                    run(|of| backend::binary(of(&out), function, Some(of(&left)), of(&right)));
                    out.assert_close(&format!("{function:?} of {shape:?}"), 1e-6, 1e-6);
                    run(|of| backend::binary(of(&out), function, None, of(&row)));
                    out.assert_close(&format!("{function:?} of {shape:?} and a row"), 1e-6, 1e-6);
                }
                for function in TERNARY {
                    run(|of| backend::ternary(of(&left), function, of(&right), of(&right)));
                    left.assert_close(&format!("{function:?} of {shape:?}"), 3e-6, 1e-6);
                }
            }
        }
    });
}

#[test]
fn outputs_and_operands_of_many_axes_are_found() {
    on_both(|both| {
        for dtype in [DType::F32, DType::Bf16] {
            let left = both.normal([6, 40], dtype, 1).map(|t| t.transpose(0, 1)?.narrow(0, 3, 30));
            let right = both.normal([6], dtype, 2).map(|t| t.expand([30, 6]));
            let wide = both.full([30, 11], 7.0, dtype);
            let out = wide.map(|t| t.narrow(1, 2, 6));
            run(|of| backend::binary(of(&out), Binary::Mul, Some(of(&left)), of(&right)));
            run(|of| backend::ternary(of(&out), Ternary::AddMul { keep: 1.0, scale: 0.5 }, of(&left), of(&right)));
            wide.assert_close("what is beside the output stays as it was", 1e-6, 0.0);

            let shape = [2, 3, 4, 5, 6];
            let left = both.normal([6, 4, 2, 5, 3], dtype, 1).map(|t| t.permute(&[2, 4, 1, 3, 0]));
            let right = both.normal([3, 1, 5, 1], dtype, 2).map(|t| t.expand(shape));
            let out = both.full([2, 3, 4, 6, 5], 7.0, dtype).map(|t| t.transpose(3, 4));
            run(|of| backend::binary(of(&out), Binary::Sub, Some(of(&left)), of(&right)));
            out.assert_equal("five axes");
        }
    });
}

#[test]
fn every_type_is_filled_where_its_view_lies() {
    on_both(|both| {
        for dtype in DType::ALL {
            for value in [0.0, 1.0, 77.3] {
                for shape in [[0, 4], [1, 1], [3, 1500], [6, 32]] {
                    let wide = both.full([shape[0], shape[1] + 16], 3.0, dtype);
                    for columns in [0, 5, 16] {
                        let view = wide.map(|t| t.narrow(1, columns, shape[1]));
                        run(|of| backend::fill(of(&view), value));
                        wide.assert_equal(&format!("{value} in {shape:?} from {columns} on"));
                    }
                    let column = wide.map(|t| t.narrow(1, 2, 1));
                    run(|of| backend::fill(of(&column), 2.0));
                    wide.assert_equal(&format!("a column of {shape:?}"));
                }
            }
        }
    });
}

#[test]
fn every_type_is_copied_from_any_layout_to_any_other() {
    on_both(|both| {
        for dtype in DType::ALL {
            let make = |both: &Both, shape: Shape| both.whole(shape, [0.0, 250.0], dtype, 4);
            for shape in [[5, 32], [7, 19], [70, 45], [17, 130]] {
                let outs = both.layouts(shape, |both, shape| both.full(shape, 1.0, dtype));
                for (number, (name, input)) in both.layouts(shape, make).iter().enumerate() {
                    // The last layouts repeat numbers, and cannot be written.
                    for turn in [0, 2] {
                        let (other, out) = &outs[(number + turn) % 5];
                        run(|of| backend::copy(of(out), of(input)));
                        out.assert_equal(&format!("what is {name} to what is {other}, {shape:?}"));
                    }
                }
            }
        }
    });
}

#[test]
fn matrices_are_turned_tile_by_tile_and_nothing_beside_them_changes() {
    on_both(|both| {
        for dtype in [DType::F64, DType::F32, DType::Bf16, DType::U8] {
            for (shape, order) in [
                ([3, 70, 40], [0, 2, 1]),
                ([40, 3, 70], [2, 1, 0]),
                ([17, 2, 129], [2, 1, 0]),
                ([2, 16, 64], [0, 2, 1]),
                ([65, 33, 2], [1, 0, 2]),
            ] {
                let input = both.whole(shape, [0.0, 250.0], dtype, 5).map(|t| t.permute(&order));
                let [a, b, c] = [0, 1, 2].map(|axis| input.cpu.shape()[axis]);
                let wide = both.full([a, b + 1, c + 3], 9.0, dtype);
                let out = wide.map(|t| t.narrow(2, 1, c)?.narrow(1, 0, b));
                run(|of| backend::copy(of(&out), of(&input)));
                wide.assert_equal(&format!("{shape:?} by {order:?}"));
            }
        }
    });
}
