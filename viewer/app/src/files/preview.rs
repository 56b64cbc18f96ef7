//! A preview of a recording that is still being read: the curve of its live memory.

use highwater_snapshots::format::Progress;
use highwater_snapshots::live_bytes::LiveBytes;
use highwater_snapshots::{format_bytes, format_count};

/// Maximum number of points; if there are more, neighbours are merged, so that all points represent about the same
/// number of events.
const MAX_POINTS: usize = 512;

/// A range of events and the live memory during it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Number of events up to the end of the range.
    pub end: u64,
    /// Minimum and maximum of the requested bytes of live blocks.
    pub levels: LiveBytes,
}

/// The part of a recording that has been read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Preview {
    /// The share of the file that has been read, from 0 to 1.
    pub fraction: f32,
    /// Number of events read so far.
    pub events: u64,
    /// Number of events in the file; `None` if the file has no index.
    pub events_in_all: Option<u64>,
    /// The points of the curve, in event order.
    pub points: Vec<Point>,
    /// Number of received points per stored point.
    merged: usize,
    /// Number of received points that the last stored point represents.
    last: usize,
}

impl Preview {
    pub(crate) fn take(&mut self, now: Progress) {
        self.events = now.events;
        self.events_in_all = now.events_in_all.filter(|all| *all > 0);
        if now.bytes > 0 && now.bytes < u64::MAX {
            self.fraction = (now.bytes_read as f64 / now.bytes as f64).clamp(0.0, 1.0) as f32;
        }
        let Some(levels) = now.levels.filter(|_| now.events > 0) else { return };
        let merged = self.merged.max(1);
        match self.points.last_mut().filter(|_| self.last < merged) {
            Some(point) => {
                *point = Point { end: now.events, levels: point.levels.union(levels) };
                self.last += 1;
            }
            None => {
                self.points.push(Point { end: now.events, levels });
                self.last = 1;
            }
        }
        if self.points.len() > MAX_POINTS {
            let join = |pair: &[Point]| Point {
                end: pair[pair.len() - 1].end,
                levels: pair.iter().fold(pair[0].levels, |all, point| all.union(point.levels)),
            };
            self.last += if self.points.len().is_multiple_of(2) { merged } else { 0 };
            self.points = self.points.chunks(2).map(join).collect();
            self.merged = merged * 2;
        }
    }

    /// Returns the lowest level of the curve if it is below 0, because blocks were freed whose allocations come later
    /// in the file; otherwise 0.
    pub(crate) fn floor(&self) -> i64 {
        self.points.iter().map(|point| point.levels.lowest).min().unwrap_or(0).min(0)
    }

    /// The peak of live memory so far, in bytes above the floor.
    pub(crate) fn peak(&self) -> u64 {
        let highest = self.points.iter().map(|point| point.levels.highest).max().unwrap_or(0);
        highest.saturating_sub(self.floor()).max(0) as u64
    }

    /// Returns the approximate number of events in the file, from its index or from the share that has been read.
    pub(crate) fn whole(&self) -> u64 {
        let guessed = (self.events as f64 / f64::from(self.fraction.max(0.001))) as u64;
        self.events_in_all.unwrap_or(guessed).max(self.events).max(1)
    }

    /// The progress as text, such as `reading, 40%: 1,200 events, peak so far 3.1 GiB`.
    pub(crate) fn words(&self) -> String {
        let mut words = format!("reading, {:.0}%", self.fraction * 100.0);
        if self.events > 0 {
            words += &format!(": {} events", format_count(self.events));
        }
        if !self.points.is_empty() {
            words += &format!(", peak so far {}", format_bytes(self.peak()));
        }
        words
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn progress(events: u64, lowest: i64, highest: i64) -> Progress {
        let levels = Some(LiveBytes { lowest, highest });
        Progress { bytes_read: events, bytes: 10_000, events, events_in_all: None, levels }
    }

    #[test]
    fn many_points_become_fewer_and_no_peak_is_lost() {
        let mut preview = Preview::default();
        for n in 1..=5000 {
            preview.take(progress(n, 0, if n == 3333 { 999 } else { 10 }));
            assert!(preview.points.len() <= MAX_POINTS + 1);
        }
        assert!(preview.points.len() > MAX_POINTS / 2, "{}", preview.points.len());
        assert_eq!((preview.peak(), preview.events, preview.whole()), (999, 5000, 10_000));
        assert_eq!(preview.points.last().unwrap().end, 5000);
        let width = |pair: &[Point]| pair[1].end - pair[0].end;
        let widths: Vec<u64> = preview.points.windows(2).map(width).collect();
        let (least, most) = (widths[..widths.len() - 1].iter().min(), widths.iter().max());
        assert_eq!(least, most, "all points but the last stand for as many events");
        let at = preview.points.iter().find(|point| point.levels.highest == 999).unwrap();
        assert!(at.end.abs_diff(3333) <= *most.unwrap());
    }

    #[test]
    fn levels_from_an_unknown_beginning_are_counted_from_the_lowest() {
        let mut preview = Preview::default();
        preview.take(progress(1000, -300, 50));
        preview.take(Progress { levels: None, events: 2000, ..progress(5000, 0, 0) });
        assert_eq!((preview.floor(), preview.peak()), (-300, 350));
        assert_eq!(preview.words(), "reading, 50%: 2,000 events, peak so far 350 B");
        assert_eq!(preview.whole(), 4000);
    }
}
