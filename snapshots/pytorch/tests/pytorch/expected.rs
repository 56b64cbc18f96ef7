//! Reads the expected values of each file from `expected.json`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use highwater_analysis::{Metric, Totals};
use serde::Deserialize;

/// The metrics that PyTorch's recordings have.
pub(crate) const METRICS: [Metric; 4] = [Metric::Requested, Metric::Allocated, Metric::Active, Metric::Reserved];

/// The folder with the recordings.
pub(crate) fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata")
}

/// What is expected of every file, by name.
pub(crate) fn all() -> BTreeMap<String, File> {
    let text = fs::read_to_string(folder().join("expected.json")).expect("the folder has expected.json");
    serde_json::from_str(&text).expect("expected.json has the form that make.py writes")
}

/// What must be found in a file.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct File {
    /// What PyTorch said when it was recorded; none for forms made from another file.
    pub pytorch: Option<PyTorchFigures>,
    /// How many ranges of each name the program marked.
    pub annotations: BTreeMap<String, usize>,
    /// Events of pinned host memory.
    pub host_events: usize,
    /// By ordinal.
    pub devices: BTreeMap<u16, Device>,
}

/// What PyTorch said of itself.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct PyTorchFigures {
    /// The peaks are those of the recording: counted since its start, or since a reset at its start.
    pub counted_since: Option<String>,
    /// By ordinal.
    pub memory_stats: BTreeMap<u16, Stats>,
}

/// `torch.cuda.memory_stats`.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Stats {
    pub peak: Bytes,
    pub current: Bytes,
}

/// Totals in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(crate) struct Bytes {
    pub requested: u64,
    pub allocated: u64,
    pub active: u64,
    pub reserved: u64,
}

impl Bytes {
    /// The totals of a moment.
    pub(crate) fn of(totals: Totals) -> Self {
        let Totals { requested, allocated, active, reserved, .. } = totals;
        Self { requested, allocated, active, reserved }
    }

    pub(crate) fn get(&self, metric: Metric) -> u64 {
        match metric {
            Metric::Requested => self.requested,
            Metric::Allocated => self.allocated,
            Metric::Active => self.active,
            Metric::Reserved | Metric::DeviceUsed => self.reserved,
        }
    }
}

/// What must be found of a device.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Device {
    /// How many events the trace has of each action.
    pub actions: BTreeMap<String, usize>,
    /// Before the first event.
    pub baseline: Bytes,
    /// After the last.
    pub end: Bytes,
    /// By metric.
    pub peaks: BTreeMap<String, Peak>,
}

/// A peak, and the event that reaches it first.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Peak {
    pub bytes: u64,
    /// What the event does; none where the baseline is never exceeded.
    pub action: Option<String>,
    /// How many events of that action the device had before.
    #[serde(default)]
    pub nth: usize,
    /// Function, file and line of its frames, innermost first.
    #[serde(default)]
    pub frames: Vec<(String, String, u32)>,
}
