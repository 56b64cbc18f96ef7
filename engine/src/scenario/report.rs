//! The report of a scenario's run.

use std::path::PathBuf;

use super::options::DeviceChoice;
use crate::backend::cost::Cost;

/// The result of a run with a complete recording.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Loss of each completed step; `None` on a device without values.
    pub losses: Option<Vec<f64>>,
    /// Number of completed steps.
    pub steps_done: u32,
    /// Work of the last completed step.
    pub step_cost: Cost,
    /// Device of the run.
    pub device: DeviceChoice,
    /// The failed allocation, if the run ended out of memory.
    pub oom: Option<OutOfMemory>,
    /// Path of the recording.
    pub file: PathBuf,
}

/// The allocation that failed for lack of memory and ended a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutOfMemory {
    /// Requested size in bytes.
    pub requested: u64,
    /// The report in several lines of text: the largest users of memory, the reason that the allocator's cache could
    /// not serve the request, and possible fixes.
    pub description: String,
}
