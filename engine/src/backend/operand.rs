//! The arguments of primitives, and the memory referred to by the arguments.

use super::View;
use super::kind::{
    AttentionSize, Binary, Comparison, Distribution, Extremum, Piecewise, Rotation, Scan, Side, Spread, Ternary, Unary,
    Window,
};
use super::step::{AdamStep, SgdStep};
use crate::rng::Draw;

pub(super) trait Argument {
    /// Passes each view that the argument contains to `each`, in order.
    fn views(&self, each: &mut dyn FnMut(&View<'_>));
}

impl Argument for View<'_> {
    fn views(&self, each: &mut dyn FnMut(&View<'_>)) {
        each(self);
    }
}

impl<T: Argument> Argument for Option<T> {
    fn views(&self, each: &mut dyn FnMut(&View<'_>)) {
        self.iter().for_each(|argument| argument.views(each));
    }
}

impl<T: Argument, const N: usize> Argument for [T; N] {
    fn views(&self, each: &mut dyn FnMut(&View<'_>)) {
        self.iter().for_each(|argument| argument.views(each));
    }
}

/// Implements [`Argument`] for types that refer to no memory.
macro_rules! plain {
    ($($type:ty),+ $(,)?) => {
        $(impl Argument for $type {
            fn views(&self, _: &mut dyn FnMut(&View<'_>)) {}
        })+
    };
}

plain!(f64, i64, usize, bool);
plain!(
    AttentionSize,
    Binary,
    Comparison,
    Distribution,
    Extremum,
    Piecewise,
    Rotation,
    Scan,
    Side,
    Spread,
    Ternary,
    Unary,
    Window
);
plain!(AdamStep, Draw, SgdStep);
