//! Sentences about the ranks of a run: the highest peak, outliers, missing ranks.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::rc::Rc;

use highwater_analysis::{Metric, Moment};
use highwater_snapshots::{count_of, format_bytes, format_count, format_signed_bytes};
use serde::Serialize;

use super::moment::{how_much_and_when, moment_value};
use super::requests::failure_text;
use crate::answers::outliers::{Middle, Standing};
use crate::files::fleet::{Fleet, Rank, ranges_text};
use crate::report::{Column, Field, Table, Value};

/// The totals that are searched for outliers.
pub const COMPARED: [Metric; 2] = [Metric::Allocated, Metric::Reserved];

/// Maximum number of outliers and unreadable files that are listed.
const LISTED: usize = 8;

/// A rank that is an outlier in one total.
#[derive(Clone, Debug, Serialize)]
pub struct Outlier {
    rank: Option<u32>,
    file: String,
    #[serde(skip)]
    label: String,
    metric: &'static str,
    bytes: u64,
    /// Difference from the median in bytes; negative if below it.
    distance_bytes: i64,
    #[serde(flatten)]
    middle: Middle,
}

/// Returns the outliers, ordered by distance from the median, the largest first.
pub fn outliers(fleet: &Fleet, metric: Metric) -> Vec<Outlier> {
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

/// Returns sentences on the ranks that ran out of memory, the highest peak, outliers, and missing ranks.
pub fn headlines(fleet: &Fleet) -> Vec<String> {
    let Some(top) = fleet.highest(Metric::Allocated).map(|row| &fleet.ranks[row]) else { return Vec::new() };
    let failed = fleet.ranks.iter().filter_map(|rank| Some((rank, failure_text(rank.failure.as_ref()?))));
    let mut sentences: Vec<String> =
        failed.map(|(rank, why)| format!("{} ran out of memory: {why}.", capitalized(&rank.label()))).collect();
    if sentences.len() > LISTED {
        let more = count_of((sentences.len() - LISTED) as u64, "more rank");
        sentences.truncate(LISTED);
        sentences.push(format!("… and {more} ran out of memory, marked below."));
    }
    sentences.push(format!(
        "{} has the highest peak: {}.",
        capitalized(&top.label()),
        how_much_and_when(&top.peak(Metric::Allocated))
    ));
    let outliers: Vec<Outlier> = COMPARED.into_iter().flat_map(|metric| outliers(fleet, metric)).collect();
    let mut ranks: Vec<Vec<&Outlier>> = Vec::new();
    for outlier in &outliers {
        match ranks.iter_mut().find(|rank| rank[0].file == outlier.file) {
            Some(rank) => rank.push(outlier),
            None => ranks.push(vec![outlier]),
        }
    }
    sentences.extend(ranks.iter().take(LISTED).map(|rank| outlier_text(rank)));
    if ranks.len() > LISTED {
        sentences.push(format!("… and {}, marked below.", count_of((ranks.len() - LISTED) as u64, "more outlier")));
    }
    if outliers.is_empty() && fleet.ranks.len() > 1 {
        let (count, median) = (count_of(fleet.ranks.len() as u64, "rank"), median(fleet, Metric::Allocated));
        sentences.push(format!(
            "No rank stands out: the median of {count} is {} allocated.",
            format_bytes(median.median_bytes)
        ));
    }
    let missing = fleet.missing();
    if !missing.is_empty() {
        let of = fleet.world_size().map(|size| format!(" of {}", count_of(u64::from(size), "rank")));
        sentences.push(format!("Missing{}: {}.", of.unwrap_or_default(), ranges_text(&missing)));
    }
    sentences
}

/// A note on the accuracy of the recordings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caveat {
    /// Whether the note reports a loss or an error; limits that apply to every recording of its kind, such as guessed
    /// categories, are not warnings.
    pub is_warning: bool,
    /// The sentence, which names the ranks that it concerns.
    pub text: String,
}

/// Returns the limits of the accuracy, the problems of the recordings, and the unreadable files, one sentence each. A
/// sentence that applies to many ranks is listed once.
pub fn limits(fleet: &Fleet) -> Vec<Caveat> {
    sentences(fleet, |rank| &rank.trust_sentences)
}

/// Returns problems of the recordings and files that could not be read, one sentence each.
pub fn problems(fleet: &Fleet) -> Vec<Caveat> {
    sentences(fleet, |_| &[])
}

/// The ranks that a sentence concerns, and the files of recordings without a rank.
type RanksConcerned<'a> = (Vec<RangeInclusive<u32>>, Vec<&'a str>);

/// Returns the problems of a fleet, and the sentences that `trust` returns for each rank.
fn sentences(fleet: &Fleet, trust: impl Fn(&Rank) -> &[String]) -> Vec<Caveat> {
    let warning = |text: String| Caveat { is_warning: true, text };
    let problems = fleet.problems();
    let mut sentences: Vec<Caveat> = problems.iter().map(|problem| warning(format!("Problem: {problem}."))).collect();
    let mut by_sentence: BTreeMap<(bool, String), RanksConcerned<'_>> = BTreeMap::new();
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
            let (ranks, files) = by_sentence.entry(sentence).or_default();
            match rank.number() {
                Some(number) => ranks.push(number..=number),
                None => files.push(&rank.name),
            }
        }
    }
    sentences.extend(by_sentence.into_iter().rev().map(|((is_warning, what), (ranks, files))| {
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
        fleet.unread.iter().take(LISTED).map(|(path, why)| warning(format!("Not read: {}: {why}", path.display()))),
    );
    if fleet.unread.len() > LISTED {
        let more = count_of((fleet.unread.len() - LISTED) as u64, "more file");
        sentences.push(warning(format!("Not read: … and {more}")));
    }
    sentences
}

/// Capitalizes the first letter of `text`, unless it is a file name.
pub fn capitalized(text: &str) -> String {
    match text.strip_prefix("rank ") {
        Some(rest) => format!("Rank {rest}"),
        None => text.to_owned(),
    }
}

/// Returns a sentence with the number of skipped files.
pub fn passed_by(skipped: usize) -> String {
    match skipped {
        1 => "Skipped: 1 file that is not a recording.".to_owned(),
        _ => format!("Skipped: {} that are not recordings.", count_of(skipped as u64, "file")),
    }
}

/// Describes the totals in which a rank is an outlier, such as `Rank 1 stands out: it peaks at 39.62 GiB allocated
/// (median of 8 ranks: 11.61 GiB) and 40.17 GiB reserved (median: 12.37 GiB).`
fn outlier_text(rank: &[&Outlier]) -> String {
    let part = |(row, outlier): (usize, &&Outlier)| {
        let of = if row == 0 { format!(" of {} ranks", outlier.middle.of) } else { String::new() };
        let (bytes, median) = (format_bytes(outlier.bytes), format_bytes(outlier.middle.median_bytes));
        format!("{bytes} {} (median{of}: {median})", outlier.metric)
    };
    let parts: Vec<String> = rank.iter().enumerate().map(part).collect();
    format!("{} stands out: it peaks at {}.", rank[0].label, parts.join(" and "))
}

/// Returns the median of the peaks of all ranks, regardless of their devices.
pub fn median(fleet: &Fleet, metric: Metric) -> Middle {
    let peaks: Vec<(u64, u64)> = fleet.ranks.iter().map(|rank| (0, rank.peak(metric).bytes)).collect();
    crate::answers::outliers::middles(&peaks).first().copied().unwrap_or_default()
}

/// Returns the notes in the row of a rank that ran out of memory or is an outlier.
pub fn notes(rank: &Rank, standings: &[Standing; COMPARED.len()]) -> String {
    let note = |(metric, standing): (&Metric, &Standing)| {
        let Standing::Out { by, .. } = standing else { return None };
        Some(format!("{} {}", format_signed_bytes(*by), metric.name()))
    };
    let failed = rank.failure.map(|_| "out of memory".to_owned());
    // One figure fits into a row; the sentences above the table have all.
    let from_median = COMPARED.iter().zip(standings).find_map(note).map(|part| format!("{part} vs. median"));
    let notes: Vec<String> = failed.into_iter().chain(from_median).collect();
    notes.join(", ")
}

/// The ranks of a folder; row `n` is the rank at `at(n)`.
pub fn ranks_table<'t>(fleet: &'t Fleet, at: impl Fn(usize) -> usize + Copy + 't) -> Table<'t> {
    let rank = move |row: usize| &fleet.ranks[at(row)];
    let standings = Rc::new(COMPARED.map(|metric| fleet.standings(metric)));
    let notes = move |row: usize| notes(rank(row), &standings.each_ref().map(|standings| standings[at(row)]));
    let marked = |notes: String| if notes.is_empty() { notes } else { format!("◀ {notes}") };
    let summary = move |row: usize| &rank(row).main().summary;
    let peak = move |row: usize| rank(row).peak(Metric::Allocated);
    let number = move |row: usize| rank(row).number().map_or_else(|| "-".to_owned(), |rank| rank.to_string());
    let event = move |row: usize| peak(row).number().map_or_else(|| "before".to_owned(), format_count);
    let step = move |row: usize| peak(row).step.map_or_else(|| "-".to_owned(), |step| step.to_string());
    let complete = move |row: usize| if rank(row).is_complete() { "complete" } else { "limited" }.to_owned();
    let peaks = move |row: usize| {
        let of = |peak: &Moment| (peak.metric.name(), moment_value(&rank(row).header, peak).into());
        let by_name: BTreeMap<&'static str, Field> = summary(row).peaks.iter().map(of).collect();
        Value::Map(by_name.into_iter().collect())
    };
    let end = move |row: usize| {
        Value::Map(Metric::ALL.map(|metric| (metric.name(), summary(row).end.get(metric).into())).into())
    };
    let columns = [
        Column::number("rank", "rank", move |row| rank(row).number()).shown(number),
        // `header`, `name` of the file, or null.
        Column::text("rank_from", "", move |row| rank(row).origin.name()).in_files(),
        Column::text("file", "file", move |row| rank(row).path.display().to_string())
            .shown(move |row| rank(row).name.clone()),
        Column::text("host", "host", move |row| rank(row).header.host.clone()).cut().optional(),
        Column::number("pid", "", move |row| rank(row).header.pid).in_files(),
        Column::text("program", "", move |row| rank(row).header.program.clone()).in_files(),
        Column::number("world_size", "", move |row| rank(row).header.world_size).in_files(),
        Column::number("started_us", "", move |row| rank(row).header.started_unix_us).in_files(),
        Column::count("events", "events", move |row| rank(row).events).optional(),
        Column::count("devices", "", move |row| rank(row).devices.len()).in_files(),
        Column::number("device", "", move |row| summary(row).device.0).in_files(),
        Column::text("device_name", "", move |row| summary(row).name.clone()).in_files(),
        Column::bytes("capacity_bytes", "", move |row| summary(row).capacity_bytes).in_files(),
        Column::nested("peaks", peaks),
        Column::nested("end", end),
        Column::bytes("allocated_peak_bytes", "allocated", move |row| peak(row).bytes).in_tables(),
        Column::bytes("reserved_peak_bytes", "reserved", move |row| rank(row).peak(Metric::Reserved).bytes).in_tables(),
        Column::number("peak_event", "at event", move |row| peak(row).number()).shown(event).optional().in_tables(),
        Column::number("peak_step", "step", move |row| peak(row).step).shown(step).optional().in_tables(),
        Column::text("peak_phase", "phase", move |row| peak(row).phase.name()).optional().in_tables(),
        Column::bytes("end_allocated_bytes", "end", move |row| summary(row).end.allocated).optional().in_tables(),
        Column::count("events_lost", "lost", move |row| rank(row).trust.events_lost).optional().in_tables(),
        Column::text("complete", "trust", move |row| rank(row).is_complete()).shown(complete),
        Column::nested("trust", move |row| Value::of(&rank(row).trust)),
        Column::text("out_of_memory", "", move |row| rank(row).failure.as_ref().map(failure_text)).in_files(),
        Column::nested("problems", move |row| rank(row).problems.clone()),
        Column::count("problem_count", "", move |row| rank(row).problem_count).in_files(),
        Column::text("stands_out", "", notes.clone()).shown(move |row| marked(notes(row))).cut().in_tables(),
    ];
    Table::new(fleet.ranks.len(), columns)
}

/// Merges adjacent ranges.
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
