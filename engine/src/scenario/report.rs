//! The report of a run.

use std::path::PathBuf;

use super::options::DeviceChoice;

/// The result of a run whose recording is complete.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The loss of each step; none on a device without values.
    pub losses: Option<Vec<f64>>,
    /// Steps that ran to their end.
    pub steps_done: u32,
    /// Where it ran.
    pub device: DeviceChoice,
    /// The request that could not be met, if the run ended in one.
    pub oom: Option<OutOfMemory>,
    /// The recording.
    pub file: PathBuf,
}

/// A request that could not be met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// Requested bytes.
    pub requested: u64,
    /// Who has the memory, why the cache did not help, and what would: some lines of text.
    pub description: String,
}
