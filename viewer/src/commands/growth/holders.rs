//! The tensors that a program held at the end of a recording, as its recorder noted.

use highwater_app::report::{Column, Table};
use highwater_snapshots::Trace;
use highwater_snapshots::trace::HOLDERS;
use serde::Deserialize;

/// Tensors that something in the program holds, besides parameters, gradients, buffers and optimizer state.
#[derive(Debug, Deserialize)]
struct Holder {
    /// The variable, and the way from it: `trainer.history (list of 12)`.
    holder: String,
    tensors: u64,
    bytes: u64,
    /// Of how many an autograd graph is kept.
    graphs: u64,
}

/// The holders, those with the most graphs first.
#[derive(Debug, Default)]
pub(super) struct Holders(Vec<Holder>);

impl Holders {
    /// Those that the recording names; none if its recorder does not know them.
    pub(super) fn of(trace: &Trace) -> Self {
        let fact = trace.header.facts.iter().find(|(name, _)| name == HOLDERS);
        Self(fact.and_then(|(_, text)| serde_json::from_str(text).ok()).unwrap_or_default())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn table(&self) -> Table<'_> {
        let rows = &self.0;
        let columns = vec![
            Column::text("holder", "held by", |row| rows[row].holder.as_str()).cut(),
            Column::count("tensors", "tensors", |row| rows[row].tensors),
            Column::count("graphs", "with a graph", |row| rows[row].graphs),
            Column::bytes("bytes", "bytes", |row| rows[row].bytes),
        ];
        Table::new(rows.len(), columns)
    }
}
