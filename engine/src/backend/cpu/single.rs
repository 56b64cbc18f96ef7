//! Exponentials in single precision without branches or calls, so that loops vectorize.
//!
//! Polynomials are minimax fits of the relative error, computed by iteratively reweighted least squares at Chebyshev
//! points. No multiply-add is fused, so results are the same on every processor. Errors are given in units in the last
//! place (ulp).

/// 1.5 · 2²³. Adding it to a number rounds the number to an integer, which is then in the lowest bits.
const ROUND: f32 = 12_582_912.0;

/// ln 2 as a sum of two parts. The first has few bits, so that its product with a small integer is exact; the second is
/// the remainder.
const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];

/// Evaluates a polynomial, given its coefficients from the highest power down.
#[inline(always)]
fn polynomial<const N: usize>(x: f32, coefficients: [f32; N]) -> f32 {
    let mut value = 0.0;
    let mut first = true;
    for coefficient in coefficients {
        value = if first { coefficient } else { value * x + coefficient };
        first = false;
    }
    value
}

/// Computes eˣ within 1 ulp. Subnormal results are within 1 subnormal ulp.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    // Below the first bound the result is 0, above the second infinite; NaN passes both.
    let x = if x < -104.0 { -104.0 } else { x };
    let x = if x > 89.0 { 89.0 } else { x };
    let rounded = x * std::f32::consts::LOG2_E + ROUND;
    let power = rounded.to_bits().wrapping_sub(ROUND.to_bits()) as i32;
    let whole = rounded - ROUND;
    let rest = (x - whole * LN_2[0]) - whole * LN_2[1];
    let series = polynomial(rest, [1.381_314_4e-3, 8.369_419e-3, 4.166_845_7e-2, 1.666_651_5e-1, 4.999_999_3e-1]);
    let value = (rest * rest * series + rest) + 1.0;
    // In two steps: 2^power itself may overflow or underflow.
    let half = power >> 1;
    value * power_of_two(half) * power_of_two(power.wrapping_sub(half))
}

/// Computes 2^power, for results that are normal numbers.
#[inline(always)]
fn power_of_two(power: i32) -> f32 {
    f32::from_bits((power.wrapping_add(127) as u32) << 23)
}

/// Computes the hyperbolic tangent within 2 ulp.
#[inline(always)]
pub(super) fn tanh(x: f32) -> f32 {
    let (magnitude, square) = (x.abs(), x * x);
    let series = polynomial(square, [-6.274_239e-3, 2.107_168e-2, -5.385_231e-2, 1.333_258_6e-1, -3.333_332e-1]);
    let near = magnitude + magnitude * (square * series);
    let far = 1.0 - 2.0 / (exp(magnitude + magnitude) + 1.0);
    (if magnitude < 0.55 { near } else { far }).copysign(x)
}

/// Computes the error function within 2 ulp.
#[inline(always)]
pub(super) fn erf(x: f32) -> f32 {
    let (magnitude, square) = (x.abs(), x * x);
    let series = polynomial(
        square,
        [
            7.853_861e-5,
            -8.010_193_5e-4,
            5.188_327_7e-3,
            -2.685_381_2e-2,
            1.128_358_5e-1,
            -3.761_262_6e-1,
            1.283_791_7e-1,
        ],
    );
    let near = magnitude + magnitude * series;
    // 1 − erf is the exponential of a polynomial; from 4 on, erf is 1 in single precision.
    let capped = if magnitude > 4.0 { 4.0 } else { magnitude };
    let exponent = polynomial(
        capped,
        [1.863_792_6e-4, -2.947_659e-3, 2.183_806_6e-2, -1.031_067_6e-1, -6.381_448e-1, -1.127_089_2, -3.415_223e-4],
    );
    let far = 1.0 - exp(exponent);
    (if magnitude < 1.0 { near } else { far }).copysign(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the largest error over samples of all magnitudes between 2⁻³⁰ and `largest`, of both signs.
    fn worst(function: fn(f32) -> f32, exact: fn(f64) -> f64, largest: f32) -> f64 {
        let (first, last) = (2.0_f32.powi(-30).to_bits(), largest.to_bits());
        let numbers = (first..=last).step_by(97).map(f32::from_bits).flat_map(|x| [x, -x]);
        let error = |x: f32| {
            let (found, right) = (f64::from(function(x)), exact(f64::from(x)));
            let place = 2.0_f64.powi((right.abs().log2().floor() as i32).max(-126) - 23);
            (found - right).abs() / place
        };
        numbers.map(error).fold(0.0, f64::max)
    }

    #[test]
    fn exponentials_are_right_to_the_last_place() {
        let worst_exp = worst(exp, f64::exp, 88.7);
        assert!(worst_exp < 1.0, "{worst_exp}");
        let worst_low = worst(|x| exp(-x.abs()), |x| (-x.abs()).exp(), 103.9);
        assert!(worst_low < 1.0, "{worst_low}");
        let worst_tanh = worst(tanh, f64::tanh, 20.0);
        assert!(worst_tanh < 2.0, "{worst_tanh}");
        let worst_erf = worst(erf, libm::erf, 6.0);
        assert!(worst_erf < 2.0, "{worst_erf}");
    }

    #[test]
    fn exponentials_end_where_numbers_do() {
        assert_eq!([exp(0.0), exp(-200.0), exp(f32::NEG_INFINITY), exp(89.0)], [1.0, 0.0, 0.0, f32::INFINITY]);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert_eq!(exp(-103.0), (-103.0_f64).exp() as f32);
        assert_eq!([tanh(f32::INFINITY), tanh(-30.0), tanh(0.0)], [1.0, -1.0, 0.0]);
        assert_eq!([erf(f32::INFINITY), erf(-5.0), erf(0.0)], [1.0, -1.0, 0.0]);
        assert!(tanh(-0.0).is_sign_negative() && erf(-0.0).is_sign_negative());
        assert!([exp(f32::NAN), tanh(f32::NAN), erf(f32::NAN)].iter().all(|x| x.is_nan()));
    }
}
