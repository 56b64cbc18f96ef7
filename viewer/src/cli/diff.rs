//! The report of `highwater diff`: the differences between two recordings, or between two moments of one.

use std::collections::HashMap;
use std::io;
use std::path::Path;

use highwater_analysis::diff::{
    Asked, Change, Comparison, DiffAt, DiffQuery, Likeness, LoneBlocks, PhasePair, Setting,
};
use highwater_analysis::phases::{PhaseRow, stages, steps_of};
use highwater_analysis::{Diff, GroupKey, Metric};
use highwater_app::figures::moment::{count_of, when};
use highwater_snapshots::units::{format_bytes, format_count, format_signed_bytes};
use highwater_snapshots::{DeviceId, Phase, Trace};
use serde::Serialize;

use super::diff_blocks;
use super::diff_figures::DiffFigures;
use crate::args::{ComparedAt, DiffArguments};
use crate::cli::input::devices::{compared_devices, on_device, phrase};
use crate::cli::input::recording::origin_keys;
use crate::cli::input::source::Input;
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
    /// Whether each recording ends out of memory on its device.
    ran_out: [bool; 2],
}

impl<'a> DiffReport<'a> {
    /// Compares two recordings, which may be the same.
    pub fn of(inputs: [&'a Input; 2], arguments: &'a DiffArguments) -> Result<Self, Failure> {
        let traces = inputs.map(Input::facts);
        let metric = arguments.metric;
        let wanted = [arguments.device, arguments.device_b.or(arguments.device)];
        let devices = compared_devices(inputs, wanted, metric)?;
        let wanted = [arguments.at, arguments.at_b].map(|at| at.map(|at| at.0));
        let at = moments_of(wanted, arguments.b.is_none(), (inputs[0], devices[0]))?;
        let find = |side: usize| {
            let found = inputs[side].ask(|source, _| at[side].find(source, devices[side], metric))?;
            found.map_or_else(|| Err(missing_step(at[side], side, inputs[side], devices[side])?), Ok)
        };
        let query = DiffQuery {
            keys: &arguments.by.0,
            top: arguments.top,
            filter: &arguments.blocks.filter.filter,
            siblings: arguments.modules.siblings(),
        };
        let moments = [find(0)?, find(1)?];
        let mut lone = None;
        if arguments.lone_blocks > 0 {
            let windows = [0, 1].map(|side| inputs[side].ask(|source, _| source.window_at(moments[side].number())));
            let [a, b] = windows;
            let windows = [a?, b?];
            let indexes = [0, 1].map(|side: usize| windows[side].index(devices[side]));
            let asked = [0, 1].map(|side: usize| Asked {
                trace: &windows[side].trace,
                series: &indexes[side].series,
                live: &indexes[side].live,
            });
            lone = Some(LoneBlocks::of(asked, &moments, &query, arguments.lone_blocks));
        }
        let comparison = inputs[0].ask(|a, watch| Comparison::of([a, &inputs[1].source], moments, &query, watch))?;
        let mut ran_out = [false; 2];
        for side in [0, 1] {
            let found = inputs[side].ask(|source, _| source.final_oom())?;
            ran_out[side] = found.is_some_and(|(_, device)| device == devices[side]);
        }
        Ok(Self { traces, arguments, comparison, lone, ran_out })
    }

    /// Returns the JSON object.
    pub fn figures(&self) -> impl Serialize {
        DiffFigures::of(self.traces, self.arguments, &self.comparison, self.lone.as_ref())
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
            let when = when(moment);
            page.line(&format!("{side}: {}, {on}{when}.", file.display()))?;
        }
        // Only the peaks of whole recordings are cut short by it.
        for (side, ran_out) in [("A", self.ran_out[0]), ("B", self.ran_out[1])] {
            if ran_out && self.arguments.b.is_some() {
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
        // A step may have several phases of one name.
        let mut occurrences: HashMap<(Option<String>, Option<Phase>), u32> = HashMap::new();
        let named = self.comparison.phases.iter().map(|pair| {
            let count = occurrences.entry((pair.steps(), pair.phase())).or_default();
            *count += 1;
            let name = pair.phase().map_or("", Phase::name);
            (if *count > 1 { format!("{name} (no. {count})") } else { name.to_owned() }, pair)
        });
        let (on_both, on_one): (Vec<_>, Vec<_>) = named.partition(|(_, pair)| pair.delta().is_some());
        let only = |side: &str, count: usize| {
            let be = if count == 1 { "is" } else { "are" };
            (count > 0).then(|| format!("{} {be} only in {side}.", count_of(count as u64, "phase")))
        };
        let in_a = on_one.iter().filter(|(_, pair)| pair.a.is_some()).count();
        let alone: Vec<String> = only("A", in_a).into_iter().chain(only("B", on_one.len() - in_a)).collect();
        let size = |pair: &PhasePair| pair.delta().map_or(0, i128::unsigned_abs);
        let differing: Vec<(String, &PhasePair)> = on_both.into_iter().filter(|(_, pair)| size(pair) > 0).collect();
        if differing.is_empty() && !alone.is_empty() {
            page.gap()?;
            page.line(&alone.join(" "))?;
        }
        if differing.is_empty() {
            return Ok(());
        }
        let mut largest: Vec<usize> = (0..differing.len()).collect();
        largest.sort_by_key(|row| std::cmp::Reverse(size(differing[*row].1)));
        largest.truncate(TOLD_PHASES);
        largest.sort_unstable();
        page.gap()?;
        let which = match differing.len() - largest.len() {
            0 => String::new(),
            _ => format!(" The {} that differ most:", largest.len()),
        };
        let count = count_of(differing.len() as u64, "differing phase");
        let alone: String = alone.iter().map(|text| format!(" {text}")).collect();
        page.line(&format!("Peaks of {count}.{alone}{which}"))?;
        let mut table = Table::new(vec![
            Column::text("step"),
            Column::text("phase"),
            Column::number("A"),
            Column::number("B"),
            Column::number("difference"),
        ]);
        for (name, pair) in largest.into_iter().map(|row| &differing[row]) {
            let peak =
                |row: &Option<PhaseRow>| row.as_ref().map_or_else(String::new, |row| format_bytes(row.peak_bytes));
            let delta = pair.delta().map_or_else(String::new, format_signed_bytes);
            let step = pair.steps().unwrap_or_else(|| "-".to_owned());
            table.push(vec![step, name.clone(), peak(&pair.a), peak(&pair.b), delta]);
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
            Column::text("").optional(),
        ]);
        let mut table = Table::new(columns);
        let mut row = |mut names: Vec<String>, [a, b]: [u64; 2], [change, each]: [String; 2]| {
            names.resize(keys.len(), String::new());
            names.extend([
                format_bytes(a),
                format_bytes(b),
                format_signed_bytes(i128::from(b) - i128::from(a)),
                change,
                each,
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
            let each = match group.members.len() {
                0 => String::new(),
                members => format!("{} modules", format_count(members as u64)),
            };
            row(group.key.clone(), [group.a_bytes, group.b_bytes], [change, each]);
        }
        if self.comparison.diff.rest_groups > 0 {
            row(
                vec![count_of(self.comparison.diff.rest_groups, "more group")],
                self.comparison.diff.rest_bytes,
                Default::default(),
            );
        }
        row(vec!["total".to_owned()], [self.comparison.diff.a_bytes, self.comparison.diff.b_bytes], Default::default());
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
        let is_by_origin = self.arguments.by.0.iter().any(|key| matches!(key, GroupKey::Scope | GroupKey::Op));
        if let Some((keys, names)) = origin_keys(self.traces[0]).filter(|_| !is_by_origin) {
            return next_with(&["diff"], &files, &["--by", keys], &given, &format!("for the {names} behind it"));
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
pub fn missing_step(at: DiffAt, side: usize, input: &Input, device: DeviceId) -> Result<Failure, Failure> {
    let rows = input.ask(|source, watch| stages(source, device, Metric::Requested, watch))?;
    let steps = steps_of(&rows);
    let have = match (steps.first(), steps.last()) {
        (Some(first), Some(last)) if first != last => format!("it has steps {first} to {last}"),
        (Some(one), _) => format!("it has step {one} only"),
        _ => "it has no steps".to_owned(),
    };
    let which = ["A", "B"][side];
    Ok(Failure::Usage(format!("{} of {which}: the recording has no such step; {have}", ComparedAt(at))))
}

/// Returns the compared moments of both sides, of two recordings or, if `is_one`, of that one.
pub fn moments_of(
    [at, at_b]: [Option<DiffAt>; 2],
    is_one: bool,
    (input, device): (&Input, DeviceId),
) -> Result<[DiffAt; 2], Failure> {
    if !is_one {
        let at = at.unwrap_or_default();
        return Ok([at, at_b.unwrap_or(at)]);
    }
    match (at, at_b) {
        (Some(a), Some(b)) => Ok([a, b]),
        (Some(DiffAt::Step(step)), None) => Ok([DiffAt::Step(step), DiffAt::Step(step.saturating_add(1))]),
        (Some(DiffAt::StepEnd(step)), None) => Ok([DiffAt::StepEnd(step), DiffAt::StepEnd(step.saturating_add(1))]),
        (None, None) => input.ask(|source, _| DiffAt::last_steps(source, device))?.ok_or_else(|| {
            let text = "cannot compare the last two steps: the recording has fewer than two whole steps; name a second \
                        recording, or two moments with --at and --at-b";
            Failure::Usage(text.to_owned())
        }),
        _ => Err(Failure::Usage("comparing two moments of one recording needs both --at and --at-b".to_owned())),
    }
}
