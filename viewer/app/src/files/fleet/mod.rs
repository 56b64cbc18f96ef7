//! Summaries of the recordings of a run's ranks: the highest peak, outliers, missing ranks.

mod inputs;
mod rank;
mod followed;

use std::collections::BTreeMap;
use std::ops::{ControlFlow, RangeInclusive};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use highwater_analysis::{Metric, Source};
use highwater_snapshots::{Error, Trace};
use serde::{Deserialize, Serialize};

use self::inputs::Input;
use crate::answers::outliers::{Middle, Standing, middles, standings};

pub use self::followed::FollowedFleet;
pub use self::inputs::Inputs;
pub use self::rank::{DeviceLook, Origin, Rank};

/// The recordings of a run, as summaries without traces.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Fleet {
    /// The given paths, separated by commas.
    pub name: String,
    /// The recordings, by rank, then by name; those without a rank are last.
    pub ranks: Vec<Rank>,
    /// Recordings that could not be read, with the reason, by name.
    pub unread: Vec<(PathBuf, String)>,
    /// Number of other files and folders, which were skipped.
    pub skipped: usize,
}

type Outcome = Result<Rank, Unread>;

#[derive(Clone, Debug)]
enum Unread {
    /// The file is not a recording, and was not named explicitly.
    Other,
    Failed(PathBuf, String),
}

impl Input {
    /// Reads and summarizes the file. A damaged file is read again as a whole.
    fn summarized(&self, open: impl Fn(&Path, bool) -> Result<Source<'static>, Error>) -> Outcome {
        let summarize = |is_whole: bool| {
            let source = open(&self.path, is_whole)?;
            if source.facts().is_unreadable() {
                return Ok(Err(Unread::Failed(self.path.clone(), why_unreadable(source.facts()))));
            }
            Rank::of(self.path.clone(), self.name.clone(), &source).map(Ok)
        };
        let summarized = match summarize(false) {
            Err(Error::Damaged { .. }) => summarize(true),
            summarized => summarized,
        };
        match summarized {
            Ok(outcome) => outcome,
            Err(Error::NotRecording { .. }) if !self.is_named => Err(Unread::Other),
            Err(why) => Err(Unread::Failed(self.path.clone(), why.to_string())),
        }
    }
}

impl Fleet {
    /// Reads and summarizes all `inputs`, a few at a time. `open` opens an input, or opens it as a whole in memory if
    /// the file turned out to be damaged. `watch` receives the number of finished inputs, on any thread, and stops
    /// reading by returning [`ControlFlow::Break`]; the result is then `None`.
    pub fn read(
        inputs: &Inputs,
        open: impl Fn(&Path, bool) -> Result<Source<'static>, Error> + Sync,
        watch: impl Fn(usize) -> ControlFlow<()> + Sync,
    ) -> Option<Self> {
        let done = AtomicUsize::new(0);
        let outcomes = on_workers(inputs.files.len(), |row| {
            let outcome = inputs.files[row].summarized(&open);
            (outcome, watch(done.fetch_add(1, Ordering::Relaxed) + 1))
        });
        (outcomes.len() == inputs.files.len()).then(|| Self::of(inputs, outcomes))
    }

    fn of(inputs: &Inputs, outcomes: impl IntoIterator<Item = Outcome>) -> Self {
        let mut fleet = Self { name: inputs.name.clone(), skipped: inputs.skipped, ..Self::default() };
        for outcome in outcomes {
            match outcome {
                Ok(rank) => fleet.ranks.push(rank),
                Err(Unread::Other) => fleet.skipped += 1,
                Err(Unread::Failed(path, why)) => fleet.unread.push((path, why)),
            }
        }
        rank::number(&mut fleet.ranks);
        fleet.ranks.sort_by_key(|rank| (rank.number().is_none(), rank.rank));
        fleet
    }

    /// Returns the number of ranks in the run: the largest world size in any recording; `None` if none contains it.
    pub fn world_size(&self) -> Option<u32> {
        self.ranks.iter().filter_map(|rank| rank.header.world_size).max()
    }

    /// Returns the ranks without a recording below the world size; if that is unknown, below the highest rank.
    pub fn missing(&self) -> Vec<RangeInclusive<u32>> {
        let highest = self.ranks.iter().filter_map(Rank::number).max();
        let Some(size) = self.world_size().or(highest.map(|rank| rank + 1)) else { return Vec::new() };
        let mut gaps = Vec::new();
        let mut next = 0;
        for rank in self.ranks.iter().filter_map(Rank::number).take_while(|rank| *rank < size) {
            if rank > next {
                gaps.push(next..=rank - 1);
            }
            next = next.max(rank + 1);
        }
        if next < size {
            gaps.push(next..=size - 1);
        }
        gaps
    }

    /// Returns inconsistencies among the recordings, one sentence each.
    pub fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        let unknown = self.ranks.iter().filter(|rank| rank.number().is_none()).count();
        if unknown > 0 && self.ranks.len() > 1 {
            problems.push(format!(
                "the rank of {unknown} of {} recordings is unknown: neither the header nor the file name gives it",
                self.ranks.len()
            ));
        }
        let mut files: BTreeMap<u32, usize> = BTreeMap::new();
        self.ranks.iter().filter_map(Rank::number).for_each(|rank| *files.entry(rank).or_default() += 1);
        for (rank, count) in files.iter().filter(|(_, count)| **count > 1) {
            problems.push(format!("rank {rank} has {count} recordings: the folder may contain several runs"));
        }
        let mut sizes: Vec<u32> = self.ranks.iter().filter_map(|rank| rank.header.world_size).collect();
        sizes.sort_unstable();
        sizes.dedup();
        if sizes.len() > 1 {
            let sizes: Vec<String> = sizes.iter().map(u32::to_string).collect();
            problems.push(format!("the recordings have different world sizes: {}", sizes.join(", ")));
        }
        problems
    }

    /// Compares the peak of `metric` on the default device of each rank with the peaks of the other ranks.
    pub fn standings(&self, metric: Metric) -> Vec<Standing> {
        standings(&self.peaks(metric))
    }

    pub(crate) fn middles(&self, metric: Metric) -> Vec<Middle> {
        middles(&self.peaks(metric))
    }

    /// Returns the capacity and the peak of each rank's default device; only devices of the same capacity are compared.
    fn peaks(&self, metric: Metric) -> Vec<(u64, u64)> {
        let of = |rank: &Rank| (rank.main().summary.capacity_bytes, rank.peak(metric).bytes);
        self.ranks.iter().map(of).collect()
    }

    /// Returns the index of the rank with the highest peak of `metric`, the first one in a tie; `None` without ranks.
    pub fn highest(&self, metric: Metric) -> Option<usize> {
        let rows = self.ranks.iter().map(|rank| rank.peak(metric).bytes).enumerate();
        rows.max_by_key(|&(row, bytes)| (bytes, std::cmp::Reverse(row))).map(|(row, _)| row)
    }

    /// Returns the index of the rank whose peak of `metric` is the most extreme outlier (the first in a tie); `None`
    /// without outliers.
    pub fn outlier(&self, metric: Metric) -> Option<usize> {
        let out = self.standings(metric).into_iter().enumerate().filter_map(|(row, standing)| match standing {
            Standing::Out { by, .. } => Some((row, by.unsigned_abs())),
            Standing::Usual => None,
        });
        out.max_by_key(|&(row, by)| (by, std::cmp::Reverse(row))).map(|(row, _)| row)
    }

    /// Returns the index of another rank than `row` whose peak of `metric` is closest to the median of the ranks
    /// comparable with `row` (the first in a tie); a comparable one if there is any.
    pub fn usual(&self, metric: Metric, row: usize) -> Option<usize> {
        let peaks = self.peaks(metric);
        let median = self.middles(metric).get(row)?.median_bytes;
        let others = (0..peaks.len()).filter(|other| *other != row);
        let key = |other: &usize| (peaks[*other].0 != peaks[row].0, peaks[*other].1.abs_diff(median), *other);
        others.min_by_key(key)
    }
}

/// Returns the reason no event of a file could be read.
pub fn why_unreadable(trace: &Trace) -> String {
    let first = trace.problems.first().map(ToString::to_string);
    first.unwrap_or_else(|| "the file ends before the first event".to_owned())
}

/// Formats ranks, such as `3, 7, 10 to 12`.
pub fn ranges_text(ranges: &[RangeInclusive<u32>]) -> String {
    let text = |range: &RangeInclusive<u32>| match (range.start(), range.end()) {
        (start, end) if start == end => start.to_string(),
        (start, end) if *end == start + 1 => format!("{start}, {end}"),
        (start, end) => format!("{start} to {end}"),
    };
    ranges.iter().map(text).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;

/// Maximum number of recordings read at once. Reading one already uses several processors; more only costs memory.
const MAX_WORKERS: usize = 4;

pub(crate) fn worker_count() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from).min(MAX_WORKERS)
}

/// Calls `work` for `0..count` on a few threads and returns the results in order; fewer if a call stops the others.
///
/// These threads do not belong to rayon: a rayon thread that waits for a part of one recording would meanwhile begin
/// with the next one, so that more and more recordings would be in memory.
pub fn on_workers<T: Send>(count: usize, work: impl Fn(usize) -> (T, ControlFlow<()>) + Sync) -> Vec<T> {
    let (next, is_stopped) = (AtomicUsize::new(0), AtomicBool::new(false));
    let done: Mutex<Vec<(usize, T)>> = Mutex::new(Vec::with_capacity(count));
    let worker = || {
        while !is_stopped.load(Ordering::Relaxed) {
            let row = next.fetch_add(1, Ordering::Relaxed);
            if row >= count {
                break;
            }
            let (result, flow) = work(row);
            done.lock().unwrap_or_else(PoisonError::into_inner).push((row, result));
            if flow.is_break() {
                is_stopped.store(true, Ordering::Relaxed);
            }
        }
    };
    std::thread::scope(|scope| {
        let helpers = worker_count().min(count).saturating_sub(1);
        // If a thread cannot be started, the others do its work.
        for _ in 0..helpers {
            let _ = std::thread::Builder::new().name("highwater-rank".to_owned()).spawn_scoped(scope, worker);
        }
        worker();
    });
    let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
    done.sort_by_key(|(row, _)| *row);
    done.into_iter().map(|(_, result)| result).collect()
}
