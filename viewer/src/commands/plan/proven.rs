//! The program with a plan, simulated once more.

use std::path::PathBuf;

use serde::Serialize;

/// The program with the plan, simulated on a device of exactly the budget.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Proven {
    /// Whether it fits; null if it ended otherwise.
    pub fits: Option<bool>,
    /// Its peak of requested bytes.
    pub requested_bytes: u64,
    /// Its peak of allocated bytes.
    pub allocated_bytes: u64,
    /// Its peak of reserved bytes.
    pub reserved_bytes: u64,
    /// Whether all peaks are as the plan has predicted.
    pub as_predicted: bool,
    /// Lines that read values of the device that are not known: the figures are exact if these decide about no memory.
    pub depends_on_values: Vec<String>,
    /// The reason that it does not fit, or that it is unknown whether it does.
    pub why: Option<String>,
    /// The path of the recording that the simulation wrote.
    pub file: PathBuf,
}
