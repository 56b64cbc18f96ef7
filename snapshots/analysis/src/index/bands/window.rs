//! The visible part of a recording, and the moments in each column of its drawing.
//!
//! A *moment* is given as a number of events: moment 0 is the baseline, and moment `m` is the state after event
//! `m - 1`. On an axis of events, moment `m` spans `m` to `m + 1`; on an axis of time, it spans from its event's time
//! to the next event's.

use std::ops::Range;

use crate::Metric;
use highwater_snapshots::trace::Trace;

/// The unit and range of the horizontal axis.
#[derive(Clone, Debug, PartialEq)]
pub enum Across {
    /// Moments; `0.0..n + 1.0` shows an entire recording of `n` events.
    Moments(Range<f64>),
    /// Nanoseconds since the recording's origin.
    Nanos(Range<f64>),
}

/// A view of a recording as a grid of pixels.
#[derive(Clone, Debug, PartialEq)]
pub struct BandWindow {
    /// The metric for the height of blocks. If it is not a sum over blocks, active bytes are used.
    pub metric: Metric,
    /// The horizontal range.
    pub across: Across,
    /// Number of columns.
    pub width: usize,
    /// The vertical range, in bytes from the bottom of the stack.
    pub bytes: Range<u64>,
    /// Pixels per column.
    pub height: usize,
}

impl BandWindow {
    /// The moments in column `x`; never empty. Every moment in the window is in a column.
    pub fn moments(&self, trace: &Trace, x: usize) -> Range<usize> {
        let last = trace.events.len();
        match &self.across {
            Across::Moments(range) => {
                let (from, to) = self.edges(range, x);
                let first = (from.max(0.0).floor() as usize).min(last);
                first..(to.max(0.0).ceil() as usize).clamp(first + 1, last.max(first) + 1)
            }
            Across::Nanos(range) => {
                let (from, to) = self.edges(range, x);
                let times = &trace.events.time_ns;
                let before = |limit: f64| times.partition_point(|&time| (time as f64) < limit);
                let first = before(from);
                // The state before an event exactly at the column's edge belongs to the column to the left.
                let is_at_edge = times.get(first).is_some_and(|&time| time as f64 == from);
                let first = first + usize::from(is_at_edge);
                first..before(to).max(first) + 1
            }
        }
    }

    /// The byte offset at the centre of pixel `y`, counted from the bottom.
    pub fn byte_at(&self, y: usize) -> u64 {
        let span = u128::from(self.bytes.end.saturating_sub(self.bytes.start));
        let height = self.height.max(1) as u128;
        self.bytes.start + ((2 * y as u128 + 1) * span / (2 * height)) as u64
    }

    fn edges(&self, range: &Range<f64>, x: usize) -> (f64, f64) {
        let step = (range.end - range.start) / self.width.max(1) as f64;
        (range.start + step * x as f64, range.start + step * (x + 1) as f64)
    }
}
