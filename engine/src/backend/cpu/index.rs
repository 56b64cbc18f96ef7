//! Index: rows picked from a table, and added back to it.

use super::number::{Float, with_float};
use super::softmax::{part, part_mut};
use crate::backend::View;
use crate::error::{Error, Result};

/// See [`crate::backend::gather_rows`].
pub fn gather_rows(out: View<'_>, table: View<'_>, indices: View<'_>) -> Result<()> {
    with_float!("embedding", out.dtype, T => {
        let (values, places) = (table.storage.read::<T>("embedding")?, indices.storage.read::<i64>("embedding")?);
        let [rows, width] = [table.layout.shape()[0], table.layout.shape()[1]];
        let values = part(&values, table);
        let mut memory = out.storage.write::<T>("embedding")?;
        for (out, &index) in part_mut(&mut memory, out).chunks_mut(width.max(1)).zip(part(&places, indices)) {
            let row = row_of(index, rows)?;
            out.copy_from_slice(&values[row * width..][..width]);
        }
        Ok(())
    })
}

fn row_of(index: i64, rows: usize) -> Result<usize> {
    usize::try_from(index).ok().filter(|&row| row < rows).ok_or(Error::Index { op: "embedding", index, size: rows })
}

/// See [`crate::backend::add_rows`].
pub fn add_rows(table: View<'_>, rows: View<'_>, indices: View<'_>) -> Result<()> {
    with_float!("embedding", table.dtype, T => {
        let (values, places) = (rows.storage.read::<T>("embedding")?, indices.storage.read::<i64>("embedding")?);
        let [table_rows, width] = [table.layout.shape()[0], table.layout.shape()[1]];
        let mut memory = table.storage.write::<T>("embedding")?;
        let table = part_mut(&mut memory, table);
        for (added, &index) in part(&values, rows).chunks(width.max(1)).zip(part(&places, indices)) {
            let row = row_of(index, table_rows)?;
            for (place, value) in table[row * width..][..width].iter_mut().zip(added) {
                *place = T::store(place.load() + value.load());
            }
        }
        Ok(())
    })
}
