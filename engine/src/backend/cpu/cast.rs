//! Casts between element types.

use super::elementwise::{convert, copy};
use super::number::{Castable, with_element};
use crate::Result;
use crate::backend::View;

pub(crate) fn cast(out: View<'_>, input: View<'_>) -> Result<()> {
    if input.dtype == out.dtype {
        return copy(out, input);
    }
    with_element!(input.dtype, I => with_element!(out.dtype, O => {
        convert(out, input, &|(value,): (I,)| <O as Castable>::narrow(Castable::wide(value)))
    }))
}
