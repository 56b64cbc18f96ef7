//! Exports a trace as a snapshot for PyTorch's own tools.
//!
//! [`write_pickle`] and [`write_json`] write the same snapshot, with every event in its device's trace, the segments
//! and blocks after the last event, the allocator's settings, and steps, phases and annotations. The whole recording is
//! embedded as a string under the key `highwater`, which PyTorch's tools ignore and
//! [`recover`](super::embedded::recover) reads. The file is written while the trace is walked, and only values that are
//! referred to again are kept in memory.
//!
//! Events unknown to PyTorch are not in its lists of events, where its viewer would show each as a row. Steps, phases
//! and marks become `external_annotations`, and tags, uses and samples of the device's memory are only in the embedded
//! recording.

mod document;
mod pickle;
mod json;
mod facts;
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

/// Summary of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exported {
    /// Number of events in the file: all events of the trace if the recording is embedded, otherwise the trace entries.
    pub events: u64,
    /// The facts that the format could not represent, with one sentence each.
    pub lost: Vec<String>,
}

/// Writes `trace` to `out` as a pickle that can be opened by `pickle.load`, `torch.cuda._memory_viz` and PyTorch's
/// viewer.
///
/// # Errors
/// Returns an error if writing to `out` fails or the trace cannot be encoded, and
/// [`Error::Cancelled`](highwater_snapshots::Error::Cancelled) if `progress` stops the export.
pub fn write_pickle<W: Write>(out: W, trace: &Trace, progress: Progress<'_>) -> Result<Exported> {
    snapshot::write(pickle::PickleWriter::new(out)?, trace, progress)
}

/// Writes `trace` to `out` as JSON, with the same snapshot, which PyTorch's viewer can open too. Every occurrence of a
/// stack is written in full, so the file is many times larger.
///
/// # Errors
/// Returns an error in the cases of [`write_pickle`].
pub fn write_json<W: Write>(out: W, trace: &Trace, progress: Progress<'_>) -> Result<Exported> {
    snapshot::write(json::JsonWriter::new(out), trace, progress)
}
