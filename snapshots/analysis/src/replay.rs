//! The state machine that defines how events change blocks, segments and totals.

use highwater_snapshots::event::EventKind;
use highwater_snapshots::ids::{BlockId, DeviceId, EventId};
use highwater_snapshots::trace::Trace;
use highwater_snapshots::yielding::tick;

use super::metric::{Metric, Totals};

/// An effect of an event. Blocks are identified by row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A block becomes live.
    Begins(usize),
    /// A block's free is requested: it leaves `requested` and `allocated`.
    EndsLive(usize),
    /// A block's free is completed: it leaves `active`.
    EndsActive(usize),
    /// Bytes are obtained from the driver.
    Holds(u64),
    /// Bytes are released to the driver.
    GivesBack(u64),
    /// The driver reports the bytes in use on the device.
    Samples(u64),
}

impl Effect {
    /// The row of the block that the effect adds to or removes from `metric`, and whether it adds it. Metrics that are
    /// not sums over blocks count active blocks.
    #[inline]
    pub fn of_block(self, metric: Metric) -> Option<(usize, bool)> {
        let ends_at_request = matches!(metric, Metric::Requested | Metric::Allocated);
        match self {
            Self::Begins(row) => Some((row, true)),
            Self::EndsLive(row) if ends_at_request => Some((row, false)),
            Self::EndsActive(row) if !ends_at_request => Some((row, false)),
            _ => None,
        }
    }
}

/// Calls `each` with the effects of event `index`; most events have one, some none or two.
#[inline]
pub fn effects(trace: &Trace, index: usize, mut each: impl FnMut(Effect)) {
    tick();
    let subject = trace.events.subject[index];
    let row = subject as usize;
    let event = EventId(index as u32);
    match trace.events.kind[index] {
        EventKind::Alloc => {
            each(Effect::Begins(row));
            if !trace.replaced.is_empty() {
                let first = trace.replaced.partition_point(|(at, _)| *at < event);
                for (_, ended) in trace.replaced[first..].iter().take_while(|(at, _)| *at == event) {
                    if trace.blocks.free_requested[ended.0 as usize] == event && !trace.was_waiting_at_start(*ended) {
                        each(Effect::EndsLive(ended.0 as usize));
                    }
                    each(Effect::EndsActive(ended.0 as usize));
                }
            }
        }
        EventKind::FreeRequested if BlockId(subject).is_some() => each(Effect::EndsLive(row)),
        EventKind::FreeCompleted if BlockId(subject).is_some() => {
            // If the request was not recorded, the completion ends both.
            if trace.blocks.free_requested[row] == event && !trace.was_waiting_at_start(BlockId(subject)) {
                each(Effect::EndsLive(row));
            }
            each(Effect::EndsActive(row));
        }
        EventKind::SegmentAlloc | EventKind::SegmentMap => each(Effect::Holds(trace.segments.range[row].bytes)),
        EventKind::SegmentFree | EventKind::SegmentUnmap => each(Effect::GivesBack(trace.segments.range[row].bytes)),
        EventKind::DeviceUsed => each(Effect::Samples(trace.device_used[row])),
        EventKind::FreeRequested | EventKind::FreeCompleted => {}
        EventKind::Tag | EventKind::Oom | EventKind::Step | EventKind::Phase | EventKind::Mark => {}
        EventKind::Used => {}
    }
}

/// Calls `each` with the baseline: what exists on `device` before the first event.
pub fn baseline_effects(trace: &Trace, device: DeviceId, mut each: impl FnMut(Effect)) {
    // Baseline rows come first.
    for row in 0..trace.blocks.alloc.partition_point(|alloc| !alloc.is_some()) {
        if trace.blocks.device[row] == device {
            each(Effect::Begins(row));
            if trace.was_waiting_at_start(BlockId(row as u32)) {
                each(Effect::EndsLive(row));
            }
        }
    }
    let mut held = 0;
    for row in 0..trace.segments.alloc.partition_point(|alloc| !alloc.is_some()) {
        if trace.segments.device[row] == device {
            held += trace.segments.range[row].bytes;
            each(Effect::Holds(trace.segments.range[row].bytes));
        }
    }
    if let Some(start) = trace.start.device(device) {
        each(Effect::Holds(start.reserved.saturating_sub(held)));
        each(Effect::GivesBack(held.saturating_sub(start.reserved)));
        each(Effect::Samples(start.device_used));
    }
}

impl Effect {
    /// Applies the effect to `totals`.
    #[inline]
    pub fn apply(self, trace: &Trace, totals: &mut Totals) {
        let blocks = &trace.blocks;
        match self {
            Self::Begins(row) => {
                totals.requested += blocks.requested[row];
                totals.allocated += blocks.allocated[row];
                totals.active += blocks.allocated[row];
            }
            Self::EndsLive(row) => {
                totals.requested -= blocks.requested[row];
                totals.allocated -= blocks.allocated[row];
            }
            Self::EndsActive(row) => totals.active -= blocks.allocated[row],
            Self::Holds(bytes) => totals.reserved += bytes,
            // Saturates if the segment is unknown, which the trace's trust facts count.
            Self::GivesBack(bytes) => totals.reserved = totals.reserved.saturating_sub(bytes),
            Self::Samples(bytes) => totals.device_used = bytes,
        }
    }
}

/// Walks the events and tracks the totals of one device.
#[derive(Clone, Debug)]
pub struct Replay<'a> {
    trace: &'a Trace,
    device: DeviceId,
    next: usize,
    totals: Totals,
}

impl<'a> Replay<'a> {
    /// Starts before the first event, with the baseline.
    pub fn new(trace: &'a Trace, device: DeviceId) -> Self {
        let mut totals = Totals::default();
        baseline_effects(trace, device, |effect| effect.apply(trace, &mut totals));
        Self { trace, device, next: 0, totals }
    }

    /// Resumes from the totals before event `next`.
    pub(super) fn resume(trace: &'a Trace, device: DeviceId, next: usize, totals: Totals) -> Self {
        Self { trace, device, next, totals }
    }

    /// The current totals.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// The position of the next event.
    pub fn position(&self) -> usize {
        self.next
    }

    /// Applies the next event, of any device; returns its id, or `None` after the last.
    #[inline]
    pub fn step(&mut self) -> Option<EventId> {
        let index = self.next;
        if *self.trace.events.device.get(index)? == self.device {
            let (trace, totals) = (self.trace, &mut self.totals);
            effects(trace, index, |effect| effect.apply(trace, totals));
        }
        self.next += 1;
        Some(EventId(index as u32))
    }

    /// Applies every event before position `end`.
    pub fn run_to(&mut self, end: usize) {
        while self.next < end && self.step().is_some() {}
    }
}
