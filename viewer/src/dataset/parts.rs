//! Writes the tables of a recording that is read in parts, so that memory does not grow with its length.

use std::io::Write;
use std::ops::ControlFlow;

use highwater_analysis::excerpt::remove_stacks;
use highwater_analysis::long::{Parts, try_each_part};
use highwater_snapshots::format::Windows;
use highwater_snapshots::{Error, Trace};

use super::blocks::{self, BlockRows, LaterEnds};
use super::column::Column;
use super::events::{self, EventRows};
use super::identity::Identity;
use super::table::TableFile;
use super::{Rows, parquet_error, with_rank};

/// Events of a part, usually: the rows of some groups.
pub(super) const EVENTS: u64 = 1 << 20;

/// Reports the events done so far, and can stop the work.
type Watch<'a> = &'a mut dyn FnMut(u64) -> ControlFlow<()>;

/// A recording that is read in parts and written as tables.
pub(super) struct InParts<'a> {
    pub(super) windows: &'a Windows,
    /// A window without events, for the file's metadata.
    pub(super) facts: &'a Trace,
    pub(super) identity: &'a Identity,
    /// Whether the rank is a column.
    pub(super) has_rank: bool,
    /// Whether stacks are left out.
    pub(super) no_stacks: bool,
    /// Events of a part.
    pub(super) events: u64,
}

impl InParts<'_> {
    /// Writes the table of events.
    ///
    /// # Errors
    ///
    /// Fails if a window cannot be read, or `out` cannot be written.
    pub(super) fn write_events(&self, out: impl Write + Send, watch: Watch<'_>) -> Result<(), Error> {
        let mut file = self.begin(out, events::columns())?;
        let append = |trace: Trace| {
            let columns = self.columns(events::columns());
            file.append(EventRows::new(&trace, self.identity), &columns).map_err(parquet_error)
        };
        try_each_part(self.parts(), |trace| self.prepared(trace), append, watch)?;
        file.finish().map_err(parquet_error)
    }

    /// Writes the table of blocks: goes through the recording once for the ends of blocks that outlive their part, and
    /// again for the rows.
    ///
    /// # Errors
    ///
    /// As [`Self::write_events`].
    pub(super) fn write_blocks(&self, out: impl Write + Send, watch: Watch<'_>) -> Result<(), Error> {
        let mut ends = LaterEnds::default();
        let find = |trace: Trace| Ok(LaterEnds::of(&self.prepared(trace)?));
        let take = |part: LaterEnds| {
            ends.append(part);
            Ok(())
        };
        try_each_part(self.parts(), find, take, watch)?;
        let mut file = self.begin(out, blocks::columns())?;
        let append = |trace: Trace| {
            let columns = self.columns(blocks::columns());
            file.append(BlockRows::new(&trace, self.identity, Some(&ends)), &columns).map_err(parquet_error)
        };
        try_each_part(self.parts(), |trace| self.prepared(trace), append, watch)?;
        file.finish().map_err(parquet_error)
    }

    fn parts(&self) -> Parts<'_> {
        Parts { windows: self.windows, events: self.events }
    }

    /// Numbers the blocks of a window, and leaves out its stacks if this is wanted.
    fn prepared(&self, mut trace: Trace) -> Result<Trace, Error> {
        self.windows.number_blocks(&mut trace)?;
        if self.no_stacks {
            remove_stacks(&mut trace);
        }
        Ok(trace)
    }

    fn columns<V: Rows>(&self, columns: Vec<Column<V>>) -> Vec<Column<V>> {
        if self.has_rank { with_rank(columns) } else { columns }
    }

    fn begin<V: Rows, W: Write + Send>(&self, out: W, columns: Vec<Column<V>>) -> Result<TableFile<W>, Error> {
        TableFile::new(out, &self.columns(columns), self.identity.metadata(self.facts)).map_err(parquet_error)
    }
}
