//! Selects elements of two tensors by a condition.

use super::number::with_bytes;
use crate::Result;
use crate::backend::{Nest, View};

const OP: &str = "where";

pub(crate) fn where_cond(
    out: View<'_>,
    condition: View<'_>,
    left: Option<View<'_>>,
    right: Option<View<'_>>,
) -> Result<()> {
    set(out, condition, true, left)?;
    set(out, condition, false, right)
}

pub(crate) fn clear(out: View<'_>, condition: View<'_>, wanted: bool) -> Result<()> {
    set(out, condition, !wanted, None)
}

/// Sets the elements where `condition` is `wanted` to those of `source`, or to 0 without a source. The bits of 0 are
/// all 0 in every type.
fn set(out: View<'_>, condition: View<'_>, wanted: bool, source: Option<View<'_>>) -> Result<()> {
    let truths = condition.storage.read::<u8>(OP)?;
    let nest = Nest::new([out.layout, condition.layout, source.unwrap_or(out).layout]);
    with_bytes!(out.dtype, T => {
        let values = source.map(|source| source.storage.read::<T>(OP)).transpose()?;
        let mut memory = out.storage.write::<T>(OP)?;
        nest.each(|[at, truth, from]| {
            if (truths[truth] != 0) == wanted {
                memory[at] = values.as_ref().map_or(0, |values| values[from]);
            }
        });
        Ok(())
    })
}
