//! The JSON object of `diff --json`.

use std::collections::BTreeMap;
use std::path::Path;

use highwater_analysis::diff::{Change, Comparison, DiffGroup, Likeness, LoneBlocks, PhasePair, Setting};
use highwater_analysis::{GroupKey, Metric, Moment};
use highwater_app::figures::moment::PeakFigure;
use highwater_snapshots::{Phase, Trace};
use serde::Serialize;

use super::diff_blocks::LoneBlockFigures;
use crate::args::DiffArguments;
use crate::cli::output::caveats;

/// The object that `diff --json` prints. The differences of groups and rest sum to `delta_bytes`, with a filter to
/// `filtered_delta_bytes`.
#[derive(Debug, Serialize)]
pub(super) struct DiffFigures {
    a: SideFigures,
    b: SideFigures,
    delta_bytes: i128,
    #[serde(skip_serializing_if = "Option::is_none")]
    filter: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    filtered_delta_bytes: Option<i128>,
    groups: Vec<GroupFigures>,
    rest_a_bytes: u64,
    rest_b_bytes: u64,
    rest_delta_bytes: i128,
    rest_groups: u64,
    settings: Vec<Setting>,
    peaks: BTreeMap<&'static str, TotalFigures>,
    phases: Vec<PhaseFigures>,
    #[serde(skip_serializing_if = "Option::is_none")]
    blocks: Option<Vec<LoneBlockFigures>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lone_a_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    lone_b_bytes: Option<u64>,
}

impl DiffFigures {
    /// Returns the figures of a comparison, with single blocks if they were requested.
    pub(super) fn of(
        traces: [&Trace; 2],
        arguments: &DiffArguments,
        comparison: &Comparison,
        lone: Option<&LoneBlocks>,
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
            groups: diff.groups.iter().map(|group| GroupFigures::of(group, &arguments.by.0)).collect(),
            rest_a_bytes: rest_a,
            rest_b_bytes: rest_b,
            rest_delta_bytes: i128::from(rest_b) - i128::from(rest_a),
            rest_groups: diff.rest_groups,
            settings: comparison.settings.iter().filter(|setting| setting.differs()).cloned().collect(),
            peaks: totals.map(|(metric, bytes)| (metric.name(), TotalFigures::of(*bytes))).collect(),
            phases: comparison.phases.iter().map(PhaseFigures::of).collect(),
            blocks: lone.map(|lone| lone.blocks.iter().map(LoneBlockFigures::of).collect()),
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
struct GroupFigures {
    /// The values of all keys, joined.
    key: String,
    /// The values by key.
    keys: BTreeMap<&'static str, String>,
    a_bytes: u64,
    b_bytes: u64,
    delta_bytes: i128,
    a_blocks: u64,
    b_blocks: u64,
    change: Change,
    likeness: Likeness,
    /// The equal modules that are one group, each with the same share of all sums.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    members: Vec<Self>,
}

impl GroupFigures {
    fn of(group: &DiffGroup, keys: &[GroupKey]) -> Self {
        let count = group.members.len().max(1) as u64;
        let member = |key: &Vec<String>| Self::of_one(group, keys, (key, count), Vec::new());
        let members = group.members.iter().map(member).collect();
        Self::of_one(group, keys, (&group.key, 1), members)
    }

    /// Returns the figures of one of `count` equal parts of a group.
    fn of_one(group: &DiffGroup, keys: &[GroupKey], (key, count): (&Vec<String>, u64), members: Vec<Self>) -> Self {
        let named = keys.iter().zip(key).map(|(key, value)| (key.name(), value.clone()));
        Self {
            key: key.join(", "),
            keys: named.collect(),
            a_bytes: group.a_bytes / count,
            b_bytes: group.b_bytes / count,
            delta_bytes: group.delta() / i128::from(count),
            a_blocks: group.a_blocks / count,
            b_blocks: group.b_blocks / count,
            change: group.change(),
            likeness: group.likeness,
            members,
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

#[derive(Debug, Serialize)]
struct PhaseFigures {
    a_step: Option<u32>,
    b_step: Option<u32>,
    phase: &'static str,
    a_peak_bytes: Option<u64>,
    b_peak_bytes: Option<u64>,
    delta_bytes: Option<i128>,
}

impl PhaseFigures {
    fn of(pair: &PhasePair) -> Self {
        Self {
            a_step: pair.a.as_ref().and_then(|row| row.step),
            b_step: pair.b.as_ref().and_then(|row| row.step),
            phase: pair.phase().map_or("", Phase::name),
            a_peak_bytes: pair.a.as_ref().map(|row| row.peak_bytes),
            b_peak_bytes: pair.b.as_ref().map(|row| row.peak_bytes),
            delta_bytes: pair.delta(),
        }
    }
}
