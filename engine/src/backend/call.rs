//! Calls of primitives with their arguments, as plain data, so that many can be submitted to a device at once.

use super::View;
use super::kind::{Binary, Ternary, Unary};
use super::step::{AdamStep, SgdStep};

/// A call of a primitive that training applies to many tensors in a row: its arguments, in the primitive's order.
#[derive(Clone, Copy)]
pub enum Call<'a> {
    /// [`unary`](super::unary).
    Unary(View<'a>, Unary, Option<View<'a>>),
    /// [`binary`](super::binary).
    Binary(View<'a>, Binary, Option<View<'a>>, View<'a>),
    /// [`ternary`](super::ternary).
    Ternary(View<'a>, Ternary, View<'a>, View<'a>),
    /// [`sgd`](super::sgd).
    Sgd(View<'a>, Option<View<'a>>, View<'a>, Option<View<'a>>, SgdStep),
    /// [`adam`](super::adam).
    Adam(View<'a>, Option<View<'a>>, View<'a>, [View<'a>; 2], AdamStep),
    /// [`adam_8bit`](super::adam_8bit).
    Adam8bit(View<'a>, Option<View<'a>>, View<'a>, [View<'a>; 4], AdamStep),
    /// [`add_norm`](super::add_norm). Several calls may add to the same total.
    AddNorm(View<'a>, View<'a>, f64),
    /// [`clip_to_norm`](super::clip_to_norm).
    ClipToNorm(View<'a>, View<'a>, f64),
    /// [`clamp`](super::clamp).
    Clamp(View<'a>, f64, f64),
    /// [`find_nonfinite`](super::find_nonfinite). Several calls may write to the same flag.
    FindNonfinite(View<'a>, View<'a>),
}

impl<'a> Call<'a> {
    /// Returns the name of the primitive.
    pub(super) fn primitive(&self) -> &'static str {
        match self {
            Self::Unary(..) => "unary",
            Self::Binary(..) => "binary",
            Self::Ternary(..) => "ternary",
            Self::Sgd(..) => "sgd",
            Self::Adam(..) => "adam",
            Self::Adam8bit(..) => "adam_8bit",
            Self::AddNorm(..) => "add_norm",
            Self::ClipToNorm(..) => "clip_to_norm",
            Self::Clamp(..) => "clamp",
            Self::FindNonfinite(..) => "find_nonfinite",
        }
    }

    /// Returns the first argument, whose device does the work.
    pub fn out(&self) -> View<'a> {
        match *self {
            Self::Unary(out, ..)
            | Self::Binary(out, ..)
            | Self::Ternary(out, ..)
            | Self::Sgd(out, ..)
            | Self::Adam(out, ..)
            | Self::Adam8bit(out, ..)
            | Self::AddNorm(out, ..)
            | Self::ClipToNorm(out, ..)
            | Self::Clamp(out, ..)
            | Self::FindNonfinite(out, ..) => out,
        }
    }
}
