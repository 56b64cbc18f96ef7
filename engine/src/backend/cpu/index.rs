//! Selects rows of a table, and adds gradients back to them.

use rayon::prelude::*;

use super::ELEMENTS_PER_TASK;
use super::elements::{read, write};
use super::number::with_float;
use super::rows;
use crate::backend::View;
use crate::{Error, Result};

/// Maximum number of tasks that share a table, since each task scans every index.
const TASKS: usize = 64;

pub(crate) fn gather_rows(out: View<'_>, table: View<'_>, indices: View<'_>) -> Result<()> {
    with_float!("embedding", out.dtype, T => {
        let (values, places) = (read::<T>(table, "embedding")?, read::<i64>(indices, "embedding")?);
        let [rows, width] = [table.layout.shape()[0], table.layout.shape()[1]];
        let width = width.max(1);
        let rows_per_task = (ELEMENTS_PER_TASK / width).max(1);
        let mut memory = write::<T>(out, "embedding")?;
        let tasks = memory.par_chunks_mut(rows_per_task * width);
        tasks.zip(places.par_chunks(rows_per_task)).try_for_each(|(out, places)| {
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
        let (values, places) = (read::<T>(added, "embedding")?, read::<i64>(indices, "embedding")?);
        let [table_rows, width] = [table.layout.shape()[0], table.layout.shape()[1]];
        places.iter().try_for_each(|&index| row_of(index, table_rows).map(drop))?;
        let mut memory = write::<T>(table, "embedding")?;
        let width = width.max(1);
        // Each task has a range of the table's rows, and adds in the order of the indices.
        let tasks = (values.len() / ELEMENTS_PER_TASK).clamp(1, TASKS);
        let rows_per_task = table_rows.div_ceil(tasks).max(1);
        memory.par_chunks_mut(rows_per_task * width).enumerate().for_each(|(task, table)| {
            let first = task * rows_per_task;
            for (numbers, &index) in values.chunks(width).zip(&*places) {
                let row = (index as usize).checked_sub(first).and_then(|row| table.get_mut(row * width..(row + 1) * width));
                if let Some(row) = row {
                    rows::add_row(row, numbers);
                }
            }
        });
        Ok(())
    })
}
