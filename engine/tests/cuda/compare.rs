//! Elementwise comparisons of two tensors, or of a tensor and a scalar.

use highwater_engine::backend::{self, Comparison};
use highwater_engine::{DType, Tensor};

use crate::harness::{on_both, run};

const COMPARISONS: [Comparison; 6] = [
    Comparison::Less,
    Comparison::LessOrEqual,
    Comparison::Greater,
    Comparison::GreaterOrEqual,
    Comparison::Equal,
    Comparison::NotEqual,
];

#[test]
fn numbers_of_every_type_and_layout_compare() {
    on_both(|both| {
        for dtype in DType::ALL {
            for shape in [[0, 3], [5, 32], [7, 19], [3, 1500]] {
                let right = both.layouts(shape, |both, shape| both.whole(shape, [-2.0, 3.0], dtype, 2));
                for (place, (name, left)) in
                    both.layouts(shape, |both, shape| both.whole(shape, [-2.0, 3.0], dtype, 1)).iter().enumerate()
                {
                    for (number, comparison) in COMPARISONS.into_iter().enumerate() {
                        let (other, right) = &right[(place + number) % right.len()];
                        let wide = both.full([shape[0], shape[1] + 16], 1.0, DType::Bool);
                        let out = wide.map(|t| t.narrow(1, 8 * (number % 2), shape[1]));
                        run(|of| backend::compare(of(&out), comparison, of(left), of(right)));
                        wide.assert_equal(&format!("{comparison:?} of {dtype}, {name} and {other}"));
                        run(|of| backend::compare_number(of(&out), comparison, of(left), 1.0));
                        wide.assert_equal(&format!("{comparison:?} of {dtype}, {name}, and 1"));
                    }
                }
            }
        }
    });
}

#[test]
fn what_is_no_number_only_differs_and_large_whole_numbers_are_distinguished() {
    on_both(|both| {
        let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1.0, 0.1];
        let column = both.pair(Tensor::from_slice(&special, [7, 1], &both.cpu).expect("they fill it"));
        for dtype in [DType::F64, DType::F32, DType::Bf16, DType::F16] {
            let converted = both.pair(column.cpu.to_dtype(dtype).expect("numbers become numbers"));
            let left = converted.map(|t| t.expand([7, 7]));
            let right = converted.map(|t| t.transpose(0, 1)?.expand([7, 7]));
            let out = both.full([7, 7], 1.0, DType::Bool);
            for comparison in COMPARISONS {
                run(|of| backend::compare(of(&out), comparison, of(&left), of(&right)));
                out.assert_equal(&format!("{comparison:?} of {dtype}"));
                for number in special.into_iter().chain([0.100_000_001]) {
                    run(|of| backend::compare_number(of(&out), comparison, of(&left), number));
                    out.assert_equal(&format!("{comparison:?} of {dtype} and {number}"));
                }
            }
        }
        let large = both.indices(4, &[1 << 53, (1 << 53) + 1, -(1 << 53) - 1, i64::MAX]);
        let next = both.indices(4, &[(1 << 53) + 1, (1 << 53) + 1, -(1 << 53), i64::MAX - 1]);
        let bytes = both.whole(9, [0.0, 5.0], DType::U8, 1);
        for comparison in COMPARISONS {
            let out = both.full(4, 1.0, DType::Bool);
            run(|of| backend::compare(of(&out), comparison, of(&large), of(&next)));
            out.assert_equal(&format!("{comparison:?} of whole numbers"));
            run(|of| backend::compare_number(of(&out), comparison, of(&large), 9_007_199_254_740_992.0));
            out.assert_equal(&format!("{comparison:?} of whole numbers and a number"));
            let out = both.full(9, 1.0, DType::Bool);
            run(|of| backend::compare_number(of(&out), comparison, of(&bytes), 3.000_000_000_1));
            out.assert_equal(&format!("{comparison:?} of bytes and nearly 3"));
        }
    });
}
