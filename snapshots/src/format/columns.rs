//! The columns of an event section. Each column contains one field of all events.

use super::varint::Cursor;

crate::vocabulary!(
    /// A column of an event section, ordered by the code stored in files. The name is used in the specification and in
    /// messages.
    Column {
        /// The codes of the kinds of all events, one byte each.
        Kind = "kind",
        /// The nanoseconds of all events since the previous event, signed; those of the first event since the
        /// recording's origin.
        Time = "time",
        /// The device ordinals of all events. Omitted if all are 0.
        Device = "device",
        /// The stacks of all events, as handle deltas. Omitted if there are none.
        Stack = "stack",
        /// The block keys of allocations, as signed differences from one more than the key of the previous allocation.
        Block = "block",
        /// The addresses of allocations: first a shift (one byte), then the signed differences between successive
        /// addresses in units of 2^shift.
        Address = "address",
        /// The requested bytes of allocations.
        Requested = "requested",
        /// The allocated bytes minus the requested bytes of allocations, signed.
        Rounding = "rounding",
        /// The streams of allocations, as signed differences from that of the previous allocation. Omitted if all are 0.
        Stream = "stream",
        /// The codes of the pools of allocations, one byte each.
        Pool = "pool",
        /// The codes of the categories of allocations, one byte each.
        Category = "category",
        /// The operations of allocations, as handle deltas.
        Op = "op",
        /// The scopes of allocations, as handle deltas.
        Scope = "scope",
        /// The block keys of requested and completed frees, as signed differences from the previously freed key.
        Freed = "freed",
        /// The block keys of tags, as signed differences from the previously tagged key.
        Tagged = "tagged",
        /// The codes of the categories of tags, one byte each.
        TagCategory = "tag_category",
        /// The remaining facts of all other events, one after another.
        Rare = "rare",
        /// The block keys of uses, as signed differences from the previously used key. Since version 1.2.
        Used = "used",
        /// One more than the streams of failed requests, or 0 if unknown. Omitted if all are unknown. Since version 1.3.
        OomStream = "oom_stream",
    }
);

pub(super) const COLUMNS: usize = Column::ALL.len();

/// Size in bytes of an entry of a payload's directory: a column's code and its length.
const ENTRY_BYTES: usize = 5;

#[derive(Debug, Default)]
pub(super) struct ColumnBytes {
    columns: [Vec<u8>; COLUMNS],
}

impl ColumnBytes {
    pub(super) fn get(&mut self, column: Column) -> &mut Vec<u8> {
        &mut self.columns[column as usize]
    }

    pub(super) fn clear(&mut self) {
        self.columns.iter_mut().for_each(Vec::clear);
    }

    /// Writes the payload: the number of columns, the code and length of each, and their bytes. Empty columns are
    /// omitted.
    pub(super) fn write_payload(&self, out: &mut Vec<u8>) {
        let filled = || Column::ALL.iter().zip(&self.columns).filter(|(_, bytes)| !bytes.is_empty());
        out.clear();
        out.push(filled().count() as u8);
        for (column, bytes) in filled() {
            out.push(*column as u8);
            out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        }
        for (_, bytes) in filled() {
            out.extend_from_slice(bytes);
        }
    }
}

/// Cursors into the columns of a payload; omitted columns are empty.
#[derive(Clone, Copy, Debug)]
pub(super) struct ColumnCursors<'a> {
    cursors: [Cursor<'a>; COLUMNS],
}

impl<'a> ColumnCursors<'a> {
    /// Splits a payload into its columns. Columns with unknown codes are skipped.
    pub(super) fn from_payload(payload: &'a [u8]) -> Result<Self, String> {
        let mut directory = Cursor::new(payload);
        let columns = usize::from(directory.byte().ok_or("it is empty")?);
        let entries = directory.take(columns * ENTRY_BYTES).ok_or("its list of columns is cut off")?;
        let mut data = directory;
        let mut cursors = [Cursor::new(&[]); COLUMNS];
        for entry in entries.chunks_exact(ENTRY_BYTES) {
            let length = u32::from_le_bytes([entry[1], entry[2], entry[3], entry[4]]) as usize;
            let bytes = data.take(length).ok_or_else(|| format!("column {} is longer than the section", entry[0]))?;
            let Some(column) = Column::from_code(entry[0]) else {
                continue;
            };
            let cursor = &mut cursors[column as usize];
            if cursor.left() > 0 {
                return Err(format!("the {} column occurs twice", column.name()));
            }
            *cursor = Cursor::new(bytes);
        }
        if data.left() > 0 {
            return Err(format!("{} bytes are left over after its columns", data.left()));
        }
        Ok(Self { cursors })
    }

    #[inline]
    pub(super) fn get(&mut self, column: Column) -> &mut Cursor<'a> {
        &mut self.cursors[column as usize]
    }

    /// The first column that was not read to its end, and the number of bytes left; `None` if all columns were.
    pub(super) fn left_over(&self) -> Option<(Column, usize)> {
        let left = Column::ALL.iter().zip(&self.cursors).find(|(_, cursor)| cursor.left() > 0);
        left.map(|(column, cursor)| (*column, cursor.left()))
    }
}
