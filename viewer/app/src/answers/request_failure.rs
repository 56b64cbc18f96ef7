//! The failed requests of a recording, with the sizes at that point.

use highwater_analysis::{LiveIndex, Metric, Source};
use highwater_snapshots::{Category, DeviceId, EventId, EventKind, Phase, Result, Trace, format_bytes};
use serde::{Deserialize, Serialize};

/// A failed request, and the memory that was free.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RequestFailure {
    /// The device that ran out of memory.
    pub device: DeviceId,
    /// The event, in the trace that contains it.
    pub event: EventId,
    /// The index of the event in the whole recording.
    pub number: u64,
    /// The training step of the request; `None` outside of steps.
    pub step: Option<u32>,
    /// The phase of the request; `None` if the recording has no phases.
    pub phase: Option<Phase>,
    /// Requested bytes.
    pub requested: u64,
    /// Free bytes on the device, as the driver reported them.
    pub device_free: u64,
}

impl RequestFailure {
    /// Returns the first failed requests on `device`, at most `most` of them.
    ///
    /// # Errors
    /// Fails if the recording cannot be read.
    pub fn first(source: &Source<'_>, device: DeviceId, most: usize) -> Result<Vec<Self>> {
        let first = Self::events(source, device)?.into_iter().take(most);
        let failures: Result<Vec<Option<Self>>> = first.map(|event| Self::at(source, event)).collect();
        Ok(failures?.into_iter().flatten().collect())
    }

    /// Returns the last failed request on `device`.
    ///
    /// # Errors
    /// Fails like [`Self::first`].
    pub fn last(source: &Source<'_>, device: DeviceId) -> Result<Option<Self>> {
        let last = Self::events(source, device)?.pop();
        last.map_or(Ok(None), |event| Self::at(source, event))
    }

    fn events(source: &Source<'_>, device: DeviceId) -> Result<Vec<u64>> {
        if source.count(device, EventKind::Oom) == 0 {
            return Ok(Vec::new());
        }
        Ok(source.failed_requests()?.into_iter().filter(|(_, of)| *of == device).map(|(event, _)| event).collect())
    }

    fn at(source: &Source<'_>, event: u64) -> Result<Option<Self>> {
        let window = source.window_at(Some(event))?;
        Ok(window.last().and_then(|event| Self::of(&window.trace, event)))
    }

    /// Returns the failed requests on `device`, in order.
    pub fn all(trace: &Trace, device: DeviceId) -> impl DoubleEndedIterator<Item = Self> {
        trace.failed_requests_on(device).filter_map(|event| Self::of(trace, event))
    }

    /// Returns the request that failed at `event`; `None` if none failed there.
    pub fn of(trace: &Trace, event: EventId) -> Option<Self> {
        let row = event.index()?;
        let oom = trace.ooms.get(trace.events.subject[row] as usize)?;
        let span = trace.spans.at(event)?;
        let phase = (!trace.spans.is_all_setup()).then_some(span.phase);
        let (device, number) = (trace.events.device[row], trace.number(event));
        let (requested, device_free) = (oom.requested, oom.device_free);
        Some(Self { device, event, number, step: span.step, phase, requested, device_free })
    }
}

/// Formats the optimizer state at the failed request `event`, such as `Optimizer state unfinished: 13 GiB so far, for
/// 14 GiB of parameters`. `None` unless the request is for more of it: an optimizer step made it, and the same operation
/// or call stack created state in that step before.
pub(crate) fn unfinished_state(trace: &Trace, live: &LiveIndex, event: EventId) -> Option<String> {
    let (row, blocks) = (event.index()?, &trace.blocks);
    let (op, stack) = (trace.ooms.get(trace.events.subject[row] as usize)?.op, trace.events.stack[row]);
    let first = trace.spans.at(event).filter(|span| span.phase == Phase::Optimizer)?.first.0;
    let (mut state, mut parameters, mut is_of_state) = (0, 0, false);
    for id in live.before_position(trace, Metric::Requested, row) {
        let block = blocks.get(id);
        match block.category {
            Category::Parameter => parameters += block.requested,
            Category::OptimizerState => {
                let is_same_op = op.is_some() && trace.tables.op_name(block.op) == trace.tables.op_name(op);
                let is_alike = is_same_op || stack.is_some() && block.stack == stack;
                is_of_state |= is_alike && (first..event.0).contains(&block.alloc.0);
                state += block.requested;
            }
            _ => {}
        }
    }
    let guess = if trace.trust.categories_guessed { " (guess)" } else { "" };
    let [state, parameters] = [state, parameters].map(format_bytes);
    let text = || format!("Optimizer state unfinished: {state} so far, for {parameters} of parameters{guess}");
    is_of_state.then(text)
}

#[cfg(test)]
mod tests {
    use highwater_notation::trace_from_text;

    use super::*;
    use crate::Recording;

    fn unfinished(text: &str) -> Option<String> {
        let recording = Recording::new("test", None, trace_from_text(text).unwrap());
        let (trace, live) = (&recording.trace, &recording.devices[0].live);
        unfinished_state(trace, live, RequestFailure::all(trace, DeviceId(0)).next().unwrap().event)
    }

    #[test]
    fn a_request_by_what_created_state_in_the_same_step_leaves_the_state_unfinished() {
        let made = "alloc w 300 parameter\nalloc v 100 parameter\nstep 0\nphase optimizer\n\
                    alloc s 300 optimizer_state #adam\n";
        let text = "Optimizer state unfinished: 300 B so far, for 400 B of parameters";
        assert_eq!(unfinished(&format!("{made}oom 100 free=0 #adam")).as_deref(), Some(text));
        // Another operation may have asked for something else, and a later step for other state.
        assert_eq!(unfinished(&format!("{made}oom 100 free=0 #sqrt")), None);
        assert_eq!(unfinished(&format!("{made}oom 100 free=0")), None);
        assert_eq!(unfinished(&format!("{made}step 1\nphase optimizer\noom 100 free=0 #adam")), None);
        assert_eq!(unfinished(&format!("{made}step 1\nphase forward\noom 100 free=0 #adam")), None);
    }
}
