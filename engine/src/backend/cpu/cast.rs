//! Casts between element types.

use bytemuck::Pod;
use half::{bf16, f16};

use super::elementwise::{convert, copy};
use super::number::{Float, Real};
use crate::backend::View;
use crate::dtype::{DType, Truth};
use crate::error::Result;

pub(crate) fn cast(out: View<'_>, input: View<'_>) -> Result<()> {
    if input.dtype == out.dtype {
        return copy(out, input);
    }
    match input.dtype {
        DType::F64 => cast_from::<f64>(out, input),
        DType::F32 => cast_from::<f32>(out, input),
        DType::Bf16 => cast_from::<bf16>(out, input),
        DType::F16 => cast_from::<f16>(out, input),
        DType::I64 => cast_from::<i64>(out, input),
        DType::U8 => cast_from::<u8>(out, input),
        DType::Bool => cast_from::<Truth>(out, input),
    }
}

fn cast_from<I: Castable>(out: View<'_>, input: View<'_>) -> Result<()> {
    match out.dtype {
        DType::F64 => cast_to::<I, f64>(out, input),
        DType::F32 => cast_to::<I, f32>(out, input),
        DType::Bf16 => cast_to::<I, bf16>(out, input),
        DType::F16 => cast_to::<I, f16>(out, input),
        DType::I64 => cast_to::<I, i64>(out, input),
        DType::U8 => cast_to::<I, u8>(out, input),
        DType::Bool => cast_to::<I, Truth>(out, input),
    }
}

fn cast_to<I: Castable, O: Castable>(out: View<'_>, input: View<'_>) -> Result<()> {
    convert(out, input, &|(value,): (I,)| O::narrow(value.wide()))
}

/// An element type that is converted through f64, which represents all values except the largest integers exactly.
trait Castable: Pod + Send + Sync {
    fn wide(self) -> f64;
    /// Rounds to the nearest floating-point value; integers are truncated and saturate.
    fn narrow(value: f64) -> Self;
}

macro_rules! castable {
    ($($type:ty: $wide:expr, $narrow:expr;)+) => {
        $(impl Castable for $type {
            #[inline]
            fn wide(self) -> f64 {
                let wide: fn(Self) -> f64 = $wide;
                wide(self)
            }
            #[inline]
            fn narrow(value: f64) -> Self {
                let narrow: fn(f64) -> Self = $narrow;
                narrow(value)
            }
        })+
    };
}

castable! {
    f64: |x| x, |x| x;
    f32: f64::from, |x| x as Self;
    bf16: |x| Real::wide(x.load()), |x| <Self as Float>::store(Real::of(x));
    f16: |x| Real::wide(x.load()), |x| <Self as Float>::store(Real::of(x));
    i64: |x| x as f64, |x| x as Self;
    u8: f64::from, |x| x as Self;
    Truth: |x| f64::from(u8::from(bool::from(x))), |x| Self::from(x != 0.0);
}
