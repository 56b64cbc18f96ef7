//! The JSON object of `highwater plan`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use highwater_app::answers::plan::{Class, Trial};
use highwater_app::report::Table;
use serde::Serialize;

/// The program with the plan, simulated on a device of exactly the budget.
#[derive(Clone, Debug, Serialize)]
pub struct Proven {
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
    /// Why it does not fit, or cannot be told to.
    pub why: Option<String>,
    /// Its recording.
    pub file: PathBuf,
}

/// The object that `plan --json` prints.
#[derive(Debug, Serialize)]
pub(super) struct PlanFigures<'a> {
    pub(super) budget_bytes: u64,
    pub(super) reserve_bytes: u64,
    /// Null if it does as far as the figures go, which is not to the end of the run.
    pub(super) fits: Option<bool>,
    pub(super) fits_as_is: bool,
    /// How far the figures go: `end`, `failed_request`, or `recorded`.
    pub(super) reach: &'static str,
    /// Why what was recorded is not all that the run needs.
    pub(super) unconfirmed_because: Option<&'a str>,
    /// Whether every recorded request succeeds with the plan, if the figures go only so far.
    pub(super) gets_past_failure: Option<bool>,
    pub(super) proof: &'static str,
    /// The program with the plan, simulated once more on a device of the budget; null if no program was given.
    pub(super) proven: Option<&'a Proven>,
    pub(super) command: Option<&'a str>,
    /// Python or Rust, which runs as it stands.
    pub(super) lines: &'a [String],
    /// Environment variables to set before the program starts.
    pub(super) environment: BTreeMap<String, String>,
    /// The GPU that times are estimated for, if they are.
    pub(super) gpu: Option<&'static str>,
    /// The time of a step with the plan, or as it is if nothing is changed.
    pub(super) estimated_step_us: Option<u64>,
    /// What plans are ranked by within a class, as a share of the step's work; `None` if nothing fits.
    pub(super) work_share: Option<f64>,
    pub(super) before: PeaksFigures,
    pub(super) after: Option<PeaksFigures>,
    pub(super) plan: Table<'a>,
    pub(super) alternatives: Vec<AlternativeFigures>,
    pub(super) minimum: MinimumFigures<'a>,
    /// The largest size that fits, if one was asked for.
    pub(super) maximized: Option<usize>,
    pub(super) spare_bytes: Option<u64>,
    pub(super) searched: SearchedFigures,
    pub(super) assumptions: &'a [String],
    pub(super) warnings: &'a [String],
}

#[derive(Debug, Serialize)]
pub(super) struct PeaksFigures {
    pub(super) requested_bytes: u64,
    pub(super) allocated_bytes: u64,
    pub(super) reserved_bytes: u64,
    pub(super) retries: u64,
}

impl PeaksFigures {
    pub(super) fn of(trial: &Trial) -> Self {
        let Trial { requested, allocated, reserved, retries, .. } = *trial;
        Self { requested_bytes: requested, allocated_bytes: allocated, reserved_bytes: reserved, retries }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct AlternativeFigures {
    pub(super) changes: Vec<String>,
    pub(super) scopes: Vec<String>,
    pub(super) class: Class,
    pub(super) work_share: f64,
    pub(super) flops_share: Option<f64>,
    pub(super) peak_bytes: u64,
    pub(super) reserved_bytes: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct MinimumFigures<'a> {
    pub(super) bytes: u64,
    pub(super) changes: Vec<String>,
    pub(super) scopes: Vec<String>,
    pub(super) settings: Option<&'a str>,
    pub(super) device_bytes: Option<u64>,
    pub(super) is_exact: bool,
}

#[derive(Debug, Serialize)]
pub(super) struct SearchedFigures {
    pub(super) combinations: usize,
    pub(super) trials: usize,
    pub(super) is_optimal: bool,
}
