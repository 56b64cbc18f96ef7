//! The report of `highwater info FOLDER`: the ranks of a run, the highest peak, outliers and missing ranks.

use std::collections::BTreeMap;
use std::io;

use highwater_analysis::{Metric, Moment};
use highwater_app::answers::outliers::{Middle, RULE};
use highwater_app::figures::moment::micros_since;
use highwater_app::figures::ranks::{COMPARED, Caveat, Outlier, headlines, limits, median, notes, outliers, passed_by};
use highwater_app::figures::requests::failure_text;
use highwater_app::files::fleet::{Fleet, Rank};

use highwater_app::report::{Column, Table, Value};
use highwater_snapshots::units::format_count;
use serde::Serialize;

use crate::args::InfoArguments;
use crate::cli::input::recording::read_fleet;
use crate::cli::input::source::opener;
use crate::cli::output::answer::Report;
use crate::cli::output::outcome::{Failure, Status};
use crate::cli::output::page::Page;
use crate::cli::output::shell::next_with;

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
    report.write(arguments.source.form, page)?;
    Ok(Status::Fine)
}

/// The report, as text and as JSON.
#[derive(Debug)]
struct RanksReport<'a> {
    fleet: &'a Fleet,
    arguments: &'a InfoArguments,
}

impl Report for RanksReport<'_> {
    fn figures(&self) -> impl Serialize {
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
            ranks: self.table(),
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
        page.report(&self.table())?;
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

    fn table(&self) -> Table<'_> {
        let ranks = &self.fleet.ranks;
        let standings = COMPARED.map(|metric| self.fleet.standings(metric));
        let notes = move |row: usize| notes(&ranks[row], &standings.each_ref().map(|standings| standings[row]));
        let summary = |row: usize| &ranks[row].main().summary;
        let peak = |row: usize| ranks[row].peak(Metric::Allocated);
        let number = |row: usize| ranks[row].number().map_or_else(|| "-".to_owned(), |rank| rank.to_string());
        let event = move |row: usize| peak(row).number().map_or_else(|| "before".to_owned(), format_count);
        let step = move |row: usize| peak(row).step.map_or_else(|| "-".to_owned(), |step| step.to_string());
        let complete = |row: usize| if ranks[row].is_complete() { "complete" } else { "limited" }.to_owned();
        let end = move |row: usize| {
            Value::Map(Metric::ALL.map(|metric| (metric.name(), summary(row).end.get(metric).into())).into())
        };
        let columns = [
            Column::number("rank", "rank", |row| ranks[row].number()).shown(number),
            // `header`, `name` of the file, or null.
            Column::text("rank_from", "", |row| ranks[row].origin.name()).in_files(),
            Column::text("file", "file", |row| ranks[row].path.display().to_string())
                .shown(|row| ranks[row].name.clone()),
            Column::text("host", "host", |row| ranks[row].header.host.clone()).cut().optional(),
            Column::number("pid", "", |row| ranks[row].header.pid).in_files(),
            Column::text("program", "", |row| ranks[row].header.program.clone()).in_files(),
            Column::number("world_size", "", |row| ranks[row].header.world_size).in_files(),
            Column::number("started_us", "", |row| ranks[row].header.started_unix_us).in_files(),
            Column::count("events", "events", |row| ranks[row].events).optional(),
            Column::count("devices", "", |row| ranks[row].devices.len()).in_files(),
            Column::number("device", "", move |row| summary(row).device.0).in_files(),
            Column::text("device_name", "", move |row| summary(row).name.clone()).in_files(),
            Column::bytes("capacity_bytes", "", move |row| summary(row).capacity_bytes).in_files(),
            Column::nested("peaks", |row| peaks(&ranks[row])),
            Column::nested("end", end),
            Column::bytes("allocated_peak_bytes", "allocated", move |row| peak(row).bytes).in_tables(),
            Column::bytes("reserved_peak_bytes", "reserved", |row| ranks[row].peak(Metric::Reserved).bytes).in_tables(),
            Column::number("peak_event", "at event", move |row| peak(row).number()).shown(event).optional().in_tables(),
            Column::number("peak_step", "step", move |row| peak(row).step).shown(step).optional().in_tables(),
            Column::text("peak_phase", "phase", move |row| peak(row).phase.name()).optional().in_tables(),
            Column::bytes("end_allocated_bytes", "end", move |row| summary(row).end.allocated).optional().in_tables(),
            Column::count("events_lost", "lost", |row| ranks[row].trust.events_lost).optional().in_tables(),
            Column::text("complete", "trust", |row| ranks[row].is_complete()).shown(complete),
            Column::nested("trust", |row| Value::of(&ranks[row].trust)),
            Column::text("out_of_memory", "", |row| ranks[row].failure.as_ref().map(failure_text)).in_files(),
            Column::nested("problems", |row| ranks[row].problems.clone()),
            Column::count("problem_count", "", |row| ranks[row].problem_count).in_files(),
            Column::shown_alone("", false, notes).cut(),
        ];
        Table::new(ranks.len(), columns)
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
    ranks: Table<'a>,
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

/// The peaks of a rank, by total.
fn peaks(rank: &Rank) -> Value {
    let time_us = |time: u64| micros_since(rank.header.started_unix_us, time);
    let of = |peak: &Moment| {
        let figures = vec![
            ("bytes", peak.bytes.into()),
            ("event", peak.number().into()),
            ("time_us", peak.time_ns.map(time_us).into()),
            ("step", peak.step.into()),
            ("phase", peak.phase.name().into()),
        ];
        (peak.metric.name(), Value::Map(figures))
    };
    let by_name: BTreeMap<&'static str, Value> = rank.main().summary.peaks.iter().map(of).collect();
    Value::Map(by_name.into_iter().collect())
}
