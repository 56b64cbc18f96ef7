//! `highwater diff` of folders: an outlier compared with a typical rank, or two runs rank by rank.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use highwater_analysis::{Metric, Source};
use highwater_app::answers::outliers::Standing;
use highwater_app::figures::ranks::{capitalized, problems};
use highwater_app::files::fleet::{Fleet, Rank, ranges_text};
use highwater_app::report::{Column, Facts, Table};
use highwater_snapshots::{Error, count_of, format_bytes, format_signed_bytes};

use super::DiffReport;
use crate::commands::diff::DiffArguments;
use crate::input::{Input, answer_or_whole, opener, read_fleet};
use crate::output::{Failure, Page, Report, Status, caveats};

pub(crate) fn run(arguments: &DiffArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    let open = opener(&arguments.blocks.categories)?;
    match &arguments.b {
        None => within(arguments, &open, page),
        Some(b) if b.is_dir() && arguments.a.is_dir() => between(arguments, b, &open, page),
        Some(_) => {
            let text = "a folder of ranks is compared with another folder; name two folders, or two recordings";
            Err(Failure::Usage(text.to_owned()))
        }
    }
}

/// Compares the outlier of a folder with the rank closest to the median. Without an outlier, compares the rank with the
/// highest peak.
fn within(
    arguments: &DiffArguments,
    open: &(impl Fn(&Path, bool) -> Result<Source<'static>, Error> + Sync),
    page: &mut Page<'_>,
) -> Result<Status, Failure> {
    let fleet = read_fleet(&arguments.a, open)?;
    let metric = arguments.metric;
    let outlier = fleet.outlier(metric);
    let pair = outlier.or(fleet.highest(metric)).and_then(|row| Some((row, fleet.usual(metric, row)?)));
    let Some((row, usual)) = pair else {
        let text = format!("{}: one recording alone cannot be compared; name a second folder", fleet.name);
        return Err(Failure::Usage(text));
    };
    let [a, b] = [usual, row].map(|row| &fleet.ranks[row]);
    let ranks = count_of(fleet.ranks.len() as u64, "rank");
    let name = metric.name().replace('_', " ");
    let intro = match fleet.standings(metric)[row] {
        Standing::Out { by, .. } => {
            let side = if by > 0 { "above" } else { "below" };
            let by = format_bytes(by.unsigned_abs());
            let rank = capitalized(&b.label());
            format!("{rank} stands out: it peaks {by} {side} the median of {ranks}, in {name}.")
        }
        Standing::Usual => {
            format!("No rank stands out among {ranks}; {} has the highest peak, in {name}.", b.label())
        }
    };
    compare(arguments, [a, b], page, |diff, page| {
        let report = WithinReport {
            fleet: &fleet,
            metric,
            ranks: [a, b],
            is_outlier: outlier.is_some(),
            intro: intro.clone(),
            diff,
        };
        report.write(arguments.form, page)
    })
}

struct WithinReport<'a> {
    fleet: &'a Fleet,
    metric: Metric,
    /// The reference rank, and the rank to compare with it.
    ranks: [&'a Rank; 2],
    is_outlier: bool,
    intro: String,
    diff: &'a DiffReport<'a>,
}

impl Report for WithinReport<'_> {
    fn facts(&self) -> Facts<'_> {
        let [a, b] = self.ranks;
        Facts::new([
            ("folder", self.fleet.name.as_str().into()),
            ("metric", self.metric.name().into()),
            ("a_rank", a.number().into()),
            ("b_rank", b.number().into()),
            ("stands_out", self.is_outlier.into()),
            ("diff", self.diff.facts().into()),
        ])
    }

    fn table(&self) -> Table<'_> {
        self.diff.table()
    }

    fn print(&self, page: &mut Page<'_>) -> io::Result<()> {
        let [a, b] = self.ranks;
        page.headline(&self.intro)?;
        page.line(&format!("A is {}, the nearest to the median; B is {}.", a.label(), b.label()))?;
        problems(self.fleet).iter().try_for_each(|problem| page.warning(&problem.text))?;
        page.gap()?;
        self.diff.print(page)
    }
}

/// The peaks of one rank in both folders; `None` in a folder without this rank.
#[derive(Debug)]
struct Pair {
    rank: u32,
    a_bytes: Option<u64>,
    b_bytes: Option<u64>,
    /// The difference between the peaks. A rank that only one folder has counts in full.
    delta_bytes: i128,
}

/// Compares two folders rank by rank, and the recordings of the rank that grew most.
fn between(
    arguments: &DiffArguments,
    b: &Path,
    open: &(impl Fn(&Path, bool) -> Result<Source<'static>, Error> + Sync),
    page: &mut Page<'_>,
) -> Result<Status, Failure> {
    let read = |folder: &Path| read_fleet(folder, open);
    let fleets = [read(&arguments.a)?, read(b)?];
    let by_rank = fleets.each_ref().map(|fleet| first_of_each(fleet));
    let pairs = pairs(&by_rank, arguments);
    let in_both = pairs.iter().filter(|pair| pair.a_bytes.is_some() && pair.b_bytes.is_some());
    let Some(most) = in_both.max_by_key(|pair| (pair.delta_bytes, std::cmp::Reverse(pair.rank))) else {
        let text = format!("{} and {} have no rank in common", fleets[0].name, fleets[1].name);
        return Err(Failure::Usage(text));
    };
    let ranks = [by_rank[0][&most.rank], by_rank[1][&most.rank]];
    compare(arguments, ranks, page, |diff, page| {
        let report = BetweenReport { metric: arguments.metric, fleets: &fleets, pairs: &pairs, most, diff };
        report.write(arguments.form, page)
    })
}

struct BetweenReport<'a> {
    metric: Metric,
    fleets: &'a [Fleet; 2],
    pairs: &'a [Pair],
    /// The rank of both folders that grew most, or shrank least.
    most: &'a Pair,
    diff: &'a DiffReport<'a>,
}

impl Report for BetweenReport<'_> {
    fn facts(&self) -> Facts<'_> {
        Facts::new([
            ("a", self.fleets[0].name.as_str().into()),
            ("b", self.fleets[1].name.as_str().into()),
            ("metric", self.metric.name().into()),
            ("ranks", self.table().into()),
            ("grown_most", self.most.rank.into()),
            ("diff", self.diff.facts().into()),
        ])
    }

    fn table(&self) -> Table<'_> {
        let (pairs, most) = (self.pairs, self.most);
        let bytes = |bytes: Option<u64>| bytes.map_or_else(|| "-".to_owned(), format_bytes);
        let note = |row: usize| {
            let is_most = pairs[row].rank == most.rank && pairs[row].delta_bytes > 0;
            if is_most { "◀ grew most" } else { "" }.to_owned()
        };
        let columns = [
            Column::number("rank", "rank", |row| pairs[row].rank),
            Column::bytes("a_bytes", "A", |row| pairs[row].a_bytes).shown(move |row| bytes(pairs[row].a_bytes)),
            Column::bytes("b_bytes", "B", |row| pairs[row].b_bytes).shown(move |row| bytes(pairs[row].b_bytes)),
            Column::difference("delta_bytes", "difference", |row| pairs[row].delta_bytes),
            Column::shown_alone("", false, note),
        ];
        Table::new(pairs.len(), columns)
    }

    fn print(&self, page: &mut Page<'_>) -> io::Result<()> {
        let BetweenReport { fleets, pairs, most, .. } = self;
        let metric = self.metric.name().replace('_', " ");
        let words = match most.delta_bytes {
            1.. => format!(
                "Rank {} grew most: its peak of {metric} bytes by {}.",
                most.rank,
                format_signed_bytes(most.delta_bytes)
            ),
            0 => format!("No rank grew: no peak of {metric} bytes is above the one before."),
            _ => format!(
                "Every rank shrank; rank {} least: its peak of {metric} bytes by {}.",
                most.rank,
                format_signed_bytes(most.delta_bytes)
            ),
        };
        page.headline(&words)?;
        page.line(&format!("A: {}; B: {}.", fleets[0].name, fleets[1].name))?;
        let only = |is_here: fn(&Pair) -> bool| -> Vec<_> {
            pairs.iter().filter(|pair| is_here(pair)).map(|pair| pair.rank..=pair.rank).collect()
        };
        for (side, ranks) in [("A", only(|pair| pair.b_bytes.is_none())), ("B", only(|pair| pair.a_bytes.is_none()))] {
            if !ranks.is_empty() {
                page.warning(&format!("Only in {side}: {}.", ranges_text(&ranks)))?;
            }
        }
        for fleet in *fleets {
            for problem in problems(fleet) {
                page.warning(&format!("{}: {}", fleet.name, problem.text))?;
            }
        }
        page.gap()?.table(&self.table())?;
        page.gap()?.line(&format!("Rank {} in both:", most.rank))?;
        page.gap()?;
        self.diff.print(page)
    }
}

/// Returns the recording of each rank; the first one if a rank has several.
fn first_of_each(fleet: &Fleet) -> BTreeMap<u32, &Rank> {
    let mut first = BTreeMap::new();
    for rank in &fleet.ranks {
        first.entry(rank.rank).or_insert(rank);
    }
    first
}

fn pairs(by_rank: &[BTreeMap<u32, &Rank>; 2], arguments: &DiffArguments) -> Vec<Pair> {
    let mut ranks: Vec<u32> = by_rank.iter().flat_map(BTreeMap::keys).copied().collect();
    ranks.sort_unstable();
    ranks.dedup();
    let pair = |rank: u32| {
        let [a, b] = by_rank.each_ref().map(|ranks| ranks.get(&rank).map(|rank| rank.peak(arguments.metric).bytes));
        let delta_bytes = i128::from(b.unwrap_or(0)) - i128::from(a.unwrap_or(0));
        Pair { rank, a_bytes: a, b_bytes: b, delta_bytes }
    };
    ranks.into_iter().map(pair).collect()
}

/// Reads the recordings of both ranks again, warns if one is incomplete, and calls `tell` to print the report of
/// `diff`.
fn compare(
    arguments: &DiffArguments,
    ranks: [&Rank; 2],
    page: &mut Page<'_>,
    tell: impl Fn(&DiffReport<'_>, &mut Page<'_>) -> Result<(), Failure>,
) -> Result<Status, Failure> {
    let sides = DiffArguments { a: ranks[0].path.clone(), b: Some(ranks[1].path.clone()), ..arguments.clone() };
    let open = |is_whole: bool| {
        let open = if is_whole { Input::whole } else { Input::open };
        let open = |rank: &Rank| open(&rank.path, &arguments.blocks.categories);
        Ok([open(ranks[0])?, open(ranks[1])?])
    };
    answer_or_whole(open, |inputs| {
        let report = DiffReport::of(inputs.each_ref(), &sides)?;
        if arguments.form.is_text() {
            for ((input, rank), side) in inputs.iter().zip(ranks).zip(["A", "B"]) {
                caveats::lead(input.facts(), &format!("{side}, {}", rank.label()), page)?;
            }
        }
        tell(&report, page)?;
        Ok(Status::Fine)
    })
}
