//! The JSON object of `growth --json`.

use std::collections::BTreeMap;

use highwater_analysis::between::Sum;
use highwater_analysis::growth::{GrownGroup, Growth, Kept, KeptBecause, StepGrowth};
use highwater_analysis::{GroupKey, Metric};
use highwater_app::figures::moment::{PeakFigure, count_of};
use highwater_snapshots::units::format_bytes;
use serde::Serialize;

use crate::cli::output::caveats::TrustFigures;

/// The object that `growth --json` prints.
#[derive(Debug, Serialize)]
pub(super) struct GrowthFigures {
    pub(super) device: u16,
    pub(super) metric: Metric,
    pub(super) from_step: Option<u32>,
    pub(super) to_step: Option<u32>,
    pub(super) steps: usize,
    /// Why these steps were chosen, if they were not given.
    pub(super) chosen_because: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) filter: Option<String>,
    pub(super) start: PeakFigure,
    pub(super) end: PeakFigure,
    pub(super) survivors: Sum,
    pub(super) freed: Sum,
    pub(super) growth_bytes: i128,
    pub(super) bytes_per_step: Option<u64>,
    pub(super) recurring_bytes: u64,
    pub(super) leaks: Vec<LeakFigures>,
    /// Of reserved memory, why what was obtained is kept: all survivors.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) causes: Vec<CauseFigures>,
    /// The growth of reserved memory, beside that of blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reserved: Option<ReservedFigures>,
    pub(super) devices: Vec<DeviceFigures>,
    pub(super) extrapolation: Option<ProjectionFigures>,
    pub(super) rows: Vec<StepFigures>,
    pub(super) groups: Vec<GroupFigures>,
    pub(super) rest_survivor_bytes: u64,
    pub(super) rest_freed_bytes: u64,
    pub(super) rest_groups: u64,
    pub(super) stacks: Vec<StackFigures>,
    pub(super) trust: TrustFigures,
    pub(super) problems: Vec<String>,
}

/// A source line that leaks memory in every step.
#[derive(Debug, Serialize)]
pub(super) struct LeakFigures {
    pub(super) line: String,
    pub(super) bytes: u64,
    pub(super) blocks: u64,
    pub(super) bytes_per_step: u64,
    pub(super) stack: Vec<String>,
}

/// The verdict on a device.
#[derive(Debug, Serialize)]
pub(super) struct DeviceFigures {
    pub(super) device: u16,
    pub(super) growth_bytes: i128,
    pub(super) bytes_per_step: Option<u64>,
    pub(super) leaks: Vec<LeakFigures>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reserved: Option<ReservedFigures>,
}

/// Segments that are kept for one reason.
#[derive(Debug, Serialize)]
pub(super) struct CauseFigures {
    pub(super) cause: KeptBecause,
    pub(super) bytes: u64,
    pub(super) segments: u64,
    pub(super) streams: Vec<u64>,
    pub(super) pools: Vec<String>,
    /// What one stream or pool would need instead of all of these, which are never in use at the same time.
    pub(super) shared_bytes: Option<u64>,
    pub(super) text: String,
}

impl CauseFigures {
    /// Returns the figures of `kept`.
    pub(super) fn of(kept: &Kept) -> Self {
        Self {
            cause: kept.because,
            bytes: kept.sum.bytes,
            segments: kept.sum.blocks,
            streams: kept.streams.clone(),
            pools: kept.pools.iter().map(ToString::to_string).collect(),
            shared_bytes: kept.shared_bytes,
            text: kept.text(),
        }
    }
}

/// The growth of reserved memory.
#[derive(Debug, Serialize)]
pub(super) struct ReservedFigures {
    pub(super) growth_bytes: i128,
    pub(super) bytes_per_step: Option<u64>,
    pub(super) causes: Vec<CauseFigures>,
}

impl ReservedFigures {
    /// Returns the figures of `growth`.
    pub(super) fn of(growth: &Growth) -> Self {
        Self {
            growth_bytes: growth.net(),
            bytes_per_step: (growth.step_count() > 0).then(|| growth.bytes_per_step()),
            causes: growth.causes.iter().map(CauseFigures::of).collect(),
        }
    }
}

/// An extrapolation with the same growth in every further step.
#[derive(Debug, Serialize)]
pub(super) struct ProjectionFigures {
    pub(super) capacity_bytes: u64,
    pub(super) peak_bytes: u64,
    pub(super) steps_until_full: u64,
}

impl ProjectionFigures {
    /// The extrapolation as a sentence.
    pub(super) fn text(&self) -> String {
        format!(
            "Extrapolated: if every step adds as much, the peak of a step, {} now, exceeds the device's {} after {}; \
             fragmentation and what is outside the allocator bring that sooner.",
            format_bytes(self.peak_bytes),
            format_bytes(self.capacity_bytes),
            count_of(self.steps_until_full, "more step")
        )
    }
}

/// A step, or the events between two.
#[derive(Debug, Serialize)]
pub(super) struct StepFigures {
    pub(super) step: Option<u32>,
    pub(super) end_bytes: Option<u64>,
    pub(super) survivors: Sum,
}

impl StepFigures {
    /// Returns the figures of `row`.
    pub(super) fn of(row: &StepGrowth) -> Self {
        Self { step: row.step, end_bytes: row.step.map(|_| row.end_bytes), survivors: row.survivors }
    }
}

/// A group of blocks.
#[derive(Debug, Serialize)]
pub(super) struct GroupFigures {
    /// The values of all keys, joined.
    pub(super) key: String,
    /// The values by key.
    pub(super) keys: BTreeMap<&'static str, String>,
    pub(super) survivors: Sum,
    pub(super) freed: Sum,
    pub(super) growth_bytes: i128,
    pub(super) steps: usize,
    pub(super) least_bytes: u64,
    pub(super) is_recurring: bool,
}

impl GroupFigures {
    /// Returns the figures of `group`, by `keys`.
    pub(super) fn of(group: &GrownGroup, keys: &[GroupKey]) -> Self {
        let named = keys.iter().zip(&group.key).map(|(key, value)| (key.name(), value.clone()));
        Self {
            key: group.key.join(", "),
            keys: named.collect(),
            survivors: group.survivors,
            freed: group.freed,
            growth_bytes: group.net(),
            steps: group.steps,
            least_bytes: group.least_bytes,
            is_recurring: group.is_recurring,
        }
    }
}

/// The blocks allocated with one call stack.
#[derive(Debug, Serialize)]
pub(super) struct StackFigures {
    pub(super) bytes: u64,
    pub(super) blocks: u64,
    pub(super) stack: Vec<String>,
}
