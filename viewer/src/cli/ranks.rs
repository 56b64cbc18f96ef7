//! Ranks: `highwater info FOLDER`, the recordings of a run's ranks: which peaks highest, which stands out, which is
//! missing.

use std::collections::BTreeMap;
use std::io;
use std::ops::RangeInclusive;

use highwater_analysis::{Metric, Totals};
use highwater_snapshots::trace::Trust;
use highwater_snapshots::units::{format_bytes, format_count};
use serde::Serialize;

use super::categories::reader;
use super::moment::{count_of, how_much_and_when, micros_since};
use super::outcome::{Failure, Status};
use super::page::Page;
use super::recording::{keep_only, read_fleet};
use super::shell::next_with;
use super::table::{Column, Table};
use crate::args::InfoArguments;
use crate::fleet::{Fleet, Rank, ranges_text};
use crate::outliers::{Middle, RULE, Standing};

/// The totals of which outliers are told: what programs ask for, and what they hold from the driver.
pub const COMPARED: [Metric; 2] = [Metric::Allocated, Metric::Reserved];

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
    rank: Option<u32>,
    file: String,
    #[serde(skip)]
    label: String,
    metric: &'static str,
    bytes: u64,
    /// From the median, below it if negative.
    distance_bytes: i64,
    #[serde(flatten)]
    middle: Middle,
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
            page.hint(&format!("By the rule that {RULE}."))?;
        }
        page.gap()?;
        page.table(&self.table())?;
        let limits = limits(fleet);
        if !limits.is_empty() || fleet.skipped > 0 {
            page.gap()?;
        }
        for Caveat { is_warning, text } in limits {
            if is_warning { page.warning(&text)? } else { page.hint(&text)? }
        }
        if fleet.skipped > 0 {
            page.line(&passed_by(fleet.skipped))?;
        }
        page.gap()?;
        let (folder, given) = (self.arguments.source.file.as_path(), self.arguments.given());
        page.hint(&match fleet.ranks.as_slice() {
            [one] => next_with(&["peak"], &[&one.path], &[], &given, "for what is using memory at the peak"),
            _ => next_with(&["diff"], &[folder], &[], &given, "for what makes the difference between ranks"),
        })
    }

    fn table(&self) -> Table {
        let mut table = Table::new(vec![
            Column::number("rank"),
            Column::text("file"),
            Column::text("host").giving_way().optional(),
            Column::number("events").optional(),
            Column::number("allocated"),
            Column::number("reserved"),
            Column::number("at event").optional(),
            Column::number("step").optional(),
            Column::text("phase").optional(),
            Column::number("end").optional(),
            Column::number("lost").optional(),
            Column::text("trust"),
            Column::text("").giving_way(),
        ]);
        let standings = COMPARED.map(|metric| self.fleet.standings(metric));
        for (row, rank) in self.fleet.ranks.iter().enumerate() {
            let peak = rank.peak(Metric::Allocated);
            let notes = notes(&standings.each_ref().map(|standings| standings[row]));
            table.push(vec![
                rank.number().map_or_else(|| "-".to_owned(), |rank| rank.to_string()),
                rank.name.clone(),
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
                notes,
            ]);
        }
        table
    }
}

/// The ranks that stand out, the furthest first.
fn outliers(fleet: &Fleet, metric: Metric) -> Vec<Outlier> {
    let rows = fleet.ranks.iter().zip(fleet.standings(metric)).zip(fleet.middles(metric));
    let mut outliers: Vec<Outlier> = rows
        .filter_map(|((rank, standing), middle)| {
            let Standing::Out { by, .. } = standing else { return None };
            let bytes = rank.peak(metric).bytes;
            Some(Outlier {
                rank: rank.number(),
                file: rank.path.display().to_string(),
                label: capitalized(&rank.label()),
                metric: metric.name(),
                bytes,
                distance_bytes: by,
                middle,
            })
        })
        .collect();
    outliers.sort_by_key(|outlier| {
        (std::cmp::Reverse(outlier.distance_bytes.unsigned_abs()), outlier.rank, outlier.file.clone())
    });
    outliers
}

/// Which rank peaks highest, which stand out, and which are missing, a sentence each.
pub fn headlines(fleet: &Fleet) -> Vec<String> {
    let Some(top) = fleet.highest(Metric::Allocated).map(|row| &fleet.ranks[row]) else { return Vec::new() };
    let mut told = vec![format!(
        "{} peaks highest: {}.",
        capitalized(&top.label()),
        how_much_and_when(&top.peak(Metric::Allocated))
    )];
    let outliers: Vec<Outlier> = COMPARED.into_iter().flat_map(|metric| outliers(fleet, metric)).collect();
    told.extend(outliers.iter().take(TOLD).map(Outlier::words));
    if outliers.len() > TOLD {
        told.push(format!("… and {}, marked below.", count_of((outliers.len() - TOLD) as u64, "more outlier")));
    }
    if outliers.is_empty() && fleet.ranks.len() > 1 {
        let (count, median) = (count_of(fleet.ranks.len() as u64, "rank"), median(fleet, Metric::Allocated));
        told.push(format!(
            "No rank stands out: the median of {count} is {} allocated.",
            format_bytes(median.median_bytes)
        ));
    }
    let missing = fleet.missing();
    if !missing.is_empty() {
        let of = fleet.world_size().map(|size| format!(" of {}", count_of(u64::from(size), "rank")));
        told.push(format!("Missing{}: {}.", of.unwrap_or_default(), ranges_text(&missing)));
    }
    told
}

/// A sentence about how far the recordings can be trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caveat {
    /// Whether something was lost or is wrong: sizes and categories that follow rules are no reason to warn.
    pub is_warning: bool,
    /// The sentence, with the ranks that it is about.
    pub text: String,
}

/// What limits trust and what could not be read, a sentence each. What holds of many ranks is told once.
pub fn limits(fleet: &Fleet) -> Vec<Caveat> {
    sentences(fleet, |rank| &rank.trust_sentences)
}

/// What is wrong with the recordings and what could not be read, a sentence each.
pub fn problems(fleet: &Fleet) -> Vec<Caveat> {
    sentences(fleet, |_| &[])
}

/// The ranks that a sentence is about, and the files of those without a number.
type Whose<'a> = (Vec<RangeInclusive<u32>>, Vec<&'a str>);

/// The problems of a fleet, and what `trust` says of each rank.
fn sentences(fleet: &Fleet, trust: impl Fn(&Rank) -> &[String]) -> Vec<Caveat> {
    let warning = |text: String| Caveat { is_warning: true, text };
    let problems = fleet.problems();
    let mut sentences: Vec<Caveat> = problems.iter().map(|problem| warning(format!("Problem: {problem}."))).collect();
    let mut told: BTreeMap<(bool, String), Whose<'_>> = BTreeMap::new();
    for rank in &fleet.ranks {
        let more = match rank.problem_count.saturating_sub(1) {
            0 => String::new(),
            more => format!(" (and {})", count_of(more as u64, "more problem")),
        };
        let problem = rank.problems.first().map(|first| (true, format!("Problem: {first}{more}")));
        let losses = rank.trust.limits();
        let trust = trust(rank).iter().map(|sentence| match losses.contains(sentence) {
            true => (true, format!("Trust: {sentence}")),
            false => (false, format!("Note: {sentence}")),
        });
        for sentence in trust.chain(problem) {
            let (ranks, files) = told.entry(sentence).or_default();
            match rank.number() {
                Some(number) => ranks.push(number..=number),
                None => files.push(&rank.name),
            }
        }
    }
    sentences.extend(told.into_iter().rev().map(|((is_warning, what), (ranks, files))| {
        let named = match ranks.as_slice() {
            [] => None,
            [one] => Some(format!("rank {}", one.start())),
            _ => Some(format!("ranks {}", ranges_text(&joined(ranks.clone())))),
        };
        let whose = match ranks.len() + files.len() {
            all if all == fleet.ranks.len() => "all ranks".to_owned(),
            _ => named.into_iter().chain(files.into_iter().map(str::to_owned)).collect::<Vec<_>>().join(", "),
        };
        Caveat { is_warning, text: format!("{what} ({whose}).") }
    }));
    sentences.extend(
        fleet.unread.iter().take(TOLD).map(|(path, why)| warning(format!("Not read: {}: {why}", path.display()))),
    );
    if fleet.unread.len() > TOLD {
        let more = count_of((fleet.unread.len() - TOLD) as u64, "more file");
        sentences.push(warning(format!("Not read: … and {more}")));
    }
    sentences
}

/// `text` with a capital at its beginning, but for the name of a file.
pub fn capitalized(text: &str) -> String {
    match text.strip_prefix("rank ") {
        Some(rest) => format!("Rank {rest}"),
        None => text.to_owned(),
    }
}

/// How many files were left alone.
pub fn passed_by(skipped: usize) -> String {
    match skipped {
        1 => "Skipped: 1 file that is not a recording.".to_owned(),
        _ => format!("Skipped: {} that are not recordings.", count_of(skipped as u64, "file")),
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
            "{} stands out: its peak of {} {} is {} {side} the median of {} ranks, {deviations}.",
            self.label,
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

/// What stands behind the row of a rank that stands out in a total or several.
pub fn notes(standings: &[Standing; COMPARED.len()]) -> String {
    let note = |(metric, standing): (&Metric, &Standing)| {
        let Standing::Out { by, .. } = standing else { return None };
        let side = if *by > 0 { "above" } else { "below" };
        Some(format!("{} {} {side} the median", format_bytes(by.unsigned_abs()), metric.name()))
    };
    let notes: Vec<String> = COMPARED.iter().zip(standings).filter_map(note).collect();
    if notes.is_empty() { String::new() } else { format!("◀ {}", notes.join(", ")) }
}

/// Ranges that touch as one.
fn joined(ranges: Vec<RangeInclusive<u32>>) -> Vec<RangeInclusive<u32>> {
    let mut joined: Vec<RangeInclusive<u32>> = Vec::new();
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
    /// Null where it is not known.
    rank: Option<u32>,
    /// `header`, `name` of the file, or null.
    rank_from: Option<&'static str>,
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
            problems: &rank.problems,
            problem_count: rank.problem_count,
        }
    }
}
