//! The JSON object of `diff --json`.

use std::collections::BTreeMap;
use std::path::Path;

use highwater_analysis::diff::{Comparison, PhasePair, Setting, UnmatchedBlocks};
use highwater_analysis::{Metric, Moment};
use highwater_app::figures::moment::PeakFigure;
use highwater_app::report::{Column, Table};
use highwater_snapshots::{Phase, Trace};
use serde::Serialize;

use super::diff_blocks;
use crate::args::DiffArguments;
use crate::cli::output::caveats;

/// The object that `diff --json` prints. The differences of groups and rest sum to `delta_bytes`, with a filter to
/// `filtered_delta_bytes`.
#[derive(Debug, Serialize)]
pub(super) struct DiffFigures<'a> {
    a: SideFigures,
    b: SideFigures,
    delta_bytes: i128,
    #[serde(skip_serializing_if = "Option::is_none")]
    filter: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    filtered_delta_bytes: Option<i128>,
    groups: Table<'a>,
    rest_a_bytes: u64,
    rest_b_bytes: u64,
    rest_delta_bytes: i128,
    rest_groups: u64,
    settings: Vec<Setting>,
    peaks: BTreeMap<&'static str, TotalFigures>,
    phases: Table<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    blocks: Option<Table<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lone_a_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lone_b_bytes: Option<u64>,
}

impl<'a> DiffFigures<'a> {
    /// Returns the figures of a comparison, with single blocks if they were requested.
    pub(super) fn of(
        traces: [&Trace; 2],
        arguments: &DiffArguments,
        comparison: &'a Comparison,
        groups: Table<'a>,
        lone: Option<&'a UnmatchedBlocks>,
    ) -> Self {
        let diff = &comparison.diff;
        let filter = arguments.blocks.filter.stated();
        let file_b = arguments.b.as_ref().unwrap_or(&arguments.a);
        let [rest_a, rest_b] = diff.rest_bytes;
        let totals = comparison.totals.iter();
        Self {
            a: SideFigures::of(traces[0], &arguments.a, &diff.a),
            b: SideFigures::of(traces[1], file_b, &diff.b),
            delta_bytes: i128::from(diff.b.bytes) - i128::from(diff.a.bytes),
            filter: filter.map(str::to_owned),
            filtered_delta_bytes: filter.map(|_| diff.delta()),
            groups,
            rest_a_bytes: rest_a,
            rest_b_bytes: rest_b,
            rest_delta_bytes: i128::from(rest_b) - i128::from(rest_a),
            rest_groups: diff.rest_groups,
            settings: comparison.settings.iter().filter(|setting| setting.differs()).cloned().collect(),
            peaks: totals.map(|(metric, bytes)| (metric.name(), TotalFigures::of(*bytes))).collect(),
            phases: phases(&comparison.phases),
            blocks: lone.map(diff_blocks::table),
            lone_a_bytes: lone.map(|lone| lone.bytes[0]),
            lone_b_bytes: lone.map(|lone| lone.bytes[1]),
        }
    }
}

#[derive(Debug, Serialize)]
struct SideFigures {
    file: String,
    device: u16,
    metric: Metric,
    #[serde(flatten)]
    figure: PeakFigure,
    step: Option<u32>,
    phase: &'static str,
    trust: caveats::TrustFigures,
    problems: Vec<String>,
}

impl SideFigures {
    fn of(trace: &Trace, file: &Path, moment: &Moment) -> Self {
        Self {
            file: file.display().to_string(),
            device: moment.device.0,
            metric: moment.metric,
            figure: PeakFigure::of(trace, moment),
            step: moment.step,
            phase: moment.phase.name(),
            trust: caveats::TrustFigures::of(trace),
            problems: caveats::problem_texts(trace),
        }
    }
}

#[derive(Debug, Serialize)]
struct TotalFigures {
    a_bytes: u64,
    b_bytes: u64,
    delta_bytes: i128,
}

impl TotalFigures {
    fn of([a, b]: [u64; 2]) -> Self {
        Self { a_bytes: a, b_bytes: b, delta_bytes: i128::from(b) - i128::from(a) }
    }
}

/// The phases of both recordings, side by side.
fn phases(pairs: &[PhasePair]) -> Table<'_> {
    let columns = [
        Column::number("a_step", "step in A", |row| pairs[row].a.as_ref().and_then(|row| row.step)),
        Column::number("b_step", "step in B", |row| pairs[row].b.as_ref().and_then(|row| row.step)),
        Column::text("phase", "phase", |row| pairs[row].phase().map_or("", Phase::name)),
        Column::bytes("a_peak_bytes", "A", |row| pairs[row].a.as_ref().map(|row| row.peak_bytes)),
        Column::bytes("b_peak_bytes", "B", |row| pairs[row].b.as_ref().map(|row| row.peak_bytes)),
        Column::difference("delta_bytes", "difference", |row| pairs[row].delta()),
    ];
    Table::new(pairs.len(), columns)
}
