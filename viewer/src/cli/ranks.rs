//! Ranks: `highwater info FOLDER`, the recordings of a run's ranks: which peaks highest, which stands out, which is
//! missing.

use std::collections::BTreeMap;
use std::io;

use highwater_snapshots::analysis::{Metric, Totals};
use highwater_snapshots::trace::Trust;
use highwater_snapshots::units::{format_bytes, format_count};
use serde::Serialize;

use super::categories::reader;
use super::moment::{count_of, how_much_and_when, micros_since};
use super::outcome::{Failure, Status};
use super::page::Page;
use super::recording::{keep_only, read_fleet};
use super::shell::next_command;
use super::table::{Column, Table};
use crate::args::InfoArguments;
use crate::fleet::{Fleet, Origin, Rank, ranges_text};
use crate::outliers::{Middle, RULE, Standing};

/// The totals of which outliers are told: what programs ask for, and what they hold from the driver.
const COMPARED: [Metric; 2] = [Metric::Allocated, Metric::Reserved];

/// Outliers, and unreadable files, that are told one by one.
const TOLD: usize = 8;

/// Missing ranks that are listed one by one in the figures.
const MOST_MISSING: usize = 4096;

/// `highwater info` of a folder.
pub fn info(arguments: &InfoArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    let folder = &arguments.source.file;
    if let Some(device) = arguments.device {
        let text = format!("--device {device}: of a folder, each rank's main device is told; ask one of its files");
        return Err(Failure::Usage(text));
    }
    let open = reader(&arguments.categories)?;
    let fleet = read_fleet(folder, |file| {
        let mut recording = open(file)?;
        keep_only(&mut recording.trace, &arguments.blocks.filter.filter);
        Ok(recording.trace)
    })?;
    let report = RanksReport { fleet: &fleet, arguments };
    if arguments.source.json {
        page.json(&report.figures())?;
    } else {
        report.print(page)?;
    }
    Ok(Status::Fine)
}

/// The answer, for people and programs.
#[derive(Debug)]
struct RanksReport<'a> {
    fleet: &'a Fleet,
    arguments: &'a InfoArguments,
}

/// A rank that stands out.
#[derive(Clone, Debug, Serialize)]
struct Outlier {
    rank: u32,
    metric: &'static str,
    bytes: u64,
    /// From the median, below it if negative.
    distance_bytes: i64,
    #[serde(flatten)]
    middle: Middle,
}

impl RanksReport<'_> {
    /// The ranks that stand out, the furthest first.
    fn outliers(&self, metric: Metric) -> Vec<Outlier> {
        let rows = self.fleet.ranks.iter().zip(self.fleet.standings(metric)).zip(self.fleet.middles(metric));
        let mut outliers: Vec<Outlier> = rows
            .filter_map(|((rank, standing), middle)| {
                let Standing::Out { by, .. } = standing else { return None };
                let bytes = rank.peak(metric).bytes;
                Some(Outlier { rank: rank.rank, metric: metric.name(), bytes, distance_bytes: by, middle })
            })
            .collect();
        outliers.sort_by_key(|outlier| (std::cmp::Reverse(outlier.distance_bytes.unsigned_abs()), outlier.rank));
        outliers
    }

    fn figures(&self) -> RanksFigures<'_> {
        let fleet = self.fleet;
        let missing = fleet.missing();
        let highest = fleet.highest(Metric::Allocated).map(|row| &fleet.ranks[row]);
        RanksFigures {
            folder: &fleet.name,
            world_size: fleet.world_size(),
            filter: self.arguments.blocks.filter.stated(),
            highest: highest.map(|rank| rank.rank),
            rule: RULE,
            outliers: COMPARED.into_iter().flat_map(|metric| self.outliers(metric)).collect(),
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
        let Some(highest) = fleet.highest(Metric::Allocated) else { return Ok(()) };
        let top = &fleet.ranks[highest];
        page.headline(&format!("Rank {} peaks highest: {}.", top.rank, how_much_and_when(&top.peak(Metric::Allocated))))?;
        if let Some(filter) = self.arguments.blocks.filter.stated() {
            let but = "reserved, and the numbers of events, are of the whole recordings";
            page.line(&format!("Counted are blocks with {filter}; {but}."))?;
        }
        self.print_outliers(page)?;
        let missing = fleet.missing();
        if !missing.is_empty() {
            let size = fleet.world_size().unwrap_or_default();
            let say = format!("Missing: the recordings say that {} train together", count_of(u64::from(size), "rank"));
            page.warning(&format!("{say}, and there is none of {}.", ranges_text(&missing)))?;
        }
        page.gap()?;
        page.table(&self.table())?;
        self.print_problems(page)?;
        page.gap()?;
        let folder = &self.arguments.source.file;
        if fleet.ranks.len() > 1 {
            return page.hint(&next_command(&["diff"], folder, &[], "for what makes the difference between ranks"));
        }
        page.hint(&next_command(&["peak"], &top.path, &[], "for who holds memory at the peak"))
    }

    fn print_outliers(&self, page: &mut Page<'_>) -> io::Result<()> {
        let outliers: Vec<Outlier> = COMPARED.into_iter().flat_map(|metric| self.outliers(metric)).collect();
        for outlier in outliers.iter().take(TOLD) {
            page.headline(&outlier.words())?;
        }
        if outliers.len() > TOLD {
            page.line(&format!("… and {}, marked below.", count_of((outliers.len() - TOLD) as u64, "more outlier")))?;
        }
        let median = median(self.fleet, Metric::Allocated);
        let count = count_of(self.fleet.ranks.len() as u64, "rank");
        if outliers.is_empty() && self.fleet.ranks.len() > 1 {
            let bytes = format_bytes(median.median_bytes);
            page.line(&format!("No rank stands out: the median of {count} is {bytes} allocated."))?;
        }
        if self.fleet.ranks.len() > 1 {
            page.hint(&format!("By the rule that {RULE}."))?;
        }
        Ok(())
    }

    fn table(&self) -> Table {
        let mut table = Table::new(vec![
            Column::number("rank"),
            Column::text("host").giving_way(),
            Column::number("events"),
            Column::number("allocated"),
            Column::number("reserved"),
            Column::number("at event"),
            Column::number("step"),
            Column::text("phase"),
            Column::number("end"),
            Column::number("lost"),
            Column::text("trust"),
            Column::text(""),
        ]);
        let standings = COMPARED.map(|metric| self.fleet.standings(metric));
        for (row, rank) in self.fleet.ranks.iter().enumerate() {
            let peak = rank.peak(Metric::Allocated);
            let by_name = if rank.origin == Origin::ByName { "?" } else { "" };
            let notes = COMPARED.iter().zip(&standings).filter_map(|(metric, standings)| note(*metric, standings[row]));
            table.push(vec![
                format!("{}{by_name}", rank.rank),
                rank.header.host.clone(),
                format_count(rank.events as u64),
                format_bytes(peak.bytes),
                format_bytes(rank.peak(Metric::Reserved).bytes),
                peak.event.map_or_else(|| "before".to_owned(), |event| format_count(u64::from(event.0))),
                peak.step.map_or_else(|| "-".to_owned(), |step| step.to_string()),
                peak.phase.name().to_owned(),
                format_bytes(rank.main().summary.end.allocated),
                format_count(rank.trust.events_lost),
                if rank.is_complete() { "complete" } else { "limited" }.to_owned(),
                notes.collect::<Vec<_>>().join("; "),
            ]);
        }
        table
    }

    /// What limits trust, what could not be read, and what was passed by.
    fn print_problems(&self, page: &mut Page<'_>) -> io::Result<()> {
        let fleet = self.fleet;
        let has_news = fleet.ranks.iter().any(|rank| !rank.is_complete());
        if has_news || !fleet.unread.is_empty() || fleet.skipped > 0 || !fleet.problems().is_empty() {
            page.gap()?;
        }
        for problem in fleet.problems() {
            page.warning(&format!("Problem: {problem}."))?;
        }
        // What holds of many ranks is told once.
        let mut told: BTreeMap<String, Vec<&Rank>> = BTreeMap::new();
        for rank in &fleet.ranks {
            for sentence in &rank.trust_sentences {
                told.entry(format!("Trust: {sentence}")).or_default().push(rank);
            }
            if let Some(first) = rank.problems.first() {
                let more = match rank.problem_count - 1 {
                    0 => String::new(),
                    more => format!(" (and {})", count_of(more as u64, "more problem")),
                };
                told.entry(format!("Problem: {first}{more}")).or_default().push(rank);
            }
        }
        for (what, ranks) in told {
            let numbers: Vec<_> = ranks.iter().map(|rank| rank.rank..=rank.rank).collect();
            let whose = match ranks.len() {
                all if all == fleet.ranks.len() => "all ranks".to_owned(),
                1 => format!("rank {}", numbers[0].start()),
                _ => format!("ranks {}", ranges_text(&joined(numbers))),
            };
            page.warning(&format!("{what} ({whose})."))?;
        }
        for (path, why) in fleet.unread.iter().take(TOLD) {
            page.warning(&format!("Not read: {}: {why}", path.display()))?;
        }
        if fleet.unread.len() > TOLD {
            page.warning(&format!("Not read: … and {}", count_of((fleet.unread.len() - TOLD) as u64, "more file")))?;
        }
        if fleet.skipped > 0 {
            page.line(&format!("Passed by: {} that hold no recording.", count_of(fleet.skipped as u64, "other file")))?;
        }
        Ok(())
    }
}

impl Outlier {
    fn words(&self) -> String {
        let side = if self.distance_bytes > 0 { "above" } else { "below" };
        let distance = self.distance_bytes.unsigned_abs();
        let deviations = match self.middle.deviation_bytes {
            0 => "where the others hardly differ".to_owned(),
            deviation => format!("{:.1} median absolute deviations", distance as f64 / deviation as f64),
        };
        format!(
            "Rank {} stands out: its peak of {} {} is {} {side} the median of {} ranks, {deviations}.",
            self.rank,
            format_bytes(self.bytes),
            self.metric,
            format_bytes(distance),
            self.middle.of
        )
    }
}

/// Where the peaks of all ranks lie, whatever their devices.
fn median(fleet: &Fleet, metric: Metric) -> Middle {
    let peaks: Vec<(u64, u64)> = fleet.ranks.iter().map(|rank| (0, rank.peak(metric).bytes)).collect();
    crate::outliers::middles(&peaks).first().copied().unwrap_or_default()
}

/// What stands behind the row of a rank that stands out.
fn note(metric: Metric, standing: Standing) -> Option<String> {
    let Standing::Out { by, .. } = standing else { return None };
    let side = if by > 0 { "above" } else { "below" };
    Some(format!("◀ {} {} {side} the median", format_bytes(by.unsigned_abs()), metric.name()))
}

/// Ranges that touch as one.
fn joined(ranges: Vec<std::ops::RangeInclusive<u32>>) -> Vec<std::ops::RangeInclusive<u32>> {
    let mut joined: Vec<std::ops::RangeInclusive<u32>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if last.end().saturating_add(1) >= *range.start() => *last = *last.start()..=*range.end(),
            _ => joined.push(range),
        }
    }
    joined
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
    rank: u32,
    /// `header`, or `name` where the recording does not say it.
    rank_from: &'static str,
    file: String,
    host: &'a str,
    pid: u32,
    program: &'a str,
    world_size: Option<u32>,
    started_us: u64,
    events: usize,
    devices: usize,
    device: u16,
    device_name: &'a str,
    capacity_bytes: u64,
    peaks: BTreeMap<&'static str, RankPeak>,
    end: Totals,
    complete: bool,
    trust: &'a Trust,
    problems: &'a [String],
    problem_count: usize,
}

/// When a total of a rank was largest.
#[derive(Debug, Serialize)]
struct RankPeak {
    bytes: u64,
    event: Option<u32>,
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
                event: peak.event.map(|event| event.0),
                time_us: peak.time_ns.map(|time| micros_since(started_us, time)),
                step: peak.step,
                phase: peak.phase.name(),
            };
            (peak.metric.name(), figures)
        });
        Self {
            rank: rank.rank,
            rank_from: if rank.origin == Origin::ByName { "name" } else { "header" },
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
            problems: &rank.problems,
            problem_count: rank.problem_count,
        }
    }
}
