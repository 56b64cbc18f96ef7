//! Export: a trace as a snapshot that PyTorch's own tools open, and as lines for flame graph programs.
//!
//! [`write_pickle`] and [`write_json`] write the same snapshot: every event in its device's trace, the segments and blocks
//! after the last event, the allocator's settings, and steps, phases and annotations. What PyTorch has no place for
//! travels along whole, as a text under the key `highwater` that its tools ignore and
//! [`recover`](super::embedded::recover) reads.
//! The trace is walked and written as it goes: nothing of the file is kept in memory but what is referred to again.
//!
//! Events that PyTorch does not know are not in its lists of events, where its viewer would show each as a row: steps,
//! phases and marks are `external_annotations`, and tags, uses and samples of the device's memory come back from the
//! recording that the file carries as a text.

mod document;
mod pickle;
mod json;
mod further;
mod entries;
mod final_state;
mod settings;
mod regions;
mod frames;
mod lost;
mod snapshot;

#[cfg(test)]
mod tests;

use std::io::Write;

pub use snapshot::Progress;

use highwater_snapshots::error::Result;
use highwater_snapshots::trace::Trace;

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported {
    /// Events that the file has.
    pub events: u64,
    /// What the format could not hold, a sentence each; empty if nothing was lost.
    pub lost: Vec<String>,
}

/// Writes `trace` to `out` as a pickle that `pickle.load`, `torch.cuda._memory_viz` and PyTorch's viewer open.
///
/// Fails where `out` does, and with [`Error::Cancelled`](highwater_snapshots::Error::Cancelled) where `progress` says so.
pub fn write_pickle<W: Write>(out: W, trace: &Trace, progress: Progress<'_>) -> Result<Exported> {
    snapshot::write(pickle::PickleWriter::new(out)?, trace, progress)
}

/// Writes `trace` to `out` as JSON: the same snapshot, which PyTorch's viewer opens too. A stack is written in full
/// wherever it stands, so the file is many times as long.
///
/// Fails as [`write_pickle`] does.
pub fn write_json<W: Write>(out: W, trace: &Trace, progress: Progress<'_>) -> Result<Exported> {
    snapshot::write(json::JsonWriter::new(out), trace, progress)
}
