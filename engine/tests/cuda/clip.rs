//! Gradient norms and gradient clipping.

use highwater_engine::backend;
use highwater_engine::{DType, Shape, Tensor};

use crate::harness::{Both, FLOATS, Pair, on_both, run};

const ORDERS: [f64; 5] = [f64::INFINITY, 2.0, 1.0, 3.0, 0.5];

/// Empty tensors, one element, several aligned and unaligned, more than one block has, and views.
fn gradients(both: &Both, dtype: DType) -> Vec<Pair> {
    vec![
        both.normal([0, 3], dtype, 1),
        both.normal(1, dtype, 2),
        both.normal(700, dtype, 3).map(|t| t.narrow(0, 1, 650)),
        both.normal([9, 5001], dtype, 4),
        both.normal([40, 9], dtype, 5).map(|t| t.transpose(0, 1)?.narrow(1, 3, 31)),
    ]
}

#[test]
fn norms_of_any_order_are_those_of_the_processor() {
    on_both(|both| {
        both.with_and_without_workspace(|| {
            for dtype in FLOATS {
                for gradient in gradients(both, dtype) {
                    for order in ORDERS {
                        let total = both.full((), 0.25, DType::F64);
                        run(|of| backend::add_norm(of(&total), of(&gradient), order));
                        total.assert_close(&format!("order {order} of {:?}", gradient.cpu.shape()), 1e-4, 0.0);
                        run(|of| backend::finish_norm(of(&total), order));
                        total.assert_close(&format!("order {order} of {:?}", gradient.cpu.shape()), 1e-4, 0.0);
                    }
                }
            }
        });
    });
}

#[test]
fn what_is_no_number_makes_every_norm_none() {
    on_both(|both| {
        let mut numbers = vec![1.0_f32; 9000];
        numbers[7001] = f32::NAN;
        let gradient = both.pair(Tensor::from_slice(&numbers, 9000, &both.cpu).expect("they fill it"));
        for order in ORDERS {
            let total = both.full((), 0.25, DType::F64);
            run(|of| backend::add_norm(of(&total), of(&gradient), order));
            assert!(total.cuda.to_f64_vec().expect("it can be read")[0].is_nan(), "order {order}");
            total.assert_equal("no number");
        }
    });
}

#[test]
fn gradients_are_clipped_where_they_lie() {
    on_both(|both| {
        for dtype in FLOATS {
            for norm in [0.0, 2.0, 50.0, f64::INFINITY, f64::NAN] {
                let total = both.full((), norm, DType::F64);
                for gradient in gradients(both, dtype) {
                    run(|of| backend::clip_to_norm(of(&gradient), of(&total), 10.0));
                    gradient.assert_near(&format!("{:?} of norm {norm}", gradient.cpu.shape()), 1.0);
                }
            }
            for gradient in gradients(both, dtype) {
                run(|of| backend::clamp(of(&gradient), -0.3, 0.7));
                gradient.assert_equal(&format!("{:?} clamped", gradient.cpu.shape()));
            }
            let memory = both.normal([7, 6], dtype, 1);
            let view = memory.map(|t| t.transpose(0, 1)?.narrow(1, 1, 5));
            run(|of| backend::clamp(of(&view), -0.3, 0.7));
            memory.assert_equal("what is beside a view stays");
        }
        let numbers = [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 0.5];
        let gradient = both.pair(Tensor::from_slice(&numbers, 5, &both.cpu).expect("they fill it"));
        run(|of| backend::clamp(of(&gradient), -0.3, 0.7));
        gradient.assert_equal("what is no number stays so");
    });
}

#[test]
fn what_is_not_finite_is_found_wherever_it_is() {
    on_both(|both| {
        for dtype in FLOATS {
            for shape in [Shape::from([1, 1]), Shape::from([6, 200]), Shape::from([9, 1500])] {
                for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
                    for place in [0, shape.elements() / 2, shape.elements() - 1] {
                        let mut numbers = vec![60000.0; shape.elements()];
                        let found = |numbers: &[f64]| {
                            let input = Tensor::from_slice(numbers, shape, &both.cpu).expect("they fill it");
                            let input = both.pair(input.to_dtype(dtype).expect("numbers become numbers"));
                            let turned = input.map(|t| t.transpose(0, 1));
                            for input in [input, turned] {
                                let found = both.full((), 0.0, DType::F32);
                                run(|of| backend::find_nonfinite(of(&found), of(&input)));
                                found.assert_equal(&format!("{bad} at {place} of {shape:?}, {dtype}"));
                            }
                        };
                        found(&numbers);
                        numbers[place] = bad;
                        found(&numbers);
                    }
                }
            }
        }
    });
}
