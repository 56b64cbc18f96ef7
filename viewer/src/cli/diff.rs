//! The report of `highwater diff`: the differences between two recordings, or between two moments of one.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use highwater_analysis::device_spans::device_steps;
use highwater_analysis::diff::{
    Asked, Change, Comparison, DiffAt, DiffGroup, DiffQuery, Likeness, LoneBlocks, PhasePair, Setting,
};
use highwater_analysis::final_oom::final_oom_on;
use highwater_analysis::phases::PhaseRow;
use highwater_analysis::{Diff, GroupKey, LiveIndex, Metric, Moment, Series};
use highwater_app::figures::moment::{PeakFigure, count_of, when};
use highwater_snapshots::units::{format_bytes, format_signed_bytes};
use highwater_snapshots::{DeviceId, Trace};
use serde::Serialize;

use super::diff_blocks::{self, LoneBlockFigures};
use crate::args::{ComparedAt, DiffArguments};
use crate::cli::input::devices::{compared_devices, on_device, phrase};
use crate::cli::input::recording::names_operations;
use crate::cli::output::caveats;
use crate::cli::output::key_cells::key_columns;
use crate::cli::output::outcome::Failure;
use crate::cli::output::page::Page;
use crate::cli::output::shell::next_with;
use crate::cli::output::table::{Column, Table};

/// Maximum number of differing phases that are listed.
const TOLD_PHASES: usize = 12;

/// The report, as text and as JSON.
#[derive(Debug)]
pub struct DiffReport<'a> {
    traces: [&'a Trace; 2],
    arguments: &'a DiffArguments,
    comparison: Comparison,
    /// The single blocks, if requested.
    lone: Option<LoneBlocks>,
}

impl<'a> DiffReport<'a> {
    /// Compares two recordings, which may be the same.
    pub fn of(traces: [&'a Trace; 2], arguments: &'a DiffArguments) -> Result<Self, Failure> {
        let wanted = [arguments.device, arguments.device_b.or(arguments.device)];
        let devices = compared_devices(traces, wanted, arguments.metric)?;
        let index = |side: usize| {
            let (trace, device): (&Trace, _) = (traces[side], devices[side]);
            rayon::join(|| Series::build(trace, device), || LiveIndex::build(trace, device))
        };
        let (a, b) = rayon::join(|| index(0), || index(1));
        let asked = [
            Asked { trace: traces[0], series: &a.0, live: &a.1 },
            Asked { trace: traces[1], series: &b.0, live: &b.1 },
        ];
        let wanted = [arguments.at, arguments.at_b].map(|at| at.map(|at| at.0));
        let at = moments_of(wanted, arguments.b.is_none(), (traces[0], devices[0]))?;
        let find = |side: usize| {
            let missing = || missing_step(at[side], side, traces[side], devices[side]);
            at[side].find(asked[side], arguments.metric).ok_or_else(missing)
        };
        let query = DiffQuery { keys: &arguments.by.0, top: arguments.top, filter: &arguments.blocks.filter.filter };
        let moments = [find(0)?, find(1)?];
        let wanted = arguments.lone_blocks;
        let lone = (wanted > 0).then(|| LoneBlocks::of(asked, &moments, &query, wanted));
        let comparison = Comparison::of(asked, moments, &query);
        Ok(Self { traces, arguments, comparison, lone })
    }

    /// Returns the JSON object: the deltas of groups and rest sum to `delta_bytes`, with a filter to
    /// `filtered_delta_bytes`.
    pub fn figures(&self) -> impl Serialize {
        let filter = self.arguments.blocks.filter.stated();
        let delta = i128::from(self.comparison.diff.b.bytes) - i128::from(self.comparison.diff.a.bytes);
        DiffFigures {
            a: SideFigures::of(self.traces[0], &self.arguments.a, &self.comparison.diff.a),
            b: SideFigures::of(
                self.traces[1],
                self.arguments.b.as_ref().unwrap_or(&self.arguments.a),
                &self.comparison.diff.b,
            ),
            delta_bytes: delta,
            filter: filter.map(str::to_owned),
            filtered_delta_bytes: filter.map(|_| self.comparison.diff.delta()),
            groups: self
                .comparison
                .diff
                .groups
                .iter()
                .map(|group| GroupFigures::of(group, &self.arguments.by.0))
                .collect(),
            rest_a_bytes: self.comparison.diff.rest_bytes[0],
            rest_b_bytes: self.comparison.diff.rest_bytes[1],
            rest_delta_bytes: i128::from(self.comparison.diff.rest_bytes[1])
                - i128::from(self.comparison.diff.rest_bytes[0]),
            rest_groups: self.comparison.diff.rest_groups,
            settings: self.comparison.settings.iter().filter(|setting| setting.differs()).cloned().collect(),
            peaks: self
                .comparison
                .totals
                .iter()
                .map(|(metric, bytes)| (metric.name(), TotalFigures::of(*bytes)))
                .collect(),
            phases: self.comparison.phases.iter().map(PhaseFigures::of).collect(),
            blocks: self.lone.as_ref().map(|lone| lone.blocks.iter().map(LoneBlockFigures::of).collect()),
            lone_a_bytes: self.lone.as_ref().map(|lone| lone.bytes[0]),
            lone_b_bytes: self.lone.as_ref().map(|lone| lone.bytes[1]),
        }
    }

    /// Prints the report as text.
    pub fn print(&self, page: &mut Page<'_>) -> io::Result<()> {
        let Diff { a, b, .. } = &self.comparison.diff;
        let metric = self.arguments.metric.name().replace('_', " ");
        let delta = i128::from(b.bytes) - i128::from(a.bytes);
        let on = if a.device == b.device { on_device(self.traces[1], b.device) } else { String::new() };
        let words = match delta {
            0 => format!("{on}B takes as much as A: {} {metric}.", format_bytes(a.bytes)),
            _ => {
                let more = if delta > 0 { "more" } else { "less" };
                let size = format_bytes(u64::try_from(delta.unsigned_abs()).unwrap_or(u64::MAX));
                format!(
                    "{on}B takes {size} {more} than A: {} {metric} against {}.",
                    format_bytes(b.bytes),
                    format_bytes(a.bytes)
                )
            }
        };
        page.headline(&words)?;
        for (side, moment) in [("A", a), ("B", b)] {
            let file =
                if side == "B" { self.arguments.b.as_ref().unwrap_or(&self.arguments.a) } else { &self.arguments.a };
            let trace = self.traces[usize::from(side == "B")];
            let on = phrase(trace, &[moment.device]).map_or_else(String::new, |phrase| format!("{phrase}, "));
            let when = when(moment.event, moment.step, moment.known_phase());
            page.line(&format!("{side}: {}, {on}{when}.", file.display()))?;
        }
        // Only the peaks of whole recordings are cut short by it.
        for (side, moment) in [("A", a), ("B", b)].into_iter().filter(|_| self.arguments.b.is_some()) {
            let trace = self.traces[usize::from(side == "B")];
            if final_oom_on(trace, moment.device).is_some() {
                page.warning(&format!("{side} ran out of memory: what it would have needed later is not recorded."))?;
            }
        }
        self.print_settings(page)?;
        if self.arguments.b.is_some() {
            page.gap()?;
            page.line("Peaks of the whole recordings:")?;
            page.table(&self.totals())?;
            self.print_phases(page)?;
        }
        page.gap()?;
        if let Some(filter) = self.arguments.blocks.filter.stated() {
            page.line(&format!(
                "Of this, {} in blocks with {filter}:",
                format_signed_bytes(self.comparison.diff.delta())
            ))?;
        } else {
            page.line(if self.is_equal() { "No group differs." } else { "What makes the difference:" })?;
        }
        if !self.is_equal() {
            page.table(&self.table())?;
        }
        self.print_likeness(page)?;
        if let Some(lone) = &self.lone {
            page.gap()?;
            page.line(&diff_blocks::heading(lone))?;
            page.table(&diff_blocks::table(lone))?;
        }
        if self.arguments.b.is_some() {
            caveats::print_of(self.traces[0], "A", page)?;
            caveats::print_of(self.traces[1], "B", page)?;
        } else {
            caveats::print(self.traces[0], page)?;
        }
        page.gap()?;
        page.hint(&self.hint())
    }

    /// Returns whether no group differs.
    fn is_equal(&self) -> bool {
        let diff = &self.comparison.diff;
        diff.rest_groups == 0 && diff.groups.iter().all(|group| group.a_bytes == group.b_bytes)
    }

    fn print_settings(&self, page: &mut Page<'_>) -> io::Result<()> {
        let differing: Vec<&Setting> = self.comparison.settings.iter().filter(|setting| setting.differs()).collect();
        if differing.is_empty() {
            return Ok(());
        }
        page.gap()?;
        let mut table = Table::new(vec![
            Column::text("set differently"),
            Column::text("in A").wrapped(),
            Column::text("in B").wrapped(),
        ]);
        for setting in differing {
            let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
            table.push(vec![setting.name.clone(), value(&setting.a), value(&setting.b)]);
        }
        page.table(&table)
    }

    fn totals(&self) -> Table {
        let mut table = Table::new(vec![
            Column::text("total"),
            Column::number("A"),
            Column::number("B"),
            Column::number("difference"),
        ]);
        for (metric, [a, b]) in &self.comparison.totals {
            let delta = format_signed_bytes(i128::from(*b) - i128::from(*a));
            table.push(vec![metric.name().replace('_', " "), format_bytes(*a), format_bytes(*b), delta]);
        }
        table
    }

    /// Prints the phases whose peaks differ, in their order; if there are many, those that differ most.
    fn print_phases(&self, page: &mut Page<'_>) -> io::Result<()> {
        let differing: Vec<&PhasePair> = self.comparison.phases.iter().filter(|pair| phase_delta(pair) != 0).collect();
        if differing.is_empty() {
            return Ok(());
        }
        let mut largest: Vec<usize> = (0..differing.len()).collect();
        largest.sort_by_key(|row| std::cmp::Reverse(phase_delta(differing[*row]).unsigned_abs()));
        largest.truncate(TOLD_PHASES);
        largest.sort_unstable();
        let told: Vec<&PhasePair> = largest.into_iter().map(|row| differing[row]).collect();
        page.gap()?;
        let more = differing.len() - told.len();
        let which = if more > 0 { format!(" The {} that differ most:", told.len()) } else { String::new() };
        page.line(&format!("Peaks of {}.{which}", count_of(differing.len() as u64, "differing phase")))?;
        let mut table = Table::new(vec![
            Column::text("step"),
            Column::text("phase"),
            Column::number("A"),
            Column::number("B"),
            Column::number("difference"),
        ]);
        for pair in told {
            let peak = |row: &Option<_>| row.as_ref().map_or_else(|| "-".to_owned(), peak_text);
            let delta = format_signed_bytes(phase_delta(pair));
            table.push(vec![step_text(pair), phase_name(pair).to_owned(), peak(&pair.a), peak(&pair.b), delta]);
        }
        page.table(&table)
    }

    fn table(&self) -> Table {
        let keys = &self.arguments.by.0;
        let mut columns = key_columns(keys);
        columns.extend([
            Column::number("A"),
            Column::number("B"),
            Column::number("difference"),
            Column::text("").optional(),
        ]);
        let mut table = Table::new(columns);
        let mut row = |mut names: Vec<String>, [a, b]: [u64; 2], change: String| {
            names.resize(keys.len(), String::new());
            names.extend([
                format_bytes(a),
                format_bytes(b),
                format_signed_bytes(i128::from(b) - i128::from(a)),
                change,
            ]);
            table.push(names);
        };
        for group in &self.comparison.diff.groups {
            let change = match group.change() {
                Change::Same | Change::Grown | Change::Shrunk => String::new(),
                change => change.name().to_owned(),
            };
            let change = match group.likeness {
                Likeness::Equal => change,
                likeness => format!("{change} ({})", likeness.name()).trim_start().to_owned(),
            };
            row(group.key.clone(), [group.a_bytes, group.b_bytes], change);
        }
        if self.comparison.diff.rest_groups > 0 {
            row(
                vec![count_of(self.comparison.diff.rest_groups, "more group")],
                self.comparison.diff.rest_bytes,
                String::new(),
            );
        }
        row(vec!["total".to_owned()], [self.comparison.diff.a_bytes, self.comparison.diff.b_bytes], String::new());
        table
    }

    fn print_likeness(&self, page: &mut Page<'_>) -> io::Result<()> {
        let loosely =
            self.comparison.diff.groups.iter().filter(|group| group.likeness == Likeness::Alike).count() as u64;
        if loosely > 0 {
            let s = if loosely == 1 { " was" } else { "s were" };
            page.warning(&format!(
                "{loosely} group{s} matched loosely: functions stand between others that did not before, or have new names."
            ))?;
        }
        Ok(())
    }

    fn hint(&self) -> String {
        let files: Vec<&Path> =
            std::iter::once(&self.arguments.a).chain(&self.arguments.b).map(AsRef::as_ref).collect();
        let given = self.arguments.given();
        if self.is_equal() {
            return next_with(&["explain"], &files[..1], &[], &given, "for what would lower the peak");
        }
        let is_by_code = self.arguments.by.0.iter().any(|key| matches!(key, GroupKey::Frame | GroupKey::Stack));
        if names_operations(self.traces[0]) && !self.arguments.by.0.contains(&GroupKey::Scope) {
            let options = ["--by", "scope,op"];
            return next_with(&["diff"], &files, &options, &given, "for the modules and operations behind it");
        }
        if is_by_code {
            // The side that takes more.
            let is_a = self.comparison.diff.a.bytes >= self.comparison.diff.b.bytes;
            let larger = if is_a { files[..1].to_vec() } else { files.last().copied().into_iter().collect() };
            return next_with(&["explain"], &larger, &[], &given, "for what could be done");
        }
        next_with(&["diff"], &files, &["--by", "frame"], &given, "for the lines of code behind it")
    }
}

/// Returns the error if the recording of `side` does not have the step of `at`.
pub fn missing_step(at: DiffAt, side: usize, trace: &Trace, device: DeviceId) -> Failure {
    let steps = device_steps(trace, device);
    let have = match (steps.first(), steps.last()) {
        (Some(first), Some(last)) if first != last => format!("it has steps {first} to {last}"),
        (Some(one), _) => format!("it has step {one} only"),
        _ => "it has no steps".to_owned(),
    };
    let which = ["A", "B"][side];
    Failure::Usage(format!("{} of {which}: the recording has no such step; {have}", ComparedAt(at)))
}

/// Returns the compared moments of both sides, of two recordings or, if `is_one`, of that one.
pub fn moments_of(
    [at, at_b]: [Option<DiffAt>; 2],
    is_one: bool,
    (trace, device): (&Trace, DeviceId),
) -> Result<[DiffAt; 2], Failure> {
    if !is_one {
        let at = at.unwrap_or_default();
        return Ok([at, at_b.unwrap_or(at)]);
    }
    match (at, at_b) {
        (Some(a), Some(b)) => Ok([a, b]),
        (Some(DiffAt::Step(step)), None) => Ok([DiffAt::Step(step), DiffAt::Step(step.saturating_add(1))]),
        (Some(DiffAt::StepEnd(step)), None) => Ok([DiffAt::StepEnd(step), DiffAt::StepEnd(step.saturating_add(1))]),
        (None, None) => DiffAt::last_steps(trace, device).ok_or_else(|| {
            let text = "cannot compare the last two steps: the recording has fewer than two whole steps; name a second \
                        recording, or two moments with --at and --at-b";
            Failure::Usage(text.to_owned())
        }),
        _ => Err(Failure::Usage("comparing two moments of one recording needs both --at and --at-b".to_owned())),
    }
}

fn phase_delta(pair: &PhasePair) -> i128 {
    let peak = |row: &Option<_>| row.as_ref().map_or(0, |row: &PhaseRow| row.peak_bytes);
    i128::from(peak(&pair.b)) - i128::from(peak(&pair.a))
}

fn peak_text(row: &PhaseRow) -> String {
    format_bytes(row.peak_bytes)
}

fn phase_name(pair: &PhasePair) -> &'static str {
    pair.a.as_ref().or(pair.b.as_ref()).map_or("", |row| row.phase.name())
}

/// Formats step numbers: `3`, or `3 and 5` if they differ.
fn step_text(pair: &PhasePair) -> String {
    let step = |row: &Option<PhaseRow>| row.as_ref().and_then(|row| row.step);
    match (step(&pair.a), step(&pair.b)) {
        (Some(a), Some(b)) if a != b => format!("{a} and {b}"),
        (Some(step), _) | (_, Some(step)) => step.to_string(),
        (None, None) => "-".to_owned(),
    }
}

#[derive(Debug, Serialize)]
struct DiffFigures {
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
}

impl GroupFigures {
    fn of(group: &DiffGroup, keys: &[GroupKey]) -> Self {
        let named = keys.iter().zip(&group.key).map(|(key, value)| (key.name(), value.clone()));
        Self {
            key: group.key.join(", "),
            keys: named.collect(),
            a_bytes: group.a_bytes,
            b_bytes: group.b_bytes,
            delta_bytes: group.delta(),
            a_blocks: group.a_blocks,
            b_blocks: group.b_blocks,
            change: group.change(),
            likeness: group.likeness,
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
    delta_bytes: i128,
}

impl PhaseFigures {
    fn of(pair: &PhasePair) -> Self {
        Self {
            a_step: pair.a.as_ref().and_then(|row| row.step),
            b_step: pair.b.as_ref().and_then(|row| row.step),
            phase: phase_name(pair),
            a_peak_bytes: pair.a.as_ref().map(|row| row.peak_bytes),
            b_peak_bytes: pair.b.as_ref().map(|row| row.peak_bytes),
            delta_bytes: phase_delta(pair),
        }
    }
}
