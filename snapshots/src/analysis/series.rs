//! Series: the totals of one device over all events, with the largest of any range at hand.

use std::ops::Range;

use crate::ids::{DeviceId, EventId};
use crate::trace::Trace;

use super::metric::{Metric, Totals};
use super::replay::Replay;

/// Events between two checkpoints: a seek replays at most this many.
const STRIDE: usize = 1024;

/// The totals of one device, ready to be asked at any event and over any range.
///
/// Holds one checkpoint for each 1024 events, and above them a pyramid of maxima: asking costs at most two
/// strides of replay and a logarithm.
#[derive(Clone, Debug)]
pub struct Series {
    device: DeviceId,
    len: usize,
    /// Totals before event `i * STRIDE`.
    before: Vec<Totals>,
    /// Level 0: the maxima after each event of a stride; each further level joins two of the former.
    maxima: Vec<Vec<Totals>>,
}

impl Series {
    /// Walks the trace once.
    pub fn build(trace: &Trace, device: DeviceId) -> Self {
        let len = trace.events.len();
        let mut replay = Replay::new(trace, device);
        let mut before = Vec::with_capacity(len / STRIDE + 1);
        let mut maxima = Vec::with_capacity(len / STRIDE + 1);
        for start in (0..len.max(1)).step_by(STRIDE) {
            before.push(replay.totals());
            let mut largest = Totals::default();
            while replay.position() < (start + STRIDE).min(len) {
                replay.step();
                largest = largest.max(&replay.totals());
            }
            maxima.push(largest);
        }
        let mut levels = vec![maxima];
        while let Some(last) = levels.last().filter(|level| level.len() > 1) {
            let joined = last.chunks(2).map(|pair| pair.iter().fold(Totals::default(), |sum, next| sum.max(next)));
            levels.push(joined.collect());
        }
        Self { device, len, before, maxima: levels }
    }

    /// The device.
    pub fn device(&self) -> DeviceId {
        self.device
    }

    /// The totals before the first event.
    pub fn baseline(&self) -> Totals {
        self.before.first().copied().unwrap_or_default()
    }

    /// The totals after the last event.
    pub fn end(&self, trace: &Trace) -> Totals {
        self.before_position(trace, self.len)
    }

    /// The totals once events `0..position` have happened.
    pub fn before_position(&self, trace: &Trace, position: usize) -> Totals {
        let position = position.min(self.len);
        let stride = (position / STRIDE).min(self.before.len() - 1);
        let mut replay = Replay::resume(trace, self.device, stride * STRIDE, self.before[stride]);
        replay.run_to(position);
        replay.totals()
    }

    /// The totals after event `id`.
    pub fn after(&self, trace: &Trace, id: EventId) -> Totals {
        self.before_position(trace, id.0 as usize + 1)
    }

    /// The largest value of `metric` after any event of `range`, and the first event that reaches it.
    /// `None` for an empty range.
    pub fn largest(&self, trace: &Trace, metric: Metric, range: Range<usize>) -> Option<(u64, EventId)> {
        let range = range.start..range.end.min(self.len);
        if range.is_empty() {
            return None;
        }
        let whole = range.start.div_ceil(STRIDE)..range.end / STRIDE;
        if whole.is_empty() {
            return self.largest_by_replay(trace, metric, range);
        }
        let head = self.largest_by_replay(trace, metric, range.start..whole.start * STRIDE);
        let tail = self.largest_by_replay(trace, metric, whole.end * STRIDE..range.end);
        let body = self.largest_stride(metric, whole.clone());
        let body_bytes = self.maxima[0][body].get(metric);
        let mut best = head;
        if best.is_none_or(|(bytes, _)| body_bytes > bytes) {
            best = self.largest_by_replay(trace, metric, body * STRIDE..(body + 1) * STRIDE);
        }
        match (best, tail) {
            (Some(best), Some(tail)) if tail.0 > best.0 => Some(tail),
            (best, _) => best,
        }
    }

    /// The largest value of `metric` over the recording and the first event that reaches it; `None` as event where the
    /// baseline is never exceeded.
    pub fn peak(&self, trace: &Trace, metric: Metric) -> (u64, Option<EventId>) {
        let baseline = self.baseline().get(metric);
        match self.largest(trace, metric, 0..self.len) {
            Some((bytes, event)) if bytes > baseline => (bytes, Some(event)),
            _ => (baseline, None),
        }
    }

    /// The first stride of `strides` with the largest maximum.
    fn largest_stride(&self, metric: Metric, strides: Range<usize>) -> usize {
        let mut best: Option<(u64, usize, usize)> = None;
        let (mut low, mut high, mut level) = (strides.start, strides.end, 0);
        // Covers the range with pyramid nodes, from both ends inward, one level at a time.
        let mut offer = |level: usize, node: usize, levels: &[Vec<Totals>]| {
            let bytes = levels[level][node].get(metric);
            let first = node << level;
            if best.is_none_or(|(most, _, at)| bytes > most || bytes == most && first < at) {
                best = Some((bytes, node << 8 | level, first));
            }
        };
        while low < high {
            if low & 1 == 1 {
                offer(level, low, &self.maxima);
                low += 1;
            }
            if high & 1 == 1 {
                high -= 1;
                offer(level, high, &self.maxima);
            }
            (low, high, level) = (low / 2, high / 2, level + 1);
        }
        let (bytes, coded, _) = best.expect("the range is not empty");
        let (mut node, mut level) = (coded >> 8, coded & 0xff);
        while level > 0 {
            level -= 1;
            node *= 2;
            if self.maxima[level][node].get(metric) != bytes {
                node += 1;
            }
        }
        node
    }

    fn largest_by_replay(&self, trace: &Trace, metric: Metric, range: Range<usize>) -> Option<(u64, EventId)> {
        let stride = range.start / STRIDE;
        let mut replay = Replay::resume(trace, self.device, stride * STRIDE, *self.before.get(stride)?);
        replay.run_to(range.start);
        let mut best = None;
        while replay.position() < range.end {
            let Some(id) = replay.step() else { break };
            let bytes = replay.totals().get(metric);
            if best.is_none_or(|(most, _)| bytes > most) {
                best = Some((bytes, id));
            }
        }
        best
    }
}
