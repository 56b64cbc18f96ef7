//! `highwater phases`: memory by step and phase.

use std::collections::BTreeSet;
use std::io;

use clap::Args;
use highwater_analysis::phases::{peak_of, phases};
use highwater_analysis::{Metric, Moment, PhaseRow};
use highwater_app::figures::moment::how_much_and_when;
use highwater_app::report::{Column, Fact, Facts, Table, Value, bar};
use highwater_snapshots::{DeviceId, Trace, count_of, format_bytes};

use crate::args::values::metric_parser;
use crate::args::{BlockChoice, DeviceChoice, FilesAndOptions, Source};
use crate::commands::peak::missing_step;
use crate::input::{Input, answer_counting, choose_device, on_device, origin_keys, where_on};
use crate::output::{Failure, Page, Report, Status, answer, caveats, problem_texts, trust};

/// Arguments of `highwater phases`.
#[derive(Clone, Debug, Args)]
pub struct PhasesArguments {
    /// The recording, and the output format.
    #[command(flatten)]
    pub source: Source,
    /// The device that the answer is about.
    #[command(flatten)]
    pub device: DeviceChoice,
    /// First step to list [default: all rows, also those outside of steps]
    #[arg(long, value_name = "N")]
    pub from_step: Option<u32>,
    /// Last step to list
    #[arg(long, value_name = "M")]
    pub to_step: Option<u32>,
    /// Memory total
    #[arg(long, value_name = "M", default_value = "requested", value_parser = metric_parser())]
    pub metric: Metric,
    /// The blocks that count; by default all.
    #[command(flatten)]
    pub blocks: BlockChoice,
}

impl PhasesArguments {
    pub(crate) fn given(&self) -> FilesAndOptions {
        let given = FilesAndOptions::of(&self.source.file).with("device", self.device.device).metric(self.metric);
        given.blocks(&self.blocks)
    }

    fn has_range(&self) -> bool {
        self.from_step.is_some() || self.to_step.is_some()
    }

    fn is_listed(&self, row: &PhaseRow) -> bool {
        let steps = self.from_step.unwrap_or(0)..=self.to_step.unwrap_or(u32::MAX);
        !self.has_range() || row.step.is_some_and(|step| steps.contains(&step))
    }
}

pub(crate) fn run(arguments: &PhasesArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    let filter = &arguments.blocks.filter.filter;
    answer_counting(&arguments.source.file, &arguments.blocks.categories, filter, |input| {
        let report = PhasesReport::of(input, arguments)?;
        answer(input.facts(), arguments.source.form, page, &report)
    })
}

/// The report of `highwater phases`.
#[derive(Debug)]
pub struct PhasesReport<'a> {
    trace: &'a Trace,
    arguments: &'a PhasesArguments,
    device: DeviceId,
    rows: Vec<PhaseRow>,
    /// The peak, as reported by `peak` and `info`.
    peak: Moment,
}

const NAMED: usize = 3;

impl<'a> PhasesReport<'a> {
    /// Computes the report of a recording, counting only the blocks of the filter.
    pub fn of(input: &'a Input, arguments: &'a PhasesArguments) -> Result<Self, Failure> {
        let (trace, metric) = (input.facts(), arguments.metric);
        let device = choose_device(trace, arguments.device.device)?;
        input.check_metric(device, metric)?;
        check_filter(arguments)?;
        let report = input.ask(|source, watch| {
            let rows = source.stages(device, metric, watch)?;
            let peak = source.moment(device, metric, peak_of(&rows).map(|(event, _)| event))?;
            let mut rows = phases(trace, device, metric, rows);
            rows.retain(|row| arguments.is_listed(row));
            Ok(Self { trace, arguments, device, rows, peak })
        })?;
        if report.rows.is_empty() && arguments.has_range() {
            let option = |name: &str, step: Option<u32>| step.map(|step| format!("{name} {step}"));
            let options = [option("--from-step", arguments.from_step), option("--to-step", arguments.to_step)];
            let options: Vec<String> = options.into_iter().flatten().collect();
            return Err(missing_step(&options.join(" "), input, device)?);
        }
        Ok(report)
    }
}

impl Report for PhasesReport<'_> {
    fn facts(&self) -> Facts<'_> {
        Facts::new([
            ("device", self.device.0.into()),
            ("metric", Value::of(self.arguments.metric).into()),
            ("filter", Fact::or_absent(self.arguments.blocks.filter.stated())),
            ("rows", self.table().into()),
            ("trust", trust(self.trace).into()),
            ("problems", problem_texts(self.trace).into()),
        ])
    }

    fn table(&self) -> Table<'_> {
        rows_table(&self.rows, self.rows.len(), &self.peak, !self.trace.spans.is_all_setup())
    }

    fn print(&self, page: &mut Page<'_>) -> io::Result<()> {
        if self.rows.is_empty() {
            let on = on_device(self.trace, self.device);
            page.headline(&format!("{on}No phases: nothing was allocated or freed while events were recorded."))?;
            return caveats::print(self.trace, page);
        }
        let steps: BTreeSet<u32> = self.rows.iter().filter_map(|row| row.step).collect();
        let phases = count_of(self.rows.len() as u64, "phase");
        let is_marked = !self.trace.spans.is_all_setup();
        let counts = match steps.len() as u64 {
            _ if !is_marked => "no phases or steps marked".to_owned(),
            0 => format!("{phases}, no steps marked"),
            steps => format!("{phases} in {}", count_of(steps, "step")),
        };
        let counts = if self.arguments.has_range() { format!("{counts} listed") } else { counts };
        let on = where_on(self.trace, self.device);
        page.headline(&format!("Peak{on}: {}; {counts}.", how_much_and_when(&self.peak)))?;
        if let Some(filter) = self.arguments.blocks.filter.stated() {
            page.line(&format!("Counting only blocks with {filter}."))?;
        }
        page.gap()?.table(&self.table())?;
        caveats::print(self.trace, page)?;
        page.gap()?;
        let given = self.arguments.given();
        let keys = origin_keys(self.trace).map_or("frame", |(keys, _)| keys);
        let mut options = vec!["--by", keys];
        // The peak of some blocks may be at another moment than that of all.
        let is_filtered = self.arguments.blocks.filter.stated().is_some();
        let at = self.peak.number().filter(|_| is_filtered).map(|event| event.to_string());
        options.extend(at.iter().flat_map(|at| ["--at", at]));
        page.hint(&given.next("peak", &options, "to see what is using memory at the peak"))
    }
}

/// Returns an error if blocks are selected although the total is not a sum over blocks.
fn check_filter(arguments: &PhasesArguments) -> Result<(), Failure> {
    let metric = arguments.metric;
    if arguments.blocks.filter.stated().is_some() && !metric.is_of_blocks() {
        let text = format!("--where selects blocks, but {metric} is not a sum over blocks; use requested or allocated");
        return Err(Failure::Usage(text));
    }
    Ok(())
}

/// Returns a table of the first `shown` rows, whose sizes are of the total `peak.metric`. If there are several rows, an
/// arrow marks the one that contains the peak. If the recording has no phases or steps (`is_marked` is false), the phase
/// is displayed as `-`.
pub(crate) fn rows_table<'a>(rows: &'a [PhaseRow], shown: usize, peak: &Moment, is_marked: bool) -> Table<'a> {
    let highest = rows.iter().map(|row| row.peak_bytes).max().unwrap_or(0);
    let is_of_peak = |row: &PhaseRow| match peak.number() {
        Some(event) => (row.first..=row.last).contains(&event),
        None => row.peak_bytes == highest,
    };
    let marked = rows.iter().position(is_of_peak).filter(|_| rows.len() > 1);
    let metric = peak.metric;
    let step = |row: usize| rows[row].step.map_or_else(|| "-".to_owned(), |step| step.to_string());
    let phase = move |row: usize| if is_marked { rows[row].phase.name() } else { "-" }.to_owned();
    let bar = move |row: usize| {
        let mark = if Some(row) == marked { " ◀" } else { "" };
        format!("{}{mark}", bar(rows[row].peak_bytes, highest, 6))
    };
    let by_category = |row: usize| {
        Value::Map(
            rows[row].at_peak.ranked().iter().map(|(category, bytes)| (category.name(), (*bytes).into())).collect(),
        )
    };
    let columns = [
        Column::number("step", "step", |row| rows[row].step).shown(step),
        Column::text("phase", "phase", |row| rows[row].phase.name()).shown(phase),
        Column::number("first_event", "", |row| rows[row].first).in_files(),
        Column::number("last_event", "", |row| rows[row].last).in_files(),
        Column::bytes("start_bytes", "start", |row| rows[row].start_bytes),
        Column::bytes("peak_bytes", "peak", |row| rows[row].peak_bytes),
        Column::shown_alone("", false, bar).optional(),
        Column::number("peak_event", "", |row| rows[row].peak_event).in_files(),
        Column::bytes("end_bytes", "end", |row| rows[row].end_bytes),
        Column::text("at_peak", "at its peak", by_category).shown(move |row| made_of(&rows[row], metric)).entries(),
    ];
    Table::new(shown, columns)
}

/// Formats the composition of a peak, largest part first, including bytes outside of blocks.
fn made_of(row: &PhaseRow, metric: Metric) -> String {
    let by_category = row.at_peak.ranked();
    let in_blocks: u64 = by_category.iter().map(|(_, bytes)| bytes).sum();
    let outside = match metric {
        Metric::Reserved => "(free in segments)",
        _ => "(outside blocks)",
    };
    let mut parts: Vec<(&str, u64)> = by_category.iter().map(|(category, bytes)| (category.name(), *bytes)).collect();
    parts.push((outside, row.peak_bytes.saturating_sub(in_blocks)));
    parts.retain(|(_, bytes)| *bytes > 0);
    parts.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let rest: u64 = parts.iter().skip(NAMED).map(|(_, bytes)| bytes).sum();
    let listed = parts.iter().take(NAMED).copied().chain((rest > 0).then_some(("others", rest)));
    let texts: Vec<String> = listed.map(|(name, bytes)| format!("{name} {}", format_bytes(bytes))).collect();
    texts.join(", ")
}
