//! The element types as Rust types, with the arithmetic that kernels need.

use std::ops::{Add, AddAssign, Div, Mul, Neg, Sub};

use bytemuck::Pod;
use half::{bf16, f16};

use super::{halves, single};

/// The type in which arithmetic is done: single or double precision.
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
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// Negative infinity.
    const LEAST: Self;
    /// Rounds to the nearest value.
    fn of(value: f64) -> Self;
    /// Converts to f64.
    fn wide(self) -> f64;
    /// Computes eˣ.
    fn exp(self) -> Self;
    /// Computes the natural logarithm.
    fn ln(self) -> Self;
    /// Computes the square root.
    fn sqrt(self) -> Self;
    /// Computes the hyperbolic tangent.
    fn tanh(self) -> Self;
    /// Computes the sine.
    fn sin(self) -> Self;
    /// Computes the cosine.
    fn cos(self) -> Self;
    /// Computes the error function.
    fn erf(self) -> Self;

    /// Returns the larger value; NaN if either is NaN.
    #[inline(always)]
    fn largest(self, other: Self) -> Self {
        if self >= other || self.is_nan() { self } else { other }
    }

    /// Returns whether this is NaN.
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

/// A floating-point element type; kernels load elements, compute in [`Float::Real`], and store.
pub(crate) trait Float: Pod + Send + Sync + 'static {
    /// The type in which arithmetic on the elements is done.
    type Real: Real;
    /// Converts to the type of arithmetic.
    fn load(self) -> Self::Real;
    /// Rounds to the nearest element.
    fn store(value: Self::Real) -> Self;

    /// Returns the elements as the type of arithmetic, if it is the same type.
    fn as_real(numbers: &[Self]) -> Option<&[Self::Real]>;
}

macro_rules! float {
    ($name:ident, $real:ident, $load:expr, $store:expr, $as_real:expr) => {
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
            fn as_real(numbers: &[Self]) -> Option<&[$real]> {
                $as_real(numbers)
            }
        }
    };
}

float!(f32, f32, std::convert::identity, std::convert::identity, Some);
float!(f64, f64, std::convert::identity, std::convert::identity, Some);
float!(bf16, f32, halves::from_bf16, halves::to_bf16, |_| None);
float!(f16, f32, halves::from_f16, halves::to_f16, |_| None);

/// Runs `$body` with `$T` as the Rust type of `$dtype`'s elements; returns an error for dtypes that are not
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
