//! The 256 values that a byte of quantized optimizer state represents.
//!
//! Dynamic quantization (Dettmers et al., "8-bit Optimizers via Block-wise Quantization", 2022). The values from 0 to 1
//! span seven decades, from 10⁻⁷ to 1, each decade with twice as many values as the one below, plus 0 and 1. Large
//! values thus have a fine resolution, and small values are not lost. A block of state is divided by its largest
//! magnitude before it is quantized.

use std::sync::LazyLock;

/// Number of state elements that share one scale.
pub const CODE_BLOCK: usize = 256;

const CODES: usize = 256;

const DECADES: i32 = 7;

/// A codebook, with its values in ascending order and the midpoints between them.
#[derive(Debug)]
pub struct Code {
    values: [f32; CODES],
    bounds: [f32; CODES - 1],
}

impl Code {
    /// Returns the codebook for values from −0.993 to 1: 127 negative values, 0 and 128 positive values. The spacing in
    /// the top decade is 0.014.
    pub fn signed() -> &'static Self {
        static CODE: LazyLock<Code> = LazyLock::new(|| Code::new(true));
        &CODE
    }

    /// Returns the codebook for values from 0 to 1. The spacing in the top decade is 0.007.
    pub fn unsigned() -> &'static Self {
        static CODE: LazyLock<Code> = LazyLock::new(|| Code::new(false));
        &CODE
    }

    fn new(is_signed: bool) -> Self {
        let mut numbers = vec![0.0, 1.0];
        for decade in 0..DECADES {
            let steps = 1_u32 << if is_signed { decade } else { decade + 1 };
            let top = 10_f64.powi(decade + 1 - DECADES);
            for step in 0..steps {
                let number = top * (0.1 + 0.9 * (f64::from(step) + 0.5) / f64::from(steps));
                numbers.push(number as f32);
                if is_signed {
                    numbers.push(-number as f32);
                }
            }
        }
        numbers.sort_by(f32::total_cmp);
        let mut code = Self { values: [0.0; CODES], bounds: [0.0; CODES - 1] };
        code.values.copy_from_slice(&numbers);
        for (bound, pair) in code.bounds.iter_mut().zip(numbers.windows(2)) {
            *bound = (pair[0] + pair[1]) / 2.0;
        }
        code
    }

    /// Returns the values by code, ascending.
    pub fn values(&self) -> &[f32; CODES] {
        &self.values
    }

    /// Returns the value of `code`.
    #[inline]
    pub fn decode(&self, code: u8) -> f32 {
        self.values[usize::from(code)]
    }

    /// Returns the code of the nearest value, or of the smaller of two equally near ones.
    #[inline]
    pub fn encode(&self, number: f32) -> u8 {
        self.bounds.partition_point(|&bound| bound < number) as u8
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_is_that_of_its_own_number() {
        for code in [Code::signed(), Code::unsigned()] {
            assert!(code.values.windows(2).all(|pair| pair[0] < pair[1]), "256 different numbers, rising");
            for byte in 0..=u8::MAX {
                assert_eq!(code.encode(code.decode(byte)), byte);
            }
            assert_eq!(code.decode(code.encode(0.0)), 0.0);
            assert_eq!([code.decode(code.encode(7.0)), code.decode(255)], [1.0, 1.0]);
        }
        assert_eq!(Code::signed().decode(0), -(0.1 + 0.9 * (63.5 / 64.0)) as f32);
        assert_eq!(Code::unsigned().decode(1), (1e-6 * (0.1 + 0.9 * 0.25)) as f32);
    }

    #[test]
    fn a_number_is_off_by_half_a_step_of_its_decade_at_most() {
        for i in 0..10_000 {
            let number = (i as f32 / 10_000.0).powi(4);
            let [signed, unsigned] =
                [Code::signed(), Code::unsigned()].map(|code| (code.decode(code.encode(number)) - number).abs());
            assert!(signed <= 0.0071 && unsigned <= 0.0036, "{number}: {signed}, {unsigned}");
            assert!(number < 1e-5 || signed <= number * 0.47, "{number} keeps its size: {signed}");
            assert!(number < 0.1 || signed <= number * 0.062, "{number} is near: {signed}");
            assert!(number < 0.1 || unsigned <= number * 0.033, "{number} is nearer: {unsigned}");
        }
    }
}
