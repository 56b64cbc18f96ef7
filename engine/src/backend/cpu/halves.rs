//! Converts 16-bit floating-point numbers to and from single precision without branches or calls, so that loops
//! vectorize.

use half::{bf16, f16};

#[inline(always)]
pub(super) fn from_bf16(number: bf16) -> f32 {
    f32::from_bits(u32::from(number.to_bits()) << 16)
}

/// Rounds to the nearest bf16, with ties to even.
#[inline(always)]
pub(super) fn to_bf16(number: f32) -> bf16 {
    let bits = number.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    let quiet = (bits >> 16) | 0x40;
    bf16::from_bits((if bits & 0x7fff_ffff > INFINITE { quiet } else { rounded }) as u16)
}

/// The bits of infinity in single precision. Those of a NaN are greater.
const INFINITE: u32 = 0x7f80_0000;

#[inline(always)]
pub(super) fn from_f16(number: f16) -> f32 {
    let bits = u32::from(number.to_bits());
    let magnitude = (bits & 0x7fff) << 13;
    // The exponent has a different bias: multiply by 2¹¹², which also normalizes subnormal numbers.
    let scaled = (f32::from_bits(magnitude) * f32::from_bits((112 + 127) << 23)).to_bits();
    let unbounded = if magnitude >= 0x7c00 << 13 { magnitude | INFINITE } else { scaled };
    f32::from_bits(unbounded | (bits & 0x8000) << 16)
}

/// Rounds to the nearest f16, with ties to even.
#[inline(always)]
pub(super) fn to_f16(number: f32) -> f16 {
    let bits = number.to_bits();
    let (sign, magnitude) = ((bits >> 16) & 0x8000, bits & 0x7fff_ffff);
    let normal = magnitude.wrapping_add(0xfff + ((magnitude >> 13) & 1)).wrapping_sub(112 << 23) >> 13;
    // Adding ½ rounds to multiples of 2⁻²⁴, the smallest f16, which are then in the lowest bits.
    let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5_f32.to_bits());
    let bounded = if magnitude < (127 - 14) << 23 { subnormal } else { normal };
    let infinite = if magnitude > INFINITE { 0x7e00 } else { 0x7c00 };
    let rounded = if magnitude >= (127 + 16) << 23 { infinite } else { bounded };
    f16::from_bits((rounded | sign) as u16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_has_its_value() {
        for bits in 0..=u16::MAX {
            let (brain, half) = (bf16::from_bits(bits), f16::from_bits(bits));
            assert!(from_bf16(brain) == brain.to_f32() || brain.is_nan() && from_bf16(brain).is_nan());
            assert!(from_f16(half) == half.to_f32() || half.is_nan() && from_f16(half).is_nan(), "{bits:x}");
        }
    }

    #[test]
    fn numbers_become_the_nearest_half() {
        // All 16-bit values, the midpoints between them, and their neighbors; then a sample of the others.
        let between =
            (0..=u32::MAX >> 12).flat_map(|high| [-1, 0, 1].map(|low: i32| (high << 12).wrapping_add_signed(low)));
        for bits in between.chain((0..=u32::MAX).step_by(10_007)) {
            let number = f32::from_bits(bits);
            let (brain, half) = (to_bf16(number), to_f16(number));
            assert!(brain == bf16::from_f32(number) || brain.is_nan() && number.is_nan(), "{number}");
            assert!(half == f16::from_f32(number) || half.is_nan() && number.is_nan(), "{number}");
        }
    }
}
