//! The totals of one device over all events, with fast queries for the largest total of a range.

use std::ops::Range;

use rayon::prelude::*;

use highwater_snapshots::event::EventKind;
use highwater_snapshots::format::Extreme;
use highwater_snapshots::ids::{DeviceId, EventId};
use highwater_snapshots::trace::Trace;

use super::replay::{Replay, effects};
use crate::metric::{Metric, Totals};

/// Approximate number of the device's events between two checkpoints. A seek replays at most this many.
const STRIDE: usize = 64;
/// Number of pyramid nodes per node of the next level.
const FAN_OUT: usize = 8;
/// Minimum number of events per parallel task.
const PART: usize = 1 << 16;
/// The initial totals of a part whose earlier totals are unknown. Larger than the sum of all sizes in a trace, so that
/// totals neither overflow nor underflow.
const BIAS: u64 = 1 << 62;

/// The totals of one device, at any event and over any range.
///
/// Stores a checkpoint per 64 events of the device, and a pyramid of maxima over the checkpoints. A query replays at
/// most three strides, and otherwise takes logarithmic time.
#[derive(Clone, Debug)]
pub struct Series {
    device: DeviceId,
    len: usize,
    /// Number of events between two checkpoints. Events of other devices count too, but take almost no time.
    stride: usize,
    /// Totals before event `i * stride`.
    before: Vec<Totals>,
    /// Level 0 has the maxima over the states after each event of a stride; each further level combines eight nodes.
    maxima: Vec<Vec<Totals>>,
}

impl Series {
    /// Builds the series in one parallel pass over the trace.
    pub fn build(trace: &Trace, device: DeviceId) -> Self {
        let len = trace.events.len();
        let ours = trace.events.device.par_iter().with_min_len(PART).filter(|at| **at == device).count();
        // The series of many devices together take no more memory than that of one.
        let stride = (STRIDE * (len / ours.max(1)).clamp(1, 1 << 10)).next_power_of_two();
        let part = PART.max(len / (4 * rayon::current_num_threads())).next_multiple_of(stride);
        Self::build_by(trace, device, stride, part)
    }

    /// Builds the series with a checkpoint every `stride` events, from parts of `part` events, a multiple of `stride`.
    fn build_by(trace: &Trace, device: DeviceId, stride: usize, part: usize) -> Self {
        let len = trace.events.len();
        let baseline = Replay::new(trace, device).totals();
        let at_start = reserved_at_chunk_starts(trace, device, part, &baseline);
        let walked: Vec<Part> = at_start
            .into_par_iter()
            .enumerate()
            .map(|(index, at_start)| {
                let start = index * part;
                Part::walk(trace, device, start..(start + part).min(len), stride, at_start)
            })
            .collect();
        let strides = len.div_ceil(stride);
        let (mut before, mut maxima) = (Vec::with_capacity(strides), Vec::with_capacity(strides));
        let mut start = baseline;
        for part in walked {
            before.extend(part.before.iter().map(|totals| unbias(totals, &start)));
            maxima.extend(part.maxima.iter().map(|totals| unbias(totals, &start)));
            start = unbias(&part.end, &start);
        }
        if before.is_empty() {
            before.push(baseline);
        }
        let mut levels = vec![maxima];
        while let Some(last) = levels.last().filter(|level| level.len() > 1) {
            let joined =
                last.chunks(FAN_OUT).map(|nodes| nodes.iter().fold(Totals::default(), |sum, next| sum.max(next)));
            levels.push(joined.collect());
        }
        Self { device, len, stride, before, maxima: levels }
    }

    /// The device whose totals are indexed.
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

    /// The totals after events `0..position`.
    pub fn before_position(&self, trace: &Trace, position: usize) -> Totals {
        self.walk(trace).totals_at(position)
    }

    /// The totals after event `id`.
    pub fn after(&self, trace: &Trace, id: EventId) -> Totals {
        self.before_position(trace, id.0 as usize + 1)
    }

    /// Returns the largest value of `metric` after any event of `range`, and the first event that reaches it. `None`
    /// for an empty range.
    pub fn largest(&self, trace: &Trace, metric: Metric, range: Range<usize>) -> Option<(u64, EventId)> {
        let range = range.start..range.end.min(self.len);
        if range.is_empty() {
            return None;
        }
        let Extreme { bytes, after } = self.walk(trace).largest(metric, range.start + 1..range.end + 1);
        Some((bytes, EventId::from_index(after - 1)))
    }

    /// Returns `count` samples of `metric` over the states after the events of `range`, each the maximum of its
    /// section, so that a small chart shows every peak. Each sample takes as long as a call of [`Self::largest`].
    pub fn samples(&self, trace: &Trace, metric: Metric, range: Range<usize>, count: usize) -> Vec<u64> {
        let range = range.start.min(self.len)..range.end.min(self.len);
        let count = count.max(1);
        if range.is_empty() {
            return vec![self.before_position(trace, range.start).get(metric); count];
        }
        let share = |index: usize| range.start + (range.len() as u128 * index as u128 / count as u128) as usize;
        let shares = (0..count).map(|index| share(index)..share(index + 1).max(share(index) + 1));
        let mut walk = self.walk(trace);
        shares.map(|events| walk.largest(metric, events.start + 1..events.end + 1).bytes).collect()
    }

    /// Returns the maximum of `metric` over the recording, and the first event that reaches it. The event is `None` if
    /// the total before the first event is the maximum.
    pub fn peak(&self, trace: &Trace, metric: Metric) -> (u64, Option<EventId>) {
        let Extreme { bytes, after } = self.walk(trace).largest(metric, 0..self.len + 1);
        (bytes, after.checked_sub(1).map(EventId::from_index))
    }

    /// Starts a sequence of queries over ascending ranges. Replays each event at most once.
    pub fn walk<'a>(&'a self, trace: &'a Trace) -> Walk<'a> {
        let replay = Replay::resume(trace, self.device, 0, self.baseline());
        Walk { series: self, trace, replay, events: 0 }
    }

    /// Returns the memory used, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let rows = self.before.capacity() + self.maxima.iter().map(Vec::capacity).sum::<usize>();
        rows * size_of::<Totals>()
    }

    /// Calls `offer` with the fewest nodes that cover `strides`, each with its level.
    fn cover(&self, strides: Range<usize>, mut offer: impl FnMut(usize, usize, &Totals)) {
        let (mut low, mut high, mut level) = (strides.start, strides.end.min(self.maxima[0].len()), 0);
        while low < high {
            let head = low..low.next_multiple_of(FAN_OUT).min(high);
            let tail = (high / FAN_OUT * FAN_OUT).max(head.end)..high;
            for node in head.clone().chain(tail.clone()) {
                offer(level, node, &self.maxima[level][node]);
            }
            (low, high, level) = (head.end.div_ceil(FAN_OUT), tail.start / FAN_OUT, level + 1);
        }
    }

    /// The first stride of `strides` with the largest maximum.
    fn largest_stride(&self, metric: Metric, strides: Range<usize>) -> Option<(u64, usize)> {
        // Bytes, first stride, level and node.
        let mut best: Option<(u64, usize, usize, usize)> = None;
        self.cover(strides, |level, node, totals| {
            let bytes = totals.get(metric);
            let first = node * FAN_OUT.pow(level as u32);
            if best.is_none_or(|(most, at, ..)| bytes > most || bytes == most && first < at) {
                best = Some((bytes, first, level, node));
            }
        });
        let (bytes, _, mut level, mut node) = best?;
        while level > 0 {
            level -= 1;
            let children = &self.maxima[level][node * FAN_OUT..];
            node = node * FAN_OUT + children.iter().position(|totals| totals.get(metric) == bytes)?;
        }
        Some((bytes, node))
    }
}

/// A cursor that moves over a series from left to right. Moment `m` is the state after `m` events.
#[derive(Debug)]
pub struct Walk<'a> {
    series: &'a Series,
    trace: &'a Trace,
    replay: Replay<'a>,
    events: u64,
}

impl Walk<'_> {
    /// The totals at `moment`.
    pub fn totals_at(&mut self, moment: usize) -> Totals {
        self.seek(moment);
        self.replay.totals()
    }

    /// Returns the largest value of `metric` in the non-empty range `moments`, and the first moment that has it.
    pub fn largest(&mut self, metric: Metric, moments: Range<usize>) -> Extreme<usize> {
        let bytes = self.totals_at(moments.start).get(metric);
        let mut best = Extreme { bytes, after: moments.start.min(self.series.len) };
        self.each_piece(&moments, |walk, piece| match piece {
            Piece::Moment(totals) => _ = best.raise(totals.get(metric), walk.replay.position()),
            Piece::Strides(strides) => {
                let largest = walk.series.largest_stride(metric, strides);
                if let Some((bytes, stride)) = largest.filter(|(bytes, _)| *bytes > best.bytes) {
                    walk.seek(stride * walk.series.stride);
                    while walk.replay.totals().get(metric) != bytes && walk.step() {}
                    // The state at the stride's start belongs to the previous stride and was checked there.
                    best.raise(bytes, walk.replay.position());
                }
            }
        });
        best
    }

    /// Returns the maximum of each total within `moments`; the maxima may be at different moments.
    pub fn largest_of_each(&mut self, moments: Range<usize>) -> Totals {
        let mut largest = self.totals_at(moments.start);
        self.each_piece(&moments, |walk, piece| match piece {
            Piece::Moment(totals) => largest = largest.max(&totals),
            Piece::Strides(strides) => walk.series.cover(strides, |_, _, totals| largest = largest.max(totals)),
        });
        largest
    }

    /// Returns the number of events replayed so far.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// Calls `each` for the moments after the current one: for single moments up to the next checkpoint and after the
    /// last one, and once for all moments in between.
    fn each_piece(&mut self, moments: &Range<usize>, mut each: impl FnMut(&mut Self, Piece)) {
        let stride = self.series.stride;
        let last = moments.end.saturating_sub(1).min(self.series.len);
        let whole = moments.start.div_ceil(stride)..last / stride;
        let head = if whole.is_empty() { last } else { whole.start * stride };
        while self.replay.position() < head && self.step() {
            let totals = self.replay.totals();
            each(self, Piece::Moment(totals));
        }
        if whole.is_empty() {
            return;
        }
        let after = whole.end * stride;
        each(self, Piece::Strides(whole));
        self.seek(after);
        while self.replay.position() < last && self.step() {
            let totals = self.replay.totals();
            each(self, Piece::Moment(totals));
        }
    }

    /// Moves to `moment`, from the current position or from the nearest checkpoint before `moment`.
    fn seek(&mut self, moment: usize) {
        let series = self.series;
        let moment = moment.min(series.len);
        let checkpoint = (moment / series.stride).min(series.before.len().saturating_sub(1));
        let start = checkpoint * series.stride;
        if !(start..=moment).contains(&self.replay.position())
            && let Some(totals) = series.before.get(checkpoint)
        {
            self.replay = Replay::resume(self.trace, series.device, start, *totals);
        }
        while self.replay.position() < moment && self.step() {}
    }

    fn step(&mut self) -> bool {
        self.events += 1;
        self.replay.step().is_some()
    }
}

/// A piece of a range of moments.
enum Piece {
    /// The totals at the current moment.
    Moment(Totals),
    /// Whole strides, that is, the moments after each of their events.
    Strides(Range<usize>),
}

/// The totals within one part of the events, without the totals of earlier parts. Sums over blocks start at [`BIAS`].
struct Part {
    before: Vec<Totals>,
    maxima: Vec<Totals>,
    end: Totals,
}

impl Part {
    fn walk(trace: &Trace, device: DeviceId, events: Range<usize>, stride: usize, at_start: Totals) -> Self {
        let start = Totals { requested: BIAS, allocated: BIAS, active: BIAS, ..at_start };
        let strides = events.len().div_ceil(stride);
        let mut part = Self { before: Vec::with_capacity(strides), maxima: Vec::with_capacity(strides), end: start };
        let mut replay = Replay::resume(trace, device, events.start, start);
        for first in events.clone().step_by(stride) {
            part.before.push(replay.totals());
            let mut largest = Totals::default();
            while replay.position() < (first + stride).min(events.end) && replay.step().is_some() {
                largest = largest.max(&replay.totals());
            }
            part.maxima.push(largest);
        }
        part.end = replay.totals();
        part
    }
}

/// Replaces the start value of the sums over blocks in `totals` by those in `start`.
fn unbias(totals: &Totals, start: &Totals) -> Totals {
    let raise = |bytes: u64, start: u64| bytes.wrapping_sub(BIAS).wrapping_add(start);
    Totals {
        requested: raise(totals.requested, start.requested),
        allocated: raise(totals.allocated, start.allocated),
        active: raise(totals.active, start.active),
        ..*totals
    }
}

/// The reserved bytes and the last driver sample at the start of each part. Such events are few, so this costs little
/// more than a scan of the event kinds.
fn reserved_at_chunk_starts(trace: &Trace, device: DeviceId, part: usize, baseline: &Totals) -> Vec<Totals> {
    let kinds = &trace.events.kind;
    let is_change = |index: &usize| {
        let kind = kinds[*index];
        let is_of_driver = matches!(
            kind,
            EventKind::SegmentAlloc
                | EventKind::SegmentMap
                | EventKind::SegmentFree
                | EventKind::SegmentUnmap
                | EventKind::DeviceUsed
        );
        is_of_driver && trace.events.device[*index] == device
    };
    let changes: Vec<Vec<usize>> = (0..kinds.len().div_ceil(part).max(1))
        .into_par_iter()
        .map(|index| (index * part..((index + 1) * part).min(kinds.len())).filter(is_change).collect())
        .collect();
    let mut at_start = *baseline;
    let at_part = |events: &Vec<usize>| {
        let start = at_start;
        for &index in events {
            effects(trace, index, |effect| effect.apply(trace, &mut at_start));
        }
        start
    };
    changes.iter().map(at_part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_notation::trace_from_text;

    /// Two hundred events on two devices, with releases of unknown segments, and samples.
    fn text() -> String {
        let event = |index: u64| {
            let (bytes, device) = (index * 37 % 90, index / 3 % 2);
            match index % 10 {
                0..=3 => format!("alloc b{index} {bytes} device={device}\n"),
                4 => format!("segment_alloc {:#x} {bytes}\n", index << 20),
                5 => format!("device_used {}\n", bytes * 1000),
                6 => format!("segment_free 0x77 {}\n", bytes / 2),
                7 => format!("free b{} device={}\n", index - 6, (index - 6) / 3 % 2),
                8 => format!("free_requested b{} device={}\n", index - 6, (index - 6) / 3 % 2),
                _ => "step 1\n".to_owned(),
            }
        };
        (0..200).map(event).collect()
    }

    #[test]
    fn however_it_is_built_every_range_has_the_same_maxima() {
        let trace = trace_from_text(&format!("baseline w 500\nbaseline_segment 0x1000 64\n{}", text())).unwrap();
        let len = trace.events.len();
        for device in [DeviceId(0), DeviceId(1)] {
            let mut replay = Replay::new(&trace, device);
            let mut totals = vec![replay.totals()];
            while replay.step().is_some() {
                totals.push(replay.totals());
            }
            for (stride, part) in [(1, 1), (2, 6), (4, 64), (64, 64), (64, 1024)] {
                let series = Series::build_by(&trace, device, stride, part);
                for start in (0..=len).step_by(7) {
                    assert_eq!(series.before_position(&trace, start), totals[start]);
                    for end in (start + 1..=len + 1).step_by(11) {
                        let states = &totals[start..end];
                        let all = states.iter().fold(Totals::default(), |sum, next| sum.max(next));
                        assert_eq!(series.walk(&trace).largest_of_each(start..end), all, "{start}..{end} by {stride}");
                        for metric in Metric::ALL {
                            let bytes = all.get(metric);
                            let first = states.iter().position(|totals| totals.get(metric) == bytes).unwrap();
                            let expected = Extreme { bytes, after: start + first };
                            assert_eq!(series.walk(&trace).largest(metric, start..end), expected);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn ranges_that_follow_each_other_are_walked_once() {
        let trace = trace_from_text(&text()).unwrap();
        let series = Series::build(&trace, DeviceId(0));
        let mut walk = series.walk(&trace);
        for moment in 0..trace.events.len() {
            walk.largest(Metric::Active, moment..moment + 2);
        }
        assert!(walk.events() <= 2 * trace.events.len() as u64, "{}", walk.events());
    }

    #[test]
    fn an_empty_recording_has_a_series_of_its_baseline() {
        let trace = trace_from_text("baseline w 5").unwrap();
        let series = Series::build(&trace, DeviceId(0));
        assert_eq!((series.baseline().requested, series.end(&trace).requested), (5, 5));
        assert_eq!(series.largest(&trace, Metric::Requested, 0..9), None);
        assert_eq!(series.peak(&trace, Metric::Requested), (5, None));
        assert_eq!(series.walk(&trace).largest_of_each(0..1).requested, 5);
    }

    #[test]
    fn samples_miss_no_peak_whether_walked_or_looked_up() {
        // Blocks of growing size, each freed immediately, and one outlier.
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
