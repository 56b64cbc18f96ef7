//! A recording that is too long to be in memory, available as summaries of the whole and as parts.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock};

use highwater_analysis::{Metric, Source};
use highwater_snapshots::format::{Summary, Windows};
use highwater_snapshots::{Category, DeviceId, Result};

/// Maximum number of events of a recording in memory, which needs about 42 bytes per event.
pub const MAX_RESIDENT_EVENTS: u64 = 8 << 20;

/// Number of events of the part shown first.
pub const FIRST_EVENTS: u64 = 1 << 19;

/// Minimum number of columns for which each column has separate summaries. If there are fewer summaries, columns share
/// them.
const MANY_COLUMNS: usize = 256;

/// Minimum number of summaries that show whether memory may leak.
const MANY_SUMMARIES: usize = 64;

/// Maximum number of events of a part.
pub const MAX_EVENTS: u64 = 4 << 20;

/// A long recording. Its file may grow; parts already read do not change.
#[derive(Debug)]
pub struct Run {
    source: RwLock<Source<'static>>,
    path: PathBuf,
    /// Whether the recording is a single file rather than several files of a rotation.
    is_one_file: bool,
}

/// The minimum and maximum of a total in one column of a chart of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RunColumn {
    /// The largest total in bytes.
    pub bytes: u64,
    /// The event that first reaches the largest total, or the first event of the part if that is later.
    pub event: u64,
    /// The smallest total, in bytes.
    pub least: u64,
    /// Requested bytes by category where `requested` is largest.
    pub by_category: [u64; Category::ALL.len()],
}

impl Run {
    /// Creates a run that `windows` reads from the file at `path`.
    ///
    /// # Errors
    /// Fails if the start of the recording cannot be read.
    pub fn new(windows: Windows, path: &Path) -> Result<Self> {
        let source = RwLock::new(Source::in_windows(windows)?);
        Ok(Self { source, path: path.to_owned(), is_one_file: path.is_file() })
    }

    /// The path of the recording.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file's name.
    pub fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or(self.path.as_os_str());
        name.to_string_lossy().into_owned()
    }

    /// The recording, for the file as it was when last opened.
    pub fn source(&self) -> Source<'static> {
        self.source.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn summaries<T>(&self, of: impl FnOnce(&[Summary]) -> T) -> T {
        of(self.source().windows().map_or(&[], Windows::summaries))
    }

    /// Replaces the reader by `windows`, which includes newer data of the same file.
    ///
    /// # Errors
    /// Fails if the start of the recording cannot be read.
    pub fn extend(&self, windows: Windows) -> Result<()> {
        *self.source.write().unwrap_or_else(PoisonError::into_inner) = Source::in_windows(windows)?;
        Ok(())
    }

    /// Returns whether the recording is unfinished and a single file, and can thus be followed.
    pub(crate) fn is_unfinished(&self) -> bool {
        self.is_one_file && self.source().facts().trust.unfinished
    }

    /// The number of events so far.
    pub fn events(&self) -> u64 {
        self.source().count_events()
    }

    /// Returns the last step that has begun by about event `event`, from the summary that contains the event; `None` if
    /// no step has begun.
    pub fn step_at(&self, event: u64) -> Option<u32> {
        self.summaries(|rows| {
            let row = &rows[rows.partition_point(|row| row.first <= event).checked_sub(1)?];
            row.stage.step.or(row.largest_step)
        })
    }

    /// Whether any step has begun.
    pub fn has_steps(&self) -> bool {
        self.summaries(|rows| rows.last().is_some_and(|row| row.largest_step.is_some()))
    }

    /// Returns the event at which the total is largest; 0 if that is before the first event.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn peak_event(&self, device: DeviceId, metric: Metric) -> Result<u64> {
        Ok(self.source().peak(device, metric)?.number().unwrap_or(0))
    }

    /// Returns the part around an event, which is shown when the recording is opened or the user goes to the event.
    pub fn around(&self, event: u64) -> Range<u64> {
        self.within(event.saturating_sub(FIRST_EVENTS / 2)..event.saturating_add(FIRST_EVENTS / 2))
    }

    /// Returns the range `wanted`, limited to the maximum length of a part and shifted to lie within the recording.
    pub fn within(&self, wanted: Range<u64>) -> Range<u64> {
        let events = self.events();
        let length = (wanted.end - wanted.start).clamp(1, MAX_EVENTS).min(events);
        let middle = wanted.start + (wanted.end - wanted.start) / 2;
        let start = middle.saturating_sub(length / 2).min(events - length);
        start..start + length
    }

    /// Returns the length of the part to show once a recording becomes too long: the visible events, within limits.
    pub(crate) fn length_around(view: &Range<u64>) -> u64 {
        view.end.saturating_sub(view.start).clamp(FIRST_EVENTS, MAX_EVENTS)
    }

    /// A part of about `length` events with `step` in the middle, or with as much of its beginning as fits.
    pub(crate) fn around_step(&self, step: &Range<u64>, length: u64) -> Range<u64> {
        let needed = step.end.saturating_sub(step.start).min(MAX_EVENTS);
        let length = length.clamp(needed, MAX_EVENTS);
        let start = step.start.saturating_sub((length - needed) / 2);
        self.within(start..start.saturating_add(length))
    }

    /// Returns the number of columns for `range`, at most `most`. If the range has many summaries, each column has its
    /// own summary.
    pub(crate) fn columns_in(&self, range: &Range<u64>, most: usize) -> usize {
        let summaries = self.summaries(<[Summary]>::len) as u128;
        let within = summaries * u128::from(range.end.saturating_sub(range.start)) / u128::from(self.events().max(1));
        let half = within as usize / 2;
        if half >= MANY_COLUMNS { most.min(half) } else { most }
    }

    /// Returns whether the smallest total is larger in the third quarter than in the second, as with a leak; true if
    /// there are few summaries. The first quarter includes the start of the program, the last one its end.
    pub(crate) fn may_leak(&self, device: DeviceId) -> bool {
        let quarters = self.columns(device, Metric::Requested, &(0..self.events()), 4);
        quarters[2].least > quarters[1].least || self.summaries(<[Summary]>::len) < MANY_SUMMARIES
    }

    /// Returns the minimum and maximum of a device's total in each of `count` equal parts of `range`, from summaries.
    pub fn columns(&self, device: DeviceId, metric: Metric, range: &Range<u64>, count: usize) -> Vec<RunColumn> {
        let source = self.source();
        let rows = source.windows().map_or(&[][..], Windows::summaries);
        let first = rows.partition_point(|row| row.first + u64::from(row.events) <= range.start);
        let rows = &rows[first..rows.partition_point(|row| row.first < range.end).max(first)];
        let length = range.end.saturating_sub(range.start).max(1);
        let column_of = |event: u64| {
            let within = event.clamp(range.start, range.start + length - 1) - range.start;
            (u128::from(within) * count as u128 / u128::from(length)) as usize
        };
        let mut columns: Vec<Option<RunColumn>> = vec![None; count];
        let mut before = RunColumn::default();
        let mut next = 0;
        for row in rows {
            let Some(column) = column_in(row, device, metric) else { continue };
            let at = column_of(column.event).min(count.saturating_sub(1));
            // A column between two summaries has the total at the end of the first.
            let first = column_of(row.first).min(count);
            columns[next.min(first)..first].iter_mut().for_each(|empty| *empty = empty.or(Some(before)));
            next = next.max(first);
            let least = columns[at].map_or(column.least, |known| known.least.min(column.least));
            let known = columns[at].filter(|known| known.bytes >= column.bytes);
            columns[at] = Some(RunColumn { least, ..known.unwrap_or(column) });
            let end = end_of(row, device, metric);
            before = RunColumn { bytes: end, least: end, ..column };
        }
        columns.into_iter().map(|column| column.unwrap_or(before)).collect()
    }
}

fn column_in(row: &Summary, device: DeviceId, metric: Metric) -> Option<RunColumn> {
    let summary = row.devices.iter().find(|summary| summary.device == device)?;
    let found = summary.largest(metric);
    let event = row.first + u64::from(found.after.saturating_sub(1));
    let least = summary.smallest[metric as usize].bytes;
    Some(RunColumn { bytes: found.bytes, event, least, by_category: summary.by_category })
}

fn end_of(row: &Summary, device: DeviceId, metric: Metric) -> u64 {
    let summary = row.devices.iter().find(|summary| summary.device == device);
    summary.map_or(0, |summary| summary.end.get(metric))
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;
    use std::sync::Arc;

    use highwater_notation::trace_from_text;
    use highwater_snapshots::format::write_trace;

    use super::*;

    fn run() -> Run {
        // A rising total of 20,000 events with one outlier.
        let text: String =
            (0..20_000).map(|n| format!("alloc b{n} {}\n", if n == 7000 { 900_000 } else { 10 })).collect();
        run_of(&text.replace("alloc b7001 10\n", "free b7000\n"))
    }

    fn run_of(text: &str) -> Run {
        let bytes: Arc<[u8]> = write_trace(Vec::new(), &trace_from_text(text).unwrap()).unwrap().into();
        let windows = Windows::open(Arc::new(bytes), &mut |_| ControlFlow::Continue(())).unwrap();
        Run::new(windows, Path::new("long.snap")).unwrap()
    }

    #[test]
    fn columns_have_the_largest_totals_where_they_are_reached() {
        let run = run();
        let peak = run.peak_event(DeviceId(0), Metric::Requested).unwrap();
        assert_eq!(peak, 7000);
        for count in [1, 3, 10, 50, 400] {
            let columns = run.columns(DeviceId(0), Metric::Requested, &(0..run.events()), count);
            let most = columns.iter().map(|column| column.bytes).max().unwrap();
            assert_eq!((columns.len(), most), (count, 7000 * 10 + 900_000));
            let at = (peak as usize * count) / run.events() as usize;
            assert_eq!((columns[at].bytes, columns[at].event), (most, peak), "{count} columns");
            assert_eq!(columns[at].by_category.iter().sum::<u64>(), most);
            assert!(columns.iter().all(|column| column.least <= column.bytes) && columns[0].least < most);
        }
    }

    #[test]
    fn a_total_may_leak_whose_least_value_rises_in_the_middle() {
        let of = |kept: u64| {
            let step = |n: u64| format!("alloc a{n} 10\nalloc b{n} 10\n{}", "alloc c 99\nfree c\n".repeat(2000));
            let freed = |n: u64| if n % 100 < kept { String::new() } else { format!("free a{n}\n") };
            run_of(&(0..80).map(|n| step(n) + &freed(n) + &format!("free b{n}\n")).collect::<String>())
        };
        assert_eq!([0, 100].map(|kept| of(kept).may_leak(DeviceId(0))), [false, true]);
    }

    #[test]
    fn columns_of_a_range_have_what_happens_in_it() {
        let run = run();
        let columns = |range: Range<u64>, count: usize| run.columns(DeviceId(0), Metric::Requested, &range, count);
        let peak = 7000 * 10 + 900_000;
        assert_eq!(columns(4096..8192, 1)[0].bytes, peak);
        assert!(columns(8192..16_384, 4).iter().all(|column| column.bytes < peak));
        assert_eq!(columns(0..0, 2), [RunColumn::default(); 2]);
    }

    #[test]
    fn parts_stay_within_the_recording() {
        let run = run();
        let events = run.events();
        assert_eq!(run.around(7000), 0..events);
        assert_eq!(run.within(0..10), 0..10);
        assert_eq!(run.within(events - 5..events + 5), events - 10..events);
    }

    #[test]
    fn a_step_is_shown_whole_in_the_middle_of_a_part() {
        let run = run();
        assert_eq!(run.around_step(&(1000..1100), 500), 800..1300);
        assert_eq!(run.around_step(&(1000..2000), 500), 1000..2000, "longer than the part before");
        assert_eq!(run.around_step(&(0..100), 500), 0..500);
        let end = run.events();
        assert_eq!(run.around_step(&(end - 50..end), 500), end - 500..end);
    }
}
