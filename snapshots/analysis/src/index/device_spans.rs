//! The steps and phases of one device.
//!
//! Steps are marked for the whole program. If there are several devices, some may train, load or evaluate while others
//! wait. A step in which a device is idle does not count as a step of the device; otherwise every leak would seem to
//! pause in it.

use std::collections::HashMap;
use std::ops::Range;

use highwater_snapshots::Phase;
use highwater_snapshots::ids::DeviceId;
use highwater_snapshots::trace::{Span, Trace};

/// The activity in some range of events: whether a device, and whether any other device, allocates or frees memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Activity {
    own: bool,
    other: bool,
}

impl Activity {
    pub(crate) fn and(self, other: Self) -> Self {
        Self { own: self.own | other.own, other: self.other | other.other }
    }

    pub(crate) fn is_own(self) -> bool {
        self.own
    }

    /// Returns whether the device allocates or frees memory, or no device does.
    pub(crate) fn is_of_device(self) -> bool {
        self.own || !self.other
    }
}

/// The activity in each step.
pub(crate) struct StepActivity(HashMap<u32, Activity>);

impl StepActivity {
    /// Combines the activity of spans by step.
    pub(crate) fn of(spans: impl Iterator<Item = (Option<u32>, Activity)>) -> Self {
        let mut steps: HashMap<u32, Activity> = HashMap::new();
        for (step, activity) in spans.filter_map(|(step, activity)| Some((step?, activity))) {
            let known = steps.entry(step).or_default();
            *known = known.and(activity);
        }
        Self(steps)
    }

    /// Returns whether no device is active in the step.
    pub(crate) fn is_idle(&self, step: u32) -> bool {
        self.0.get(&step).is_none_or(|activity| !activity.own && !activity.other)
    }

    /// Returns the number of steps that count for the device.
    pub(crate) fn count_of_device(&self) -> u64 {
        self.0.values().filter(|activity| activity.is_of_device()).count() as u64
    }

    /// Returns whether the step counts for the device; events outside of steps always do.
    pub(crate) fn is_of_device(&self, step: Option<u32>) -> bool {
        step.and_then(|step| self.0.get(&step)).is_none_or(|activity| activity.is_of_device())
    }
}

/// Returns the spans of `trace` in order, without the steps in which only other devices are active. Includes spans
/// outside of steps.
pub(crate) fn device_spans(trace: &Trace, device: DeviceId) -> Vec<Span> {
    let spans = trace.spans.rows();
    let steps = StepActivity::of(spans.iter().map(|span| (span.step, activity_in(trace, device, span))));
    spans.iter().filter(|span| steps.is_of_device(span.step)).copied().collect()
}

/// A range of events in one step and phase, or part of one, with the activity of a device in this range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ActiveSpan {
    /// The step; `None` outside of steps.
    pub step: Option<u32>,
    /// The phase of the program in these events.
    pub phase: Phase,
    /// The indices of its events.
    pub events: Range<u64>,
    /// The activity of the device in these events.
    pub activity: Activity,
}

/// Returns the spans of `trace` in order, with event indices of the whole recording. Includes spans in which only other
/// devices are active.
pub(crate) fn active_spans(trace: &Trace, device: DeviceId) -> Vec<ActiveSpan> {
    let span = |span: &Span| ActiveSpan {
        step: span.step,
        phase: span.phase,
        events: trace.number(span.first)..trace.number(span.end),
        activity: activity_in(trace, device, span),
    };
    trace.spans.rows().iter().map(span).collect()
}

/// Appends the spans of the following window.
pub(crate) fn append_spans(spans: &mut Vec<ActiveSpan>, more: Vec<ActiveSpan>) {
    for next in more {
        match spans.last_mut().filter(|last| (last.step, last.phase) == (next.step, next.phase)) {
            Some(last) => {
                last.events.end = next.events.end;
                last.activity = last.activity.and(next.activity);
            }
            None => spans.push(next),
        }
    }
}

/// The step numbers of a device without duplicates, in order of appearance.
pub(crate) fn device_steps(trace: &Trace, device: DeviceId) -> Vec<u32> {
    let mut seen = std::collections::HashSet::new();
    let steps = device_spans(trace, device).into_iter().filter_map(|span| span.step);
    steps.filter(|step| seen.insert(*step)).collect()
}

/// Returns the activity in `span`. The search stops at the first event of `device`.
pub(crate) fn activity_in(trace: &Trace, device: DeviceId, span: &Span) -> Activity {
    let mut activity = Activity::default();
    let events = span.first.0 as usize..span.end.0 as usize;
    for (kind, at) in trace.events.kind[events.clone()].iter().zip(&trace.events.device[events]) {
        if !kind.is_activity() {
            continue;
        }
        if *at == device {
            activity.own = true;
            return activity;
        }
        activity.other = true;
    }
    activity
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_notation::trace_from_text;

    #[test]
    fn a_step_in_which_only_other_devices_work_is_not_a_devices_step() {
        let text = "
            alloc w 1
            alloc v 1 device=1
            step 0
            phase forward
            alloc a 1
            phase optimizer
            alloc b 1 device=1
            step 1
            phase forward
            alloc c 1
            step 2
            phase forward
            step 3
            phase forward
            alloc d 1 device=1
        ";
        let trace = trace_from_text(text).unwrap();
        let steps = |device| device_steps(&trace, DeviceId(device));
        assert_eq!(steps(0), [0, 1, 2]);
        assert_eq!(steps(1), [0, 2, 3], "a step without events of any device belongs to all");
        let spans = device_spans(&trace, DeviceId(1));
        assert_eq!((spans[0].step, spans[0].first.0), (None, 0));
        assert!(spans.iter().all(|span| span.step != Some(1)));
    }

    #[test]
    fn with_one_device_every_step_is_its_step() {
        let trace = trace_from_text("step 0\nalloc a 1\nstep 1\nstep 2\nfree a\n").unwrap();
        assert_eq!(device_spans(&trace, DeviceId(0)), trace.spans.rows());
    }
}
