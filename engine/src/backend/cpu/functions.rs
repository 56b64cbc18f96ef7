//! The scalar functions of elementwise kernels, compiled into their loops.
//!
//! A closure of more than a few operations would be compiled as a function that the loop calls for every element. The
//! functions in this file are therefore types with a method that is always inlined.

use std::marker::PhantomData;

use super::number::{Float, Real};

pub(super) trait Function<I, O>: Sync {
    fn of(&self, input: I) -> O;
}

impl<I, O, F: Fn(I) -> O + Sync> Function<I, O> for F {
    #[inline(always)]
    fn of(&self, input: I) -> O {
        self(input)
    }
}

/// Adapts a function of values to elements in their stored type.
pub(super) struct Stored<T, F>(F, PhantomData<fn() -> T>);

impl<T, F> Stored<T, F> {
    pub(super) fn new(function: F) -> Self {
        Self(function, PhantomData)
    }
}

impl<T: Float, F: Function<T::Real, T::Real>> Function<(T,), T> for Stored<T, F> {
    #[inline(always)]
    fn of(&self, (x,): (T,)) -> T {
        T::store(self.0.of(x.load()))
    }
}

impl<T: Float, F: Function<(T::Real, T::Real), T::Real>> Function<(T, T), T> for Stored<T, F> {
    #[inline(always)]
    fn of(&self, (l, r): (T, T)) -> T {
        T::store(self.0.of((l.load(), r.load())))
    }
}

impl<T: Float, F: Function<(T::Real, T::Real, T::Real), T::Real>> Function<(T, T, T), T> for Stored<T, F> {
    #[inline(always)]
    fn of(&self, (o, l, r): (T, T, T)) -> T {
        T::store(self.0.of((o.load(), l.load(), r.load())))
    }
}

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident($input:pat => $of:ty) = $value:expr;)+) => {
        $($(#[$doc])*
        pub(super) struct $name;

        impl<R: Real> Function<$of, R> for $name {
            #[inline(always)]
            fn of(&self, $input: $of) -> R {
                $value
            }
        })+
    };
}

functions! {
    Exp(x => R) = x.exp();
    Tanh(x => R) = x.tanh();
    Sigmoid(x => R) = R::ONE / (R::ONE + (-x).exp());
    Silu(x => R) = x * Sigmoid.of(x);
    /// The gradient of [`Silu`], times the first operand.
    SiluGrad((g, x) => (R, R)) = {
        let s: R = Sigmoid.of(x);
        g * s * (R::ONE + x * (R::ONE - s))
    };
    /// The cumulative distribution function of the standard normal distribution, Φ(x).
    NormalShare(x => R) = R::of(0.5) * (R::ONE + (x * R::of(std::f64::consts::FRAC_1_SQRT_2)).erf());
    Gelu(x => R) = x * NormalShare.of(x);
    /// The gradient of [`Gelu`], times the first operand.
    GeluGrad((g, x) => (R, R)) = {
        let density = (-(x * x) / R::of(2.0)).exp() * R::of(SQRT_2_OVER_PI / 2.0);
        let share: R = NormalShare.of(x);
        g * (share + x * density)
    };
    /// The argument of the hyperbolic tangent that approximates Φ.
    GeluInner(x => R) = R::of(SQRT_2_OVER_PI) * (x + R::of(GELU_CUBIC) * x * x * x);
    GeluTanh(x => R) = {
        let inner: R = GeluInner.of(x);
        x * R::of(0.5) * (R::ONE + inner.tanh())
    };
    /// The gradient of [`GeluTanh`], times the first operand.
    GeluTanhGrad((g, x) => (R, R)) = {
        let inner: R = GeluInner.of(x);
        let t = inner.tanh();
        let slope = R::of(SQRT_2_OVER_PI) * (R::ONE + R::of(3.0 * GELU_CUBIC) * x * x);
        g * (R::ONE + t + x * (R::ONE - t * t) * slope) / R::of(2.0)
    };
}

const GELU_CUBIC: f64 = 0.044_715;
const SQRT_2_OVER_PI: f64 = 0.797_884_560_802_865_4;
