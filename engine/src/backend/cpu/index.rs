//! Selects rows of a table, and adds gradients back to them.

use rayon::prelude::*;

use super::ELEMENTS_A_TASK;
use super::number::with_float;
use super::rows;
use super::softmax::{part, part_mut};
use crate::backend::View;
use crate::error::{Error, Result};

/// Maximum number of tasks that share a table: each scans every index.
const TASKS: usize = 64;

pub(crate) fn gather_rows(out: View<'_>, table: View<'_>, indices: View<'_>) -> Result<()> {
    with_float!("embedding", out.dtype, T => {
        let (values, places) = (table.storage.read::<T>("embedding")?, indices.storage.read::<i64>("embedding")?);
        let [rows, width] = [table.layout.shape()[0], table.layout.shape()[1]];
        let (values, width) = (part(&values, table), width.max(1));
        let rows_a_task = (ELEMENTS_A_TASK / width).max(1);
        let mut memory = out.storage.write::<T>("embedding")?;
        let tasks = part_mut(&mut memory, out).par_chunks_mut(rows_a_task * width);
        tasks.zip(part(&places, indices).par_chunks(rows_a_task)).try_for_each(|(out, places)| {
            for (out, &index) in out.chunks_mut(width).zip(places) {
                out.copy_from_slice(&values[row_of(index, rows)? * width..][..width]);
            }
            Ok(())
        })
    })
}

fn row_of(index: i64, rows: usize) -> Result<usize> {
    usize::try_from(index).ok().filter(|&row| row < rows).ok_or(Error::Index { op: "embedding", index, size: rows })
}

pub(crate) fn add_rows(table: View<'_>, added: View<'_>, indices: View<'_>) -> Result<()> {
    with_float!("embedding", table.dtype, T => {
        let (values, places) = (added.storage.read::<T>("embedding")?, indices.storage.read::<i64>("embedding")?);
        let [table_rows, width] = [table.layout.shape()[0], table.layout.shape()[1]];
        let (values, places) = (part(&values, added), part(&places, indices));
        places.iter().try_for_each(|&index| row_of(index, table_rows).map(drop))?;
        let mut memory = table.storage.write::<T>("embedding")?;
        let (table, width) = (part_mut(&mut memory, table), width.max(1));
        // Each task has a range of the table's rows, and adds in the order of the indices.
        let tasks = (values.len() / ELEMENTS_A_TASK).clamp(1, TASKS);
        let rows_a_task = table_rows.div_ceil(tasks).max(1);
        table.par_chunks_mut(rows_a_task * width).enumerate().for_each(|(task, table)| {
            let first = task * rows_a_task;
            for (numbers, &index) in values.chunks(width).zip(places) {
                let row = (index as usize).checked_sub(first).and_then(|row| table.get_mut(row * width..(row + 1) * width));
                if let Some(row) = row {
                    rows::add_row(row, numbers);
                }
            }
        });
        Ok(())
    })
}
