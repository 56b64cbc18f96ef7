//! The report of `highwater info FOLDER`: the ranks of a run, the highest peak, outliers and missing ranks.

use std::collections::BTreeMap;
use std::io;

use highwater_analysis::{Metric, Totals};
use highwater_app::answers::outliers::{Middle, RULE};
use highwater_app::figures::moment::micros_since;
use highwater_app::figures::ranks::{COMPARED, Caveat, Outlier, headlines, limits, median, notes, outliers, passed_by};
use highwater_app::figures::requests::failure_text;
use highwater_app::files::fleet::{Fleet, Rank};
use highwater_snapshots::trace::Trust;
use highwater_snapshots::units::{format_bytes, format_count};
use serde::Serialize;

use crate::args::InfoArguments;
use crate::cli::input::recording::read_fleet;
use crate::cli::input::source::opener;
use crate::cli::output::outcome::{Failure, Status};
use crate::cli::output::page::Page;
use crate::cli::output::shell::next_with;
use crate::cli::output::table::{Column, Table};

/// Maximum number of missing ranks listed in the JSON object.
const MOST_MISSING: usize = 4096;

/// `highwater info` of a folder.
pub fn info(arguments: &InfoArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    let folder = &arguments.source.file;
    if let Some(device) = arguments.device {
        let text = format!(
            "--device {device}: a folder shows only the default device of each rank; use --device with one recording"
        );
        return Err(Failure::Usage(text));
    }
    let open = opener(&arguments.categories)?;
    let filter = &arguments.blocks.filter.filter;
    // Summaries count all blocks.
    let needs_whole = !filter.is_empty();
    let fleet = read_fleet(folder, |file, is_whole| Ok(open(file, is_whole || needs_whole)?.counting(filter)))?;
    let report = RanksReport { fleet: &fleet, arguments };
    if arguments.source.json {
        page.json(&report.figures())?;
    } else {
        report.print(page)?;
    }
    Ok(Status::Fine)
}

/// The report, as text and as JSON.
#[derive(Debug)]
struct RanksReport<'a> {
    fleet: &'a Fleet,
    arguments: &'a InfoArguments,
}

impl RanksReport<'_> {
    fn figures(&self) -> RanksFigures<'_> {
        let fleet = self.fleet;
        let missing = fleet.missing();
        let highest = fleet.highest(Metric::Allocated).map(|row| &fleet.ranks[row]);
        RanksFigures {
            folder: &fleet.name,
            world_size: fleet.world_size(),
            filter: self.arguments.blocks.filter.stated(),
            highest: highest.and_then(Rank::number),
            highest_file: highest.map(|rank| rank.path.display().to_string()),
            rule: RULE,
            outliers: COMPARED.into_iter().flat_map(|metric| outliers(fleet, metric)).collect(),
            median: Metric::ALL.map(|metric| (metric.name(), median(fleet, metric))).into(),
            missing: missing.iter().cloned().flatten().take(MOST_MISSING).collect(),
            missing_count: missing.iter().map(|gap| u64::from(gap.end() - gap.start()) + 1).sum(),
            ranks: fleet.ranks.iter().map(RankFigures::of).collect(),
            unread: fleet.unread.iter().map(|(path, why)| Unread { file: path.display().to_string(), why }).collect(),
            skipped: fleet.skipped,
            problems: fleet.problems(),
        }
    }

    fn print(&self, page: &mut Page<'_>) -> io::Result<()> {
        let fleet = self.fleet;
        for sentence in headlines(fleet) {
            page.headline(&sentence)?;
        }
        if let Some(filter) = self.arguments.blocks.filter.stated() {
            let but = "reserved, and the numbers of events, are of the whole recordings";
            page.line(&format!("Counting only blocks with {filter}; {but}."))?;
        }
        if fleet.ranks.len() > 1 {
            page.hint(&format!("{RULE}."))?;
        }
        let (warnings, notes): (Vec<Caveat>, Vec<Caveat>) = limits(fleet).into_iter().partition(|one| one.is_warning);
        warnings.iter().try_for_each(|one| page.warning(&one.text))?;
        page.gap()?;
        page.table(&self.table())?;
        if !notes.is_empty() || fleet.skipped > 0 {
            page.gap()?;
        }
        notes.iter().try_for_each(|one| page.hint(&one.text))?;
        if fleet.skipped > 0 {
            page.line(&passed_by(fleet.skipped))?;
        }
        page.gap()?;
        let (folder, given) = (self.arguments.source.file.as_path(), self.arguments.given());
        let failed = fleet.ranks.iter().find(|rank| rank.failure.is_some());
        page.hint(&match (failed, fleet.ranks.as_slice()) {
            (Some(rank), _) => next_with(&["oom"], &[&rank.path], &[], &given, "for why memory ran out"),
            (None, [one]) => next_with(&["peak"], &[&one.path], &[], &given, "for what is using memory at the peak"),
            (None, _) => next_with(&["diff"], &[folder], &[], &given, "for what makes the difference between ranks"),
        })
    }

    fn table(&self) -> Table {
        let mut table = Table::new(vec![
            Column::number("rank"),
            Column::text("file"),
            Column::text("host").cut().optional(),
            Column::number("events").optional(),
            Column::number("allocated"),
            Column::number("reserved"),
            Column::number("at event").optional(),
            Column::number("step").optional(),
            Column::text("phase").optional(),
            Column::number("end").optional(),
            Column::number("lost").optional(),
            Column::text("trust"),
            Column::text("").cut(),
        ]);
        let standings = COMPARED.map(|metric| self.fleet.standings(metric));
        for (row, rank) in self.fleet.ranks.iter().enumerate() {
            let peak = rank.peak(Metric::Allocated);
            let notes = notes(rank, &standings.each_ref().map(|standings| standings[row]));
            table.push(vec![
                rank.number().map_or_else(|| "-".to_owned(), |rank| rank.to_string()),
                rank.name.clone(),
                rank.header.host.clone(),
                format_count(rank.events),
                format_bytes(peak.bytes),
                format_bytes(rank.peak(Metric::Reserved).bytes),
                peak.number().map_or_else(|| "before".to_owned(), format_count),
                peak.step.map_or_else(|| "-".to_owned(), |step| step.to_string()),
                peak.phase.name().to_owned(),
                format_bytes(rank.main().summary.end.allocated),
                format_count(rank.trust.events_lost),
                if rank.is_complete() { "complete" } else { "limited" }.to_owned(),
                notes,
            ]);
        }
        table
    }
}

/// The object that `info --json` prints of a folder.
#[derive(Debug, Serialize)]
struct RanksFigures<'a> {
    folder: &'a str,
    world_size: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    filter: Option<&'a str>,
    /// The rank with the highest peak of allocated bytes.
    highest: Option<u32>,
    highest_file: Option<String>,
    rule: &'static str,
    outliers: Vec<Outlier>,
    median: BTreeMap<&'static str, Middle>,
    missing: Vec<u32>,
    missing_count: u64,
    ranks: Vec<RankFigures<'a>>,
    unread: Vec<Unread<'a>>,
    skipped: usize,
    problems: Vec<String>,
}

/// A file that could not be read.
#[derive(Debug, Serialize)]
struct Unread<'a> {
    file: String,
    why: &'a str,
}

/// One rank of it.
#[derive(Debug, Serialize)]
struct RankFigures<'a> {
    /// Null if unknown.
    rank: Option<u32>,
    /// `header`, `name` of the file, or null.
    rank_from: Option<&'static str>,
    file: String,
    host: &'a str,
    pid: u32,
    program: &'a str,
    world_size: Option<u32>,
    started_us: u64,
    events: u64,
    devices: usize,
    device: u16,
    device_name: &'a str,
    capacity_bytes: u64,
    peaks: BTreeMap<&'static str, RankPeak>,
    end: Totals,
    complete: bool,
    trust: &'a Trust,
    out_of_memory: Option<String>,
    problems: &'a [String],
    problem_count: usize,
}

/// The moment of a rank's peak.
#[derive(Debug, Serialize)]
struct RankPeak {
    bytes: u64,
    event: Option<u64>,
    time_us: Option<u64>,
    step: Option<u32>,
    phase: &'static str,
}

impl<'a> RankFigures<'a> {
    fn of(rank: &'a Rank) -> Self {
        let summary = &rank.main().summary;
        let started_us = rank.header.started_unix_us;
        let peaks = summary.peaks.iter().map(|peak| {
            let figures = RankPeak {
                bytes: peak.bytes,
                event: peak.number(),
                time_us: peak.time_ns.map(|time| micros_since(started_us, time)),
                step: peak.step,
                phase: peak.phase.name(),
            };
            (peak.metric.name(), figures)
        });
        Self {
            rank: rank.number(),
            rank_from: rank.origin.name(),
            file: rank.path.display().to_string(),
            host: &rank.header.host,
            pid: rank.header.pid,
            program: &rank.header.program,
            world_size: rank.header.world_size,
            started_us,
            events: rank.events,
            devices: rank.devices.len(),
            device: summary.device.0,
            device_name: &summary.name,
            capacity_bytes: summary.capacity_bytes,
            peaks: peaks.collect(),
            end: summary.end,
            complete: rank.is_complete(),
            trust: &rank.trust,
            out_of_memory: rank.failure.as_ref().map(failure_text),
            problems: &rank.problems,
            problem_count: rank.problem_count,
        }
    }
}
