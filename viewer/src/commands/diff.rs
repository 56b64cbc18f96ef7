//! `highwater diff`: the differences between two recordings, or between two moments of one.

mod facts;
pub(super) mod ranks;

use std::collections::HashMap;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use highwater_analysis::diff::{Asked, Change, PhasePeak, Setting};
use highwater_analysis::peak::Query;
use highwater_analysis::{
    Comparison, Diff, DiffAt, DiffGroup, GroupKey, MatchKind, Metric, PhasePair, UnmatchedBlocks,
};
use highwater_app::figures::moment::when;
use highwater_app::report::{Column, Facts, Table, Value};
use highwater_snapshots::tables::Tables;
use highwater_snapshots::{DeviceId, Phase, StackId, Trace, count_of, format_bytes, format_count, format_signed_bytes};

use self::facts::difference;
use crate::args::values::{keys_help, metric_parser};
use crate::args::{BlockChoice, ComparedAt, FilesAndOptions, Form, GroupKeys, ModuleChoice};
use crate::commands::peak::missing_step;
use crate::input::{Input, answer_from, compared_devices, on_device, origin_keys, phrase};
use crate::output::{Failure, Page, Report, Status, caveats, key_columns, named, sum_names};

const TOP: usize = 20;

/// Arguments of `highwater diff`.
#[derive(Clone, Debug, Args)]
pub struct DiffArguments {
    /// First recording; `-` is standard input. Or a folder of ranks: its outlier is compared with a typical rank
    #[arg(value_name = "A")]
    pub a: PathBuf,
    /// Second recording; without it, two steps of the first are compared. Or a second folder, compared rank by rank
    #[arg(value_name = "B")]
    pub b: Option<PathBuf>,
    /// Moment to compare: peak, end, step:N (the peak of step N) or step-end:N [default: peak; of one recording, the
    /// ends of its last two whole steps]
    #[arg(long, value_name = "MOMENT")]
    pub at: Option<ComparedAt>,
    /// Moment of B [default: as --at; of one recording, the step after it]
    #[arg(long, value_name = "MOMENT")]
    pub at_b: Option<ComparedAt>,
    /// Memory total
    #[arg(long, value_name = "M", default_value = "requested", value_parser = metric_parser())]
    pub metric: Metric,
    /// Device N of A [default: the one that ran out of memory, else the one with the highest peak]
    #[arg(long, value_name = "N")]
    pub device: Option<u16>,
    /// Device N of B [default: as --device; without it, of B the one that ran out of memory, else the one with the
    /// highest peak]
    #[arg(long, value_name = "N")]
    pub device_b: Option<u16>,
    /// The keys by which blocks are grouped, outermost first.
    #[arg(help = keys_help(" [default: category; of reserved memory pool,size]"))]
    #[arg(long, value_name = "KEYS", hide_default_value = true, default_value_t = GroupKeys(vec![GroupKey::Category]))]
    #[arg(default_value_if("metric", "reserved", "pool,size"))]
    pub by: GroupKeys,
    /// Number of groups to list, the largest differences first; the others are summed up
    #[arg(long, value_name = "K", default_value_t = TOP)]
    pub top: usize,
    /// Number of single blocks to list that only one side has
    #[arg(long = "blocks", value_name = "K", default_value_t = 0)]
    pub lone_blocks: usize,
    /// Whether each of several identical modules has its own row.
    #[command(flatten)]
    pub modules: ModuleChoice,
    /// The blocks that count; all by default.
    #[command(flatten)]
    pub blocks: BlockChoice,
    /// The output format.
    #[command(flatten)]
    pub form: Form,
}

impl DiffArguments {
    pub(crate) fn given(&self) -> FilesAndOptions {
        let files: Vec<&Path> = std::iter::once(&self.a).chain(&self.b).map(AsRef::as_ref).collect();
        let given = FilesAndOptions::of(&self.a).about(&files).with("at", self.at.as_ref().map(ComparedAt::to_string));
        let given = given.with("at-b", self.at_b.as_ref().map(ComparedAt::to_string)).with("device", self.device);
        let given = given.with("device-b", self.device_b).metric(self.metric);
        given.blocks(&self.blocks)
    }
}

pub(crate) fn run(arguments: &DiffArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    if arguments.a.is_dir() || arguments.b.as_ref().is_some_and(|b| b.is_dir()) {
        return ranks::run(arguments, page);
    }
    answer_from(&arguments.a, &arguments.blocks.categories, |first| {
        let Some(b) = &arguments.b else { return diff_of([first, first], arguments, page) };
        answer_from(b, &arguments.blocks.categories, |second| diff_of([first, second], arguments, page))
    })
}

fn diff_of(inputs: [&Input; 2], arguments: &DiffArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    let report = DiffReport::of(inputs, arguments)?;
    if arguments.form.is_text() {
        let is_one = arguments.b.is_none();
        caveats::lead(inputs[0].facts(), if is_one { "" } else { "A" }, page)?;
        if !is_one {
            caveats::lead(inputs[1].facts(), "B", page)?;
        }
    }
    report.write(arguments.form, page)?;
    Ok(Status::Fine)
}

/// Describes how a group was matched, and its change unless the figures show it.
fn change_text(group: &DiffGroup) -> String {
    let change = match group.change() {
        Change::Same | Change::Grown | Change::Shrunk => "",
        change => change.name(),
    };
    match group.match_kind {
        MatchKind::Equal => change.to_owned(),
        match_kind => format!("{change} ({})", match_kind.name()).trim_start().to_owned(),
    }
}

/// Returns the identical modules combined in a group, each with the same share of all sums; `None` for a single module.
fn members_of(group: &DiffGroup, keys: &[GroupKey]) -> Option<Vec<Value>> {
    let count = group.members.len() as u64;
    let member = |values: &Vec<String>| {
        Value::Map(vec![
            ("key", values.join(", ").into()),
            ("keys", named(keys, values).into()),
            ("a_bytes", (group.bytes[0] / count).into()),
            ("b_bytes", (group.bytes[1] / count).into()),
            ("delta_bytes", (group.delta() / i128::from(count)).into()),
            ("a_blocks", (group.blocks[0] / count).into()),
            ("b_blocks", (group.blocks[1] / count).into()),
            ("change", Value::of(group.change()).into()),
            ("likeness", Value::of(group.match_kind).into()),
        ])
    };
    (count > 0).then(|| group.members.iter().map(member).collect())
}

const MAX_PHASES: usize = 12;

/// The report of `highwater diff`.
#[derive(Debug)]
pub struct DiffReport<'a> {
    traces: [&'a Trace; 2],
    arguments: &'a DiffArguments,
    comparison: Comparison,
    /// The individual blocks that only one side has, if requested.
    lone: Option<UnmatchedBlocks>,
    /// Whether each recording ends with an out-of-memory error on its device.
    ran_out: [bool; 2],
}

impl<'a> DiffReport<'a> {
    /// Compares two recordings, or a recording with itself.
    pub fn of(inputs: [&'a Input; 2], arguments: &'a DiffArguments) -> Result<Self, Failure> {
        let traces = inputs.map(Input::facts);
        let metric = arguments.metric;
        let wanted = [arguments.device, arguments.device_b.or(arguments.device)];
        let devices = compared_devices(inputs, wanted, metric)?;
        let wanted = [arguments.at, arguments.at_b].map(|at| at.map(|at| at.0));
        let at = moments_of(wanted, arguments.b.is_none(), (inputs[0], devices[0]))?;
        let find = |side: usize| {
            let found = inputs[side].ask(|source, _| at[side].find(source, devices[side], metric))?;
            found.map_or_else(|| Err(missing_at(at[side], side, inputs[side], devices[side])?), Ok)
        };
        let query = Query {
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
            lone = Some(UnmatchedBlocks::of(asked, &moments, &query, arguments.lone_blocks));
        }
        let comparison = inputs[0].ask(|a, watch| Comparison::of([a, &inputs[1].source], moments, &query, watch))?;
        let mut ran_out = [false; 2];
        for side in [0, 1] {
            let found = inputs[side].ask(|source, _| source.final_oom())?;
            ran_out[side] = found.is_some_and(|(_, device)| device == devices[side]);
        }
        Ok(Self { traces, arguments, comparison, lone, ran_out })
    }

    /// Returns whether no group differs.
    fn is_equal(&self) -> bool {
        let diff = &self.comparison.diff;
        diff.rest_groups == 0 && diff.groups.iter().all(|group| group.bytes[0] == group.bytes[1])
    }

    fn print_settings(&self, page: &mut Page<'_>) -> io::Result<()> {
        let differing: Vec<&Setting> = self.comparison.settings.iter().filter(|setting| setting.differs()).collect();
        if differing.is_empty() {
            return Ok(());
        }
        page.gap()?;
        let value = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
        let columns = [
            Column::text("name", "set differently", |row| differing[row].name.clone()),
            Column::text("a", "in A", |row| value(&differing[row].a)).wrapped(),
            Column::text("b", "in B", |row| value(&differing[row].b)).wrapped(),
        ];
        page.table(&Table::new(differing.len(), columns))
    }

    fn totals(&self) -> Table<'_> {
        let totals = &self.comparison.totals;
        let columns = [
            Column::text("total", "total", |row| totals[row].0.name().replace('_', " ")),
            Column::bytes("a_bytes", "A", |row| totals[row].1[0]),
            Column::bytes("b_bytes", "B", |row| totals[row].1[1]),
            Column::difference("delta_bytes", "difference", |row| difference(totals[row].1)),
        ];
        Table::new(totals.len(), columns)
    }

    /// Prints the phases whose peaks differ, in order. If there are many, prints only the phases with the largest
    /// differences.
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
            page.gap()?.line(&alone.join(" "))?;
        }
        if differing.is_empty() {
            return Ok(());
        }
        let mut largest: Vec<usize> = (0..differing.len()).collect();
        largest.sort_by_key(|row| std::cmp::Reverse(size(differing[*row].1)));
        largest.truncate(MAX_PHASES);
        largest.sort_unstable();
        page.gap()?;
        let which = match differing.len() - largest.len() {
            0 => String::new(),
            _ => format!(" The {} that differ most:", largest.len()),
        };
        let count = count_of(differing.len() as u64, "differing phase");
        let alone: String = alone.iter().map(|text| format!(" {text}")).collect();
        page.line(&format!("Peaks of {count}.{alone}{which}"))?;
        let listed: Vec<&(String, &PhasePair)> = largest.into_iter().map(|row| &differing[row]).collect();
        let peak = |side: Option<PhasePeak>| side.map(|side| side.peak_bytes);
        let columns = [
            Column::text("step", "step", |row| listed[row].1.steps().unwrap_or_else(|| "-".to_owned())),
            Column::text("phase", "phase", |row| listed[row].0.clone()),
            Column::bytes("a_peak_bytes", "A", |row| peak(listed[row].1.a)),
            Column::bytes("b_peak_bytes", "B", |row| peak(listed[row].1.b)),
            Column::difference("delta_bytes", "difference", |row| listed[row].1.delta()),
        ];
        page.table(&Table::new(listed.len(), columns))
    }

    fn print_match_kind(&self, page: &mut Page<'_>) -> io::Result<()> {
        let loosely =
            self.comparison.diff.groups.iter().filter(|group| group.match_kind == MatchKind::Alike).count() as u64;
        if loosely > 0 {
            let s = if loosely == 1 { " was" } else { "s were" };
            page.warning(&format!(
                "{loosely} group{s} matched loosely: functions were inserted into the stacks, or renamed."
            ))?;
        }
        Ok(())
    }

    /// Returns the stack of a group, with the tables that contain it: that in B, which also determines the group's
    /// name, or that in A if the group has no blocks in B.
    fn stack_of(&self, group: &DiffGroup) -> (&Tables, StackId) {
        let side = usize::from(group.stacks[1].is_some());
        (&self.traces[side].tables, group.stacks[side])
    }

    fn hint(&self) -> String {
        let (a, given) = (self.arguments.a.as_path(), self.arguments.given());
        if self.is_equal() {
            return given.about(&[a]).next("explain", &[], "for ways to lower the peak");
        }
        // Most of reserved memory may be free, which has no origin.
        let is_reserved = self.arguments.metric == Metric::Reserved;
        if is_reserved && !self.arguments.by.0.contains(&GroupKey::Pool) {
            return given.next("diff", &["--by", "pool,size"], "for the segments behind it");
        }
        let is_by_code = self.arguments.by.0.iter().any(|key| matches!(key, GroupKey::Frame | GroupKey::Stack));
        let is_by_origin = self.arguments.by.0.iter().any(|key| matches!(key, GroupKey::Scope | GroupKey::Op));
        if let Some((keys, names)) = origin_keys(self.traces[0]).filter(|_| !is_by_origin && !is_reserved) {
            return given.next("diff", &["--by", keys], &format!("for the {names} behind it"));
        }
        if is_by_code || is_reserved {
            // The side that takes more.
            let is_a = self.comparison.diff.a.bytes >= self.comparison.diff.b.bytes;
            let larger = self.arguments.b.as_deref().filter(|_| !is_a).unwrap_or(a);
            return given.about(&[larger]).next("explain", &[], "for ways to lower the peak");
        }
        given.next("diff", &["--by", "frame"], "for the lines of code behind it")
    }
}

impl Report for DiffReport<'_> {
    fn facts(&self) -> Facts<'_> {
        facts::facts(self.traces, self.arguments, &self.comparison, self.table(), self.lone.as_ref())
    }

    fn table(&self) -> Table<'_> {
        let diff = &self.comparison.diff;
        let (keys, groups) = (self.arguments.by.0.as_slice(), &diff.groups);
        let sums = sum_names(diff.rest_groups);
        let rows = groups.len() + sums.len();
        let bytes = move |row: usize| match groups.get(row) {
            Some(group) => group.bytes,
            None if row + 1 < rows => diff.rest_bytes,
            None => diff.bytes,
        };
        let of = move |row: usize| groups.get(row);
        let each = move |row: usize| match of(row).map_or(0, |group| group.members.len()) {
            0 => String::new(),
            members => format!("{} modules", format_count(members as u64)),
        };
        let members = move |row: usize| Value::or_absent(of(row).and_then(|group| members_of(group, keys)));
        let names = groups.iter().map(|group| (&group.key, self.stack_of(group)));
        let mut columns = key_columns(keys, names, &sums);
        columns.extend([
            Column::bytes("a_bytes", "A", move |row| bytes(row)[0]),
            Column::bytes("b_bytes", "B", move |row| bytes(row)[1]),
            Column::difference("delta_bytes", "difference", move |row| difference(bytes(row))),
            Column::count("a_blocks", "", move |row| of(row).map(|group| group.blocks[0])).in_files(),
            Column::count("b_blocks", "", move |row| of(row).map(|group| group.blocks[1])).in_files(),
            Column::text("change", "", move |row| of(row).map(|group| Value::of(group.change())))
                .shown(move |row| of(row).map_or_else(String::new, change_text))
                .optional(),
            Column::text("likeness", "", move |row| of(row).map(|group| Value::of(group.match_kind))).in_files(),
            Column::shown_alone("", false, each).optional(),
            Column::nested("members", members),
        ]);
        Table::new(rows, columns).with_sums(sums.len())
    }

    fn print(&self, page: &mut Page<'_>) -> io::Result<()> {
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
        // Two moments of one recording are not affected by it.
        for (side, ran_out) in [("A", self.ran_out[0]), ("B", self.ran_out[1])] {
            if ran_out && self.arguments.b.is_some() {
                page.warning(&format!("{side} ran out of memory: the memory needed later is not recorded."))?;
            }
        }
        self.print_settings(page)?;
        if self.arguments.b.is_some() {
            page.gap()?.line("Peaks of the whole recordings:")?;
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
            page.line(if self.is_equal() { "No group differs." } else { "Differences:" })?;
        }
        if !self.is_equal() {
            page.table(&self.table())?;
        }
        self.print_match_kind(page)?;
        if let Some(lone) = &self.lone {
            page.gap()?.line(&facts::blocks_heading(lone))?;
            page.table(&facts::blocks_table(lone))?;
        }
        if self.arguments.b.is_some() {
            caveats::print_of(self.traces[0], "A", page)?;
            caveats::print_of(self.traces[1], "B", page)?;
        } else {
            caveats::print(self.traces[0], page)?;
        }
        page.gap()?.hint(&self.hint())
    }
}

/// Returns the error for a recording of `side` that lacks the step of `at`.
pub(crate) fn missing_at(at: DiffAt, side: usize, input: &Input, device: DeviceId) -> Result<Failure, Failure> {
    missing_step(&format!("{} of {}", ComparedAt(at), ["A", "B"][side]), input, device)
}

/// Returns the moments to compare; `is_one` is whether both are of one recording, of which `input` is read.
pub(crate) fn moments_of(
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
