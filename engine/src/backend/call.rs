//! Calls of primitives with their arguments, as plain data, so that many can be submitted to a device at once.

use super::View;
use super::kind::{Binary, Ternary, Unary};
use super::operand::Argument;
use super::step::{AdamStep, SgdStep};
use crate::Result;

macro_rules! calls {
    ($($(#[$doc:meta])* $variant:ident: $primitive:ident($out:ident $(, $argument:ident: $type:ty)*);)+) => {
        /// A call of a primitive that training applies to many tensors, with its arguments in the primitive's order.
        #[derive(Clone, Copy)]
        pub enum Call<'a> {
            $(#[doc = concat!("[`", stringify!($primitive), "`](super::", stringify!($primitive), ").")]
            $(#[$doc])*
            $variant(View<'a>, $($type),*),)+
        }

        impl<'a> Call<'a> {
            pub(super) fn primitive(&self) -> &'static str {
                match self {
                    $(Self::$variant(..) => stringify!($primitive),)+
                }
            }

            /// Returns the first argument. Its device executes the call.
            pub fn out(&self) -> View<'a> {
                match *self {
                    $(Self::$variant(out, ..) => out,)+
                }
            }

            pub(super) fn run(self) -> Result<()> {
                match self {
                    $(Self::$variant($out, $($argument),*) => super::$primitive($out, $($argument),*),)+
                }
            }
        }

        impl Argument for Call<'_> {
            fn views(&self, each: &mut dyn FnMut(&View<'_>)) {
                match self {
                    $(Self::$variant($out, $($argument),*) => {
                        $out.views(each);
                        $($argument.views(each);)*
                    })+
                }
            }
        }
    };
}

calls! {
    Unary: unary(out, function: Unary, input: Option<View<'a>>);
    Binary: binary(out, function: Binary, left: Option<View<'a>>, right: View<'a>);
    Ternary: ternary(out, function: Ternary, left: View<'a>, right: View<'a>);
    Sgd: sgd(parameter, rounded: Option<View<'a>>, grad: View<'a>, direction: Option<View<'a>>, step: SgdStep);
    Adam: adam(parameter, rounded: Option<View<'a>>, grad: View<'a>, moments: [View<'a>; 2], step: AdamStep);
    Adam8bit: adam_8bit(parameter, rounded: Option<View<'a>>, grad: View<'a>, state: [View<'a>; 4], step: AdamStep);
    /// Several calls may add to the same total.
    AddNorm: add_norm(total, input: View<'a>, order: f64);
    ClipToNorm: clip_to_norm(out, norm: View<'a>, most: f64);
    Clamp: clamp(out, least: f64, most: f64);
    /// Several calls may write to the same flag.
    FindNonfinite: find_nonfinite(found, input: View<'a>);
}
