//! The Rust types of the elements, with the arithmetic that kernels need.

use std::ops::{Add, AddAssign, Div, Mul, Neg, Sub};

use bytemuck::Pod;
use half::{bf16, f16};

use super::{halves, single};
use crate::dtype::Truth;

/// A type for arithmetic, of single or double precision.
pub(crate) trait Real:
    Copy
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + Default
    + Pod
    + Send
    + Sync
    + 'static
{
    const ZERO: Self;
    const ONE: Self;
    /// Negative infinity.
    const LEAST: Self;
    /// Rounds to the nearest value.
    fn of(value: f64) -> Self;
    fn wide(self) -> f64;
    fn exp(self) -> Self;
    fn ln(self) -> Self;
    fn sqrt(self) -> Self;
    fn tanh(self) -> Self;
    fn sin(self) -> Self;
    fn cos(self) -> Self;
    fn erf(self) -> Self;

    /// Returns the larger value, or NaN if either is NaN.
    #[inline(always)]
    fn largest(self, other: Self) -> Self {
        if self >= other || self.is_nan() { self } else { other }
    }

    #[inline(always)]
    fn is_nan(self) -> bool {
        self.partial_cmp(&self).is_none()
    }
}

macro_rules! real {
    ($name:ident, $exp:path, $tanh:path, $erf:path) => {
        impl Real for $name {
            const ZERO: Self = 0.0;
            const ONE: Self = 1.0;
            const LEAST: Self = $name::NEG_INFINITY;
            #[inline(always)]
            fn of(value: f64) -> Self {
                value as Self
            }
            #[inline(always)]
            fn wide(self) -> f64 {
                f64::from(self)
            }
            #[inline(always)]
            fn exp(self) -> Self {
                $exp(self)
            }
            #[inline(always)]
            fn ln(self) -> Self {
                $name::ln(self)
            }
            #[inline(always)]
            fn sqrt(self) -> Self {
                $name::sqrt(self)
            }
            #[inline(always)]
            fn tanh(self) -> Self {
                $tanh(self)
            }
            #[inline(always)]
            fn sin(self) -> Self {
                $name::sin(self)
            }
            #[inline(always)]
            fn cos(self) -> Self {
                $name::cos(self)
            }
            #[inline(always)]
            fn erf(self) -> Self {
                $erf(self)
            }
        }
    };
}

real!(f32, single::exp, single::tanh, single::erf);
real!(f64, Self::exp, Self::tanh, libm::erf);

/// A floating-point element type. Kernels load elements, compute in [`Float::Real`], and store the results.
pub(crate) trait Float: Pod + Send + Sync + 'static {
    type Real: Real + Float<Real = Self::Real>;
    fn load(self) -> Self::Real;
    /// Converts back to the element type, rounding to nearest.
    fn store(value: Self::Real) -> Self;
}

macro_rules! float {
    ($name:ident, $real:ident, $load:expr, $store:expr) => {
        impl Float for $name {
            type Real = $real;
            #[inline(always)]
            fn load(self) -> $real {
                $load(self)
            }
            #[inline(always)]
            fn store(value: $real) -> Self {
                $store(value)
            }
        }
    };
}

float!(f32, f32, std::convert::identity, std::convert::identity);
float!(f64, f64, std::convert::identity, std::convert::identity);
float!(bf16, f32, halves::from_bf16, halves::to_bf16);
float!(f16, f32, halves::from_f16, halves::to_f16);

/// Runs `$body` with `$T` as the Rust type of `$dtype`'s elements. Returns an error for dtypes that are not
/// floating-point.
macro_rules! with_float {
    ($op:expr, $dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            $crate::dtype::DType::F64 => {
                type $T = f64;
                $body
            }
            $crate::dtype::DType::F32 => {
                type $T = f32;
                $body
            }
            $crate::dtype::DType::Bf16 => {
                type $T = half::bf16;
                $body
            }
            $crate::dtype::DType::F16 => {
                type $T = half::f16;
                $body
            }
            found => Err($crate::error::Error::DType {
                op: $op,
                found,
                need: "expected a floating-point tensor: f64, f32, bf16 or f16",
            }),
        }
    };
}
pub(super) use with_float;

/// An element type that is converted through f64, which represents all values except the largest integers exactly.
pub(super) trait Castable: Pod + Send + Sync {
    fn wide(self) -> f64;
    /// Rounds to the nearest floating-point value. Integers are truncated and saturate.
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

/// Runs `$body` with `$T` as the Rust type of `$dtype`'s elements.
macro_rules! with_element {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            $crate::dtype::DType::I64 => {
                type $T = i64;
                $body
            }
            $crate::dtype::DType::U8 => {
                type $T = u8;
                $body
            }
            $crate::dtype::DType::Bool => {
                type $T = $crate::dtype::Truth;
                $body
            }
            float => $crate::backend::cpu::number::with_float!("cast", float, $T => $body),
        }
    };
}
pub(super) use with_element;

/// Runs `$body` with `$T` as a type of the same size as `$dtype`'s elements, for code that only moves elements.
macro_rules! with_bytes {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype.size() {
            8 => {
                type $T = u64;
                $body
            }
            4 => {
                type $T = u32;
                $body
            }
            2 => {
                type $T = u16;
                $body
            }
            _ => {
                type $T = u8;
                $body
            }
        }
    };
}
pub(super) use with_bytes;
