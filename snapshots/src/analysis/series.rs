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

    /// `count` samples of `metric` over the states after `range`'s events, each the largest of its share: a small curve
    /// in which every peak is seen. Takes time in proportion to `count`.
    pub fn samples(&self, trace: &Trace, metric: Metric, range: Range<usize>, count: usize) -> Vec<u64> {
        let range = range.start.min(self.len)..range.end.min(self.len);
        let count = count.max(1);
        if range.is_empty() {
            return vec![self.before_position(trace, range.start).get(metric); count];
        }
        let share = |index: usize| range.start + (range.len() as u128 * index as u128 / count as u128) as usize;
        let shares = (0..count).map(|index| share(index)..share(index + 1).max(share(index) + 1));
        if range.len() < STRIDE * count {
            // Short enough to be walked, and too short for the pyramid to show anything.
            let stride = (range.start / STRIDE).min(self.before.len() - 1);
            let mut replay = Replay::resume(trace, self.device, stride * STRIDE, self.before[stride]);
            replay.run_to(range.start);
            let mut after = Vec::with_capacity(range.len());
            while replay.position() < range.end && replay.step().is_some() {
                after.push(replay.totals().get(metric));
            }
            let largest = |at: Range<usize>| {
                let (first, end) = (at.start - range.start, at.end - range.start);
                after.get(first..end).unwrap_or_default().iter().copied().max().unwrap_or(0)
            };
            return shares.map(largest).collect();
        }
        // The level whose nodes are no longer than a share: a share meets three of them at most.
        let level = ((range.len() / count / STRIDE).ilog2() as usize).min(self.maxima.len() - 1);
        let node = STRIDE << level;
        let nodes = &self.maxima[level];
        let largest = |at: Range<usize>| {
            let met = nodes.get(at.start / node..at.end.div_ceil(node).min(nodes.len())).unwrap_or_default();
            met.iter().map(|totals| totals.get(metric)).max().unwrap_or(0)
        };
        shares.map(largest).collect()
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::trace_from_text;

    #[test]
    fn samples_miss_no_peak_whether_walked_or_looked_up() {
        // Blocks of growing size, each freed at once, and one that stands out.
        let text: String = (0..40_000).map(|n| format!("alloc b{n} {}\nfree b{n}\n", 10 + n % 7)).collect();
        let text = text.replace("alloc b33000 ", "alloc b33000 9000");
        let trace = trace_from_text(&text).unwrap();
        let series = Series::build(&trace, DeviceId(0));
        let len = trace.events.len();
        for (range, count) in [(0..len, 1), (0..len, 16), (0..len, 64), (0..len, 500), (len - 90_000..len, 30)] {
            let samples = series.samples(&trace, Metric::Requested, range.clone(), count);
            assert_eq!(samples.len(), count);
            let peak = series.largest(&trace, Metric::Requested, range).unwrap().0;
            assert_eq!(samples.iter().max(), Some(&peak));
            assert!(samples.iter().filter(|bytes| **bytes == peak).count() <= 2, "{samples:?}");
        }
        assert_eq!(series.samples(&trace, Metric::Requested, len..len, 3), [0, 0, 0]);
    }

    #[test]
    fn samples_of_fewer_events_than_samples_repeat_them() {
        let trace = trace_from_text("baseline w 5\nalloc a 10\nalloc b 20\nfree_requested b").unwrap();
        let series = Series::build(&trace, DeviceId(0));
        assert_eq!(series.samples(&trace, Metric::Requested, 0..3, 6), [15, 15, 35, 35, 15, 15]);
        let none = trace_from_text("baseline w 5").unwrap();
        assert_eq!(Series::build(&none, DeviceId(0)).samples(&none, Metric::Requested, 0..0, 2), [5, 5]);
    }
}
