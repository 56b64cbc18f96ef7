//! Selects elements of two tensors by a condition.

use bytemuck::Pod;

use crate::backend::View;
use crate::backend::nest::Nest;
use crate::error::Result;

pub(crate) fn where_cond(
    out: View<'_>,
    condition: View<'_>,
    left: Option<View<'_>>,
    right: Option<View<'_>>,
) -> Result<()> {
    // Elements are moved, not computed with; zero is all bits 0 in every type.
    match out.dtype.size() {
        8 => where_as::<u64>(out, condition, [left, right]),
        4 => where_as::<u32>(out, condition, [left, right]),
        2 => where_as::<u16>(out, condition, [left, right]),
        _ => where_as::<u8>(out, condition, [left, right]),
    }
}

fn where_as<T: Pod>(out: View<'_>, condition: View<'_>, [left, right]: [Option<View<'_>>; 2]) -> Result<()> {
    let truths = condition.storage.read::<u8>("where")?;
    let mut memory = out.storage.write::<T>("where")?;
    for (wanted, side) in [(true, left), (false, right)] {
        match side {
            Some(side) => {
                let values = side.storage.read::<T>("where")?;
                Nest::new([out.layout, condition.layout, side.layout]).each(|[at, truth, from]| {
                    if (truths[truth] != 0) == wanted {
                        memory[at] = values[from];
                    }
                });
            }
            None => Nest::new([out.layout, condition.layout]).each(|[at, truth]| {
                if (truths[truth] != 0) == wanted {
                    memory[at] = T::zeroed();
                }
            }),
        }
    }
    Ok(())
}

pub(crate) fn clear(out: View<'_>, condition: View<'_>, wanted: bool) -> Result<()> {
    match out.dtype.size() {
        8 => clear_as::<u64>(out, condition, wanted),
        4 => clear_as::<u32>(out, condition, wanted),
        2 => clear_as::<u16>(out, condition, wanted),
        _ => clear_as::<u8>(out, condition, wanted),
    }
}

fn clear_as<T: Pod>(out: View<'_>, condition: View<'_>, wanted: bool) -> Result<()> {
    let truths = condition.storage.read::<u8>("where")?;
    let mut memory = out.storage.write::<T>("where")?;
    Nest::new([out.layout, condition.layout]).each(|[at, truth]| {
        if (truths[truth] != 0) != wanted {
            memory[at] = T::zeroed();
        }
    });
    Ok(())
}
