//! The effects of events on blocks, segments and totals, as defined by [`Trace::transition`].

use highwater_snapshots::ids::{BlockId, DeviceId, EventId};
use highwater_snapshots::trace::Trace;
use highwater_snapshots::transition::{Named, Transition};
use highwater_snapshots::yielding::tick;

use crate::metric::{Metric, Totals};

/// An effect of an event. Blocks are identified by row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A block becomes live.
    Allocated(usize),
    /// The free of a block is requested, so that it no longer counts in `requested` and `allocated`.
    FreeRequested(usize),
    /// The free of a block is completed, so that it no longer counts in `active`.
    FreeCompleted(usize),
    /// Bytes are reserved from the driver.
    Reserved(u64),
    /// Bytes are released to the driver.
    Released(u64),
    /// The driver reports the bytes in use on the device.
    Sampled(u64),
}

impl Effect {
    /// Returns the row of the block that the effect adds to or removes from `metric`, and whether it adds the block.
    /// Active blocks count for metrics that are not sums over blocks.
    #[inline]
    pub fn of_block(self, metric: Metric) -> Option<(usize, bool)> {
        let ends_at_request = matches!(metric, Metric::Requested | Metric::Allocated);
        match self {
            Self::Allocated(row) => Some((row, true)),
            Self::FreeRequested(row) if ends_at_request => Some((row, false)),
            Self::FreeCompleted(row) if !ends_at_request => Some((row, false)),
            _ => None,
        }
    }
}

/// Calls `each` with the effects of event `index`. Most events have one effect; some have none or several.
#[inline]
pub fn effects(trace: &Trace, index: usize, mut each: impl FnMut(Effect)) {
    tick();
    let event = EventId(index as u32);
    let row = trace.events.subject[index] as usize;
    match trace.transition(event) {
        Transition::Allocated { former } => {
            each(Effect::Allocated(row));
            if let Some(replaced) = trace.replaced_by(event) {
                complete(replaced.0 as usize, former == Named::Live, each);
            }
        }
        Transition::FreeRequested => each(Effect::FreeRequested(row)),
        Transition::FreeCompleted { was_live } => complete(row, was_live, each),
        Transition::Reserved => each(Effect::Reserved(trace.segments.range[row].bytes)),
        Transition::Released { .. } => each(Effect::Released(trace.segments.range[row].bytes)),
        Transition::Sampled => each(Effect::Sampled(trace.device_used[row])),
        Transition::Tagged { .. } | Transition::Used | Transition::Refused(_) | Transition::Nothing => {}
    }
}

#[inline]
fn complete(row: usize, was_live: bool, mut each: impl FnMut(Effect)) {
    if was_live {
        each(Effect::FreeRequested(row));
    }
    each(Effect::FreeCompleted(row));
}

/// Calls `each` with the effects that create the baseline of `device`.
pub fn baseline_effects(trace: &Trace, device: DeviceId, mut each: impl FnMut(Effect)) {
    // Baseline rows come first.
    for row in 0..trace.blocks.alloc.partition_point(|alloc| !alloc.is_some()) {
        if trace.blocks.device[row] == device {
            each(Effect::Allocated(row));
            if trace.was_waiting_at_start(BlockId(row as u32)) {
                each(Effect::FreeRequested(row));
            }
        }
    }
    let mut in_segments = 0;
    for row in 0..trace.segments.alloc.partition_point(|alloc| !alloc.is_some()) {
        if trace.segments.device[row] == device {
            in_segments += trace.segments.range[row].bytes;
            each(Effect::Reserved(trace.segments.range[row].bytes));
        }
    }
    if let Some(start) = trace.start.device(device) {
        each(Effect::Reserved(start.reserved.saturating_sub(in_segments)));
        each(Effect::Released(in_segments.saturating_sub(start.reserved)));
        each(Effect::Sampled(start.device_used));
    }
}

impl Effect {
    /// Applies the effect to `totals`.
    #[inline]
    pub fn apply(self, trace: &Trace, totals: &mut Totals) {
        let blocks = &trace.blocks;
        match self {
            Self::Allocated(row) => {
                totals.requested += blocks.requested[row];
                totals.allocated += blocks.allocated[row];
                totals.active += blocks.allocated[row];
            }
            Self::FreeRequested(row) => {
                totals.requested -= blocks.requested[row];
                totals.allocated -= blocks.allocated[row];
            }
            Self::FreeCompleted(row) => totals.active -= blocks.allocated[row],
            Self::Reserved(bytes) => totals.reserved += bytes,
            // Saturates if the segment is unknown, which the trace's trust facts count.
            Self::Released(bytes) => totals.reserved = totals.reserved.saturating_sub(bytes),
            Self::Sampled(bytes) => totals.device_used = bytes,
        }
    }
}

/// Iterates over events and tracks the totals of one device.
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
    pub(crate) fn resume(trace: &'a Trace, device: DeviceId, next: usize, totals: Totals) -> Self {
        Self { trace, device, next, totals }
    }

    /// The current totals.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    pub(crate) fn device(&self) -> DeviceId {
        self.device
    }

    /// The index of the next event.
    pub fn position(&self) -> usize {
        self.next
    }

    /// Applies the next event, of any device. Returns its id, or `None` after the last event.
    #[inline]
    pub fn step(&mut self) -> Option<EventId> {
        self.step_each(|_| ())
    }

    /// Like [`Replay::step`], and calls `each` with the event's effects on the device.
    #[inline]
    pub(crate) fn step_each(&mut self, mut each: impl FnMut(Effect)) -> Option<EventId> {
        let index = self.next;
        if *self.trace.events.device.get(index)? == self.device {
            let (trace, totals) = (self.trace, &mut self.totals);
            effects(trace, index, |effect| {
                effect.apply(trace, totals);
                each(effect);
            });
        }
        self.next += 1;
        Some(EventId(index as u32))
    }
}
