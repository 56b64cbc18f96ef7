//! Squared error of two tensors.

use highwater_engine::backend;
use highwater_engine::{DType, Shape};

use crate::harness::{FLOATS, Pair, on_both, run};

#[test]
fn errors_are_summed_over_any_number_of_elements() {
    on_both(|both| {
        both.with_and_without_workspace(|| {
            for dtype in FLOATS {
                // The processor sums one by one, in double precision.
                let roundings = if dtype == DType::F64 { 256.0 } else { 2.0 };
                for shape in [Shape::from([0, 3]), Shape::from(1), Shape::from([7, 33]), Shape::from([9, 5001])] {
                    let (left, right) = (both.normal(shape, dtype, 1), both.normal(shape, dtype, 2));
                    let loss = both.full((), 9.0, dtype);
                    run(|of| backend::squared_error(of(&loss), of(&left), of(&right), 0.125));
                    loss.assert_near(&format!("{shape:?}"), roundings);
                }
                let left = both.normal([40, 9], dtype, 1).map(|t| t.transpose(0, 1)?.narrow(1, 3, 31));
                let right = both.normal([9, 1], dtype, 2).map(|t| t.expand([9, 31]));
                let loss = both.full((), 9.0, dtype);
                run(|of| backend::squared_error(of(&loss), of(&left), of(&right), 0.125));
                loss.assert_near("turned and repeated operands", roundings);
                let left = both.normal(4000, dtype, 1).map(|t| t.narrow(0, 1, 3900));
                let right = both.normal(4000, dtype, 1).map(|t| t.narrow(0, 2, 3900));
                run(|of| backend::squared_error(of(&loss), of(&left), of(&right), 0.125));
                loss.assert_near("operands that begin anywhere", roundings);
            }
        });
    });
}

#[test]
fn gradients_of_errors_are_those_of_the_processor() {
    on_both(|both| {
        for dtype in FLOATS {
            let grad = both.full((), 1.5, dtype);
            for shape in [Shape::from([0, 3]), Shape::from(1), Shape::from([7, 33]), Shape::from([64, 40])] {
                let (left, right) = (both.normal(shape, dtype, 1), both.normal(shape, dtype, 2));
                let out = both.full(shape, 9.0, dtype);
                let backward = |out: &Pair, left: Option<&Pair>| {
                    run(|of| backend::squared_error_backward(of(out), of(&grad), left.map(of), of(&right), 0.25));
                    out.assert_near(&format!("{shape:?}, apart {}", left.is_some()), 4.0);
                };
                backward(&out, Some(&left));
                backward(&left, None);
            }
            let memory = both.normal([40, 9], dtype, 1);
            let left = memory.map(|t| t.transpose(0, 1)?.narrow(1, 3, 31));
            let right = both.normal([9, 1], dtype, 2).map(|t| t.expand([9, 31]));
            run(|of| backend::squared_error_backward(of(&left), of(&grad), None, of(&right), 0.25));
            memory.assert_near("in place of a view, and what is beside it", 4.0);
        }
    });
}
