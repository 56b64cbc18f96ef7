//! Powers with a constant exponent.

use highwater_engine::{Tensor, backend};

use crate::harness::{FLOATS, on_both, run};

const EXPONENTS: [f64; 10] = [2.0, 1.0, 3.0, 0.5, -0.5, -1.0, 0.0, 2.5, -1.75, 4.0];

/// Largest relative error of a power in single precision.
const OFF: f64 = 2e-6;

#[test]
fn powers_and_their_slopes_are_those_of_the_processor() {
    on_both(|both| {
        for dtype in FLOATS {
            for shape in [[0, 3], [5, 32], [7, 19], [3, 1500]] {
                let grads = both.layouts(shape, |both, shape| both.normal(shape, dtype, 2));
                let inputs = both.layouts(shape, |both, shape| both.uniform(shape, [0.25, 3.0], dtype, 1));
                for (place, (name, input)) in inputs.iter().enumerate() {
                    for (number, exponent) in EXPONENTS.into_iter().enumerate() {
                        let (other, grad) = &grads[(place + number) % grads.len()];
                        let wide = both.full([shape[0], shape[1] + 16], 7.0, dtype);
                        let out = wide.map(|t| t.narrow(1, 8 * (number % 2), shape[1]));
                        run(|of| backend::power(of(&out), of(input), exponent));
                        wide.assert_close(&format!("what is {name}, to the power {exponent}"), OFF, 0.0);
                        run(|of| backend::power_backward(of(&out), Some(of(grad)), of(input), exponent));
                        wide.assert_close(&format!("slope for {exponent} of what is {name}, {other}"), OFF, 0.0);
                        run(|of| backend::power_backward(of(&out), None, of(input), exponent));
                        wide.assert_close(&format!("slope for {exponent} of what is {name}, in place"), 2.0 * OFF, 0.0);
                    }
                }
            }
        }
    });
}

#[test]
fn numbers_without_a_power_have_none_on_any_device() {
    on_both(|both| {
        let special = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, 1.0, -2.0];
        for dtype in FLOATS {
            let input = Tensor::from_slice(&special, 7, &both.cpu).expect("they fill it");
            let input = both.pair(input.to_dtype(dtype).expect("numbers become numbers"));
            for exponent in EXPONENTS {
                let out = both.full(7, 1.0, dtype);
                run(|of| backend::power(of(&out), of(&input), exponent));
                out.assert_close(&format!("to the power {exponent}"), OFF, 0.0);
                let grad = both.full(7, 1.5, dtype);
                run(|of| backend::power_backward(of(&grad), None, of(&input), exponent));
                grad.assert_close(&format!("slope of the power {exponent}"), OFF, 0.0);
            }
        }
    });
}
