//! The JSON object of `growth --json`.

use highwater_analysis::between::Sum;
use highwater_analysis::growth::{Growth, Kept, Leak, StepGrowth};
use highwater_analysis::{Group, Metric};
use highwater_app::figures::moment::{PeakFigure, count_of};
use highwater_app::report::{Column, Table, Value};
use highwater_snapshots::Trace;
use highwater_snapshots::units::format_bytes;
use serde::Serialize;

use crate::cli::output::caveats::TrustFigures;

/// The object that `growth --json` prints.
#[derive(Debug, Serialize)]
pub(super) struct GrowthFigures<'a> {
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
    pub(super) leaks: Table<'a>,
    /// Of reserved memory, the change by the reason why it is kept: together the growth.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) causes: Option<Table<'a>>,
    /// The growth of reserved memory, beside that of blocks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reserved: Option<ReservedFigures<'a>>,
    pub(super) devices: Vec<DeviceFigures<'a>>,
    pub(super) extrapolation: Option<ProjectionFigures>,
    pub(super) rows: Table<'a>,
    pub(super) groups: Table<'a>,
    pub(super) rest_survivor_bytes: u64,
    pub(super) rest_freed_bytes: u64,
    pub(super) rest_groups: u64,
    pub(super) stacks: Table<'a>,
    /// What the program held at the end.
    pub(super) holders: Table<'a>,
    pub(super) trust: TrustFigures,
    pub(super) problems: Vec<String>,
}

/// The verdict on a device.
#[derive(Debug, Serialize)]
pub(super) struct DeviceFigures<'a> {
    pub(super) device: u16,
    pub(super) growth_bytes: i128,
    pub(super) bytes_per_step: Option<u64>,
    pub(super) leaks: Table<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) reserved: Option<ReservedFigures<'a>>,
}

/// The growth of reserved memory.
#[derive(Debug, Serialize)]
pub(super) struct ReservedFigures<'a> {
    pub(super) growth_bytes: i128,
    pub(super) bytes_per_step: Option<u64>,
    pub(super) causes: Table<'a>,
}

impl<'a> ReservedFigures<'a> {
    /// Returns the figures of `growth`.
    pub(super) fn of(growth: &'a Growth) -> Self {
        Self {
            growth_bytes: growth.net(),
            bytes_per_step: (growth.step_count() > 0).then(|| growth.bytes_per_step()),
            causes: causes(&growth.causes),
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

/// The source lines that leak memory in every step.
pub(super) fn leaks<'a>(trace: &'a Trace, leaks: &'a [Leak]) -> Table<'a> {
    let columns = [
        Column::text("line", "line", |row| leaks[row].line.clone()),
        Column::bytes("bytes", "bytes", |row| leaks[row].kept.bytes),
        Column::count("blocks", "blocks", |row| leaks[row].kept.blocks),
        Column::bytes("bytes_per_step", "per step", |row| leaks[row].bytes_per_step),
        Column::text("stack", "stack", |row| trace.tables.stack_text(leaks[row].stack)),
    ];
    Table::new(leaks.len(), columns)
}

/// The segments that are kept, by the reason.
pub(super) fn causes(causes: &[Kept]) -> Table<'_> {
    let columns = [
        Column::text("cause", "cause", |row| Value::of(causes[row].because)),
        Column::difference("bytes", "bytes", |row| causes[row].net()),
        Column::count("segments", "segments", |row| causes[row].sum.blocks),
        Column::text("streams", "streams", |row| causes[row].streams.clone()),
        Column::text("pools", "pools", |row| causes[row].pools.iter().map(ToString::to_string).collect::<Vec<_>>()),
        // What one stream or pool would need instead of all of these, which are never in use at the same time.
        Column::bytes("shared_bytes", "shared", |row| causes[row].shared_bytes),
        Column::text("text", "text", |row| causes[row].text()),
    ];
    Table::new(causes.len(), columns)
}

/// The steps, and the events between two.
pub(super) fn steps(rows: &[StepGrowth]) -> Table<'_> {
    let columns = [
        Column::number("step", "step", |row| rows[row].step),
        Column::bytes("end_bytes", "live after step", |row| rows[row].step.map(|_| rows[row].end_bytes)),
        Column::nested("survivors", |row| sum(rows[row].survivors)),
    ];
    Table::new(rows.len(), columns)
}

/// The blocks of each call stack.
pub(super) fn stacks<'a>(trace: &'a Trace, groups: &'a [Group]) -> Table<'a> {
    let columns = [
        Column::bytes("bytes", "bytes", |row| groups[row].bytes),
        Column::count("blocks", "blocks", |row| groups[row].blocks),
        Column::text("stack", "stack", |row| trace.tables.stack_text(groups[row].stack)),
    ];
    Table::new(groups.len(), columns)
}

/// A sum as an object.
pub(super) fn sum(sum: Sum) -> Value {
    Value::Map(vec![("bytes", sum.bytes.into()), ("blocks", sum.blocks.into())])
}
