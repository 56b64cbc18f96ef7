//! Reports the memory that a primitive reads and writes, for recordings with uses.

use highwater_recorder::api;

use super::View;
use super::call::Call;
use super::kind::{
    AttentionSize, Binary, Comparison, Distribution, Piecewise, Rotation, Scan, Side, Spread, Ternary, Unary, Window,
};
use super::step::{AdamStep, SgdStep};
use crate::rng::Draw;
use crate::storage::Storage;

/// An argument of a primitive.
pub(super) trait Argument {
    /// Reports the memory that the argument refers to, if any, to `uses`.
    fn tell(&self, uses: &mut Uses);
}

/// Reports the memory that one primitive uses, each block once.
#[derive(Default)]
pub(super) struct Uses {
    told: Vec<*const Storage>,
}

impl Uses {
    /// Returns whether uses are recorded: one relaxed load.
    #[inline]
    pub(super) fn are_recorded() -> bool {
        api::records_uses()
    }

    /// Reports all memory that `arguments` refer to, in order.
    pub(super) fn report(arguments: &[&dyn Argument]) {
        let mut uses = Self::default();
        arguments.iter().for_each(|argument| argument.tell(&mut uses));
    }

    fn add(&mut self, storage: &Storage) {
        let place = std::ptr::from_ref(storage);
        if !self.told.contains(&place) {
            self.told.push(place);
            storage.report_use();
        }
    }
}

impl Argument for View<'_> {
    fn tell(&self, uses: &mut Uses) {
        uses.add(self.storage);
    }
}

impl<T: Argument> Argument for Option<T> {
    fn tell(&self, uses: &mut Uses) {
        self.iter().for_each(|argument| argument.tell(uses));
    }
}

impl<T: Argument, const N: usize> Argument for [T; N] {
    fn tell(&self, uses: &mut Uses) {
        self.iter().for_each(|argument| argument.tell(uses));
    }
}

impl Argument for Call<'_> {
    fn tell(&self, uses: &mut Uses) {
        let mut all = |arguments: &[&dyn Argument]| arguments.iter().for_each(|argument| argument.tell(uses));
        match self {
            Self::Unary(out, _, input) => all(&[out, input]),
            Self::Binary(out, _, left, right) => all(&[out, left, right]),
            Self::Ternary(out, _, left, right) => all(&[out, left, right]),
            Self::Sgd(parameter, rounded, grad, direction, _) => all(&[parameter, rounded, grad, direction]),
            Self::Adam(parameter, rounded, grad, moments, _) => all(&[parameter, rounded, grad, moments]),
            Self::Adam8bit(parameter, rounded, grad, state, _) => all(&[parameter, rounded, grad, state]),
            Self::AddNorm(total, input, _) | Self::FindNonfinite(total, input) => all(&[total, input]),
            Self::ClipToNorm(out, norm, _) => all(&[out, norm]),
            Self::Clamp(out, ..) => all(&[out]),
        }
    }
}

/// Implements [`Argument`] for types that refer to no memory.
macro_rules! plain {
    ($($type:ty),+ $(,)?) => {
        $(impl Argument for $type {
            fn tell(&self, _: &mut Uses) {}
        })+
    };
}

plain!(f64, i64, usize, bool);
plain!(
    AttentionSize,
    Binary,
    Comparison,
    Distribution,
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
