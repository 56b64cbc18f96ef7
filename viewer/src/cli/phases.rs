//! The report of `highwater phases`: memory by step and phase.

use std::collections::BTreeSet;
use std::io;

use highwater_analysis::phases::{CategoryBytes, PhaseRow, peak_of, phases, stages};
use highwater_analysis::{Metric, Moment};
use highwater_app::figures::moment::{count_of, how_much_and_when};
use highwater_snapshots::units::format_bytes;
use highwater_snapshots::{DeviceId, Trace};
use serde::{Serialize, Serializer};

use crate::args::PhasesArguments;
use crate::cli::input::devices::{on_device, where_on};
use crate::cli::input::recording::{choose_device, origin_keys};
use crate::cli::input::source::Input;
use crate::cli::output::caveats::{self, TrustFigures, problem_texts};
use crate::cli::output::outcome::Failure;
use crate::cli::output::page::Page;
use crate::cli::output::shell::next_with;
use crate::cli::output::table::{Column, bar};

/// The report, as text and as JSON.
#[derive(Debug)]
pub struct PhasesReport<'a> {
    trace: &'a Trace,
    arguments: &'a PhasesArguments,
    device: DeviceId,
    rows: Vec<PhaseRow>,
    /// The peak, which `peak` and `info` report too.
    peak: Moment,
}

/// Maximum number of categories listed in one cell.
const NAMED: usize = 3;

impl<'a> PhasesReport<'a> {
    /// Computes the report of a recording, of which only the blocks of the filter count.
    pub fn of(input: &'a Input, arguments: &'a PhasesArguments) -> Result<Self, Failure> {
        let (trace, metric) = (input.facts(), arguments.metric);
        let device = choose_device(trace, arguments.device.device)?;
        input.check_metric(device, metric)?;
        check_filter(arguments)?;
        input.ask(|source, watch| {
            let rows = stages(source, device, metric, watch)?;
            let peak = source.moment(device, metric, peak_of(&rows).map(|(event, _)| event))?;
            Ok(Self { trace, arguments, device, rows: phases(source, device, metric, rows), peak })
        })
    }

    /// Returns the JSON object.
    pub fn figures(&self) -> PhasesFigures<'_> {
        PhasesFigures {
            device: self.device.0,
            metric: self.arguments.metric,
            filter: self.arguments.blocks.filter.stated().map(str::to_owned),
            rows: RowFigures(&self.rows),
            trust: TrustFigures::of(self.trace),
            problems: problem_texts(self.trace),
        }
    }

    /// Prints the report as text.
    pub fn print(&self, page: &mut Page<'_>) -> io::Result<()> {
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
        let on = where_on(self.trace, self.device);
        page.headline(&format!("Peak{on}: {}; {counts}.", how_much_and_when(&self.peak)))?;
        if let Some(filter) = self.arguments.blocks.filter.stated() {
            page.line(&format!("Counting only blocks with {filter}."))?;
        }
        page.gap()?;
        print_rows(&self.rows, self.rows.len(), &self.peak, is_marked, page)?;
        caveats::print(self.trace, page)?;
        page.gap()?;
        let (files, given) = ([self.arguments.source.file.as_path()], self.arguments.given());
        let keys = origin_keys(self.trace).map_or("frame", |(keys, _)| keys);
        let mut options = vec!["--by", keys];
        // The peak of some blocks alone is at another moment than the whole one.
        let is_filtered = self.arguments.blocks.filter.stated().is_some();
        let at = self.peak.number().filter(|_| is_filtered).map(|event| event.to_string());
        options.extend(at.iter().flat_map(|at| ["--at", at]));
        page.hint(&next_with(&["peak"], &files, &options, &given, "for what is using memory at the peak"))
    }
}

/// Returns an error if blocks are selected for a total that is not a sum over blocks.
fn check_filter(arguments: &PhasesArguments) -> Result<(), Failure> {
    let metric = arguments.metric;
    if arguments.blocks.filter.stated().is_some() && !metric.is_of_blocks() {
        let text = format!("--where selects blocks, but {metric} is not a sum over blocks; use requested or allocated");
        return Err(Failure::Usage(text));
    }
    Ok(())
}

/// Prints the first `shown` of the rows, whose sizes are of the total of `peak`, as a table. An arrow marks the row with
/// the event of the peak. Unless the recording `is_marked`, its only phase has no name.
pub fn print_rows(
    rows: &[PhaseRow],
    shown: usize,
    peak: &Moment,
    is_marked: bool,
    page: &mut Page<'_>,
) -> io::Result<()> {
    let highest = rows.iter().map(|row| row.peak_bytes).max().unwrap_or(0);
    let is_of_peak = |row: &PhaseRow| match peak.number() {
        Some(event) => (row.first..=row.last).contains(&event),
        None => row.peak_bytes == highest,
    };
    let marked = rows.iter().position(is_of_peak);
    let columns = vec![
        Column::number("step"),
        Column::text("phase"),
        Column::number("start"),
        Column::number("peak"),
        Column::text("").optional(),
        Column::number("end"),
        Column::text("at its peak").entries(),
    ];
    let cells = |(number, row): (usize, &PhaseRow)| {
        let mark = if Some(number) == marked && rows.len() > 1 { " ◀" } else { "" };
        vec![
            row.step.map_or_else(|| "-".to_owned(), |step| step.to_string()),
            if is_marked { row.phase.name() } else { "-" }.to_owned(),
            format_bytes(row.start_bytes),
            format_bytes(row.peak_bytes),
            format!("{}{mark}", bar(row.peak_bytes, highest, 6)),
            format_bytes(row.end_bytes),
            made_of(row, peak.metric),
        ]
    };
    page.long_table(columns, || rows.iter().take(shown).enumerate().map(cells))
}

/// Formats the composition of a peak, largest part first, including the bytes outside blocks.
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

/// The rows of the JSON object: each is converted when it is written, since a long recording has a million.
#[derive(Debug)]
pub struct RowFigures<'a>(pub &'a [PhaseRow]);

impl Serialize for RowFigures<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|row| PhaseFigures {
            step: row.step,
            phase: row.phase.name(),
            first_event: row.first,
            last_event: row.last,
            start_bytes: row.start_bytes,
            peak_bytes: row.peak_bytes,
            peak_event: row.peak_event,
            end_bytes: row.end_bytes,
            at_peak: row.at_peak,
        }))
    }
}

/// The object that `phases --json` prints.
#[derive(Debug, Serialize)]
pub struct PhasesFigures<'a> {
    device: u16,
    metric: Metric,
    #[serde(skip_serializing_if = "Option::is_none")]
    filter: Option<String>,
    rows: RowFigures<'a>,
    trust: TrustFigures,
    problems: Vec<String>,
}

/// One row of it.
#[derive(Debug, Serialize)]
struct PhaseFigures {
    step: Option<u32>,
    phase: &'static str,
    first_event: u64,
    last_event: u64,
    start_bytes: u64,
    peak_bytes: u64,
    peak_event: Option<u64>,
    end_bytes: u64,
    #[serde(serialize_with = "as_map")]
    at_peak: CategoryBytes,
}

fn as_map<S: Serializer>(bytes: &CategoryBytes, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(bytes.ranked().iter().map(|(category, bytes)| (category.name(), bytes)))
}
