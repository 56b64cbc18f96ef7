//! Writes the tables of a recording, window by window, so that memory does not grow with its length.

use std::io::Write;
use std::ops::ControlFlow;

use highwater_analysis::Source;
use highwater_snapshots::{Error, Trace};

use super::blocks::{self, BlockRows, LaterEnds};
use super::column::Column;
use super::events::{self, EventRows};
use super::identity::Identity;
use super::table::TableFile;
use super::{Rows, parquet_error, with_rank};

pub(super) struct Tables<'a> {
    pub(super) source: &'a Source<'a>,
    pub(super) identity: &'a Identity,
    /// Whether the rank is a column.
    pub(super) has_rank: bool,
}

impl Tables<'_> {
    /// Writes the table of events.
    ///
    /// # Errors
    /// Fails if a window cannot be read, or `out` cannot be written.
    pub(super) fn write_events(&self, out: impl Write + Send) -> Result<(), Error> {
        let mut file = self.begin(out, &self.columns(events::columns()))?;
        self.each(|window| {
            let columns = self.columns(events::columns());
            file.append(EventRows::new(window, self.identity), &columns).map_err(parquet_error)
        })?;
        file.finish().map_err(parquet_error)
    }

    /// Writes the table of blocks. Reads the recording once for the ends of blocks that outlive their window, and again
    /// for the rows.
    ///
    /// # Errors
    /// Fails like [`Self::write_events`].
    pub(super) fn write_blocks(&self, out: impl Write + Send) -> Result<(), Error> {
        let mut ends = LaterEnds::default();
        self.each(|window| {
            ends.append(LaterEnds::of(window));
            Ok(())
        })?;
        let mut file = self.begin(out, &self.columns(blocks::columns()))?;
        self.each(|window| {
            let columns = self.columns(blocks::columns());
            file.append(BlockRows::new(window, self.identity, &ends), &columns).map_err(parquet_error)
        })?;
        file.finish().map_err(parquet_error)
    }

    /// Passes each window to `take`, with the block ids of the whole recording.
    fn each(&self, mut take: impl FnMut(&Trace) -> Result<(), Error>) -> Result<(), Error> {
        let mut watch = |_| ControlFlow::Continue(());
        self.source.try_each_window(|window| self.source.number_blocks(window), |window| take(&window), &mut watch)
    }

    fn columns<V: Rows>(&self, columns: Vec<Column<V>>) -> Vec<Column<V>> {
        if self.has_rank { with_rank(columns) } else { columns }
    }

    fn begin<V: Rows, W: Write + Send>(&self, out: W, columns: &[Column<V>]) -> Result<TableFile<W>, Error> {
        TableFile::new(out, columns, self.identity.metadata(self.source.facts())).map_err(parquet_error)
    }
}
