//! The marks of failed requests, one of which has a label.

use std::sync::Arc;

use eframe::egui::Context;
use highwater_analysis::{FailedRequest, Moment};
use highwater_snapshots::EventId;

use super::Timeline;
use super::marks::FailedMark;
use crate::answers::request_failure::{RequestFailure, unfinished_state};
use crate::figures::cause::failure_title;
use crate::figures::requests::free_text;
use crate::gui::identity::Identity;
use crate::gui::widgets::{Memo, Query, computed, when};
use crate::{DeviceIndex, Recording, Selection, drawn_metric};

/// A recording, and the moment of a failed request.
type FailureKey = (Identity<Recording>, usize);
/// A failed request, its cause, and the free memory.
type LabelKey = (FailureKey, Option<(EventId, String)>, Option<String>);

#[derive(Debug)]
pub(super) struct FailureText {
    /// The free memory at the request, computed in the background because it needs the index of the device's addresses.
    free: Query<FailureKey, String>,
    /// The title, and the lines below it.
    label: Memo<LabelKey, Option<[String; 2]>>,
}

impl Default for FailureText {
    fn default() -> Self {
        let free = Query::new("highwater-failure", |(recording, moment): &FailureKey, _| {
            let recording = recording.get()?;
            let (failure, index) = failure_at(&recording, *moment)?;
            let (trace, addresses) = (&recording.trace, index.addresses(&recording.trace));
            let request = FailedRequest::of(trace, addresses, &index.live, &index.series, failure.event)?;
            Some(free_text(&request))
        });
        Self { free, label: Memo::default() }
    }
}

computed!(FailureText: free);

/// Returns the request that failed in the last event before `moment`, and the index of its device.
fn failure_at(recording: &Recording, moment: usize) -> Option<(RequestFailure, &DeviceIndex)> {
    let failure = RequestFailure::of(&recording.trace, EventId::from_index(moment.checked_sub(1)?))?;
    let index = recording.devices.iter().find(|index| index.device == failure.device)?;
    Some((failure, index))
}

/// The moments of the failed requests of the selected device.
fn failures(recording: &Recording, selection: &Selection) -> impl DoubleEndedIterator<Item = usize> + Clone {
    let ours = recording.devices[selection.device].device;
    recording.regions.ooms.iter().filter(move |(device, _)| *device == ours).map(|(_, moment)| *moment)
}

/// Returns the moment of the failed request that has a label: the pinned one, otherwise the last.
pub(crate) fn labelled_failure(recording: &Recording, selection: &Selection) -> Option<usize> {
    let mut failures = failures(recording, selection);
    let pinned = failures.clone().find(|moment| selection.pin.is_some_and(|pin| pin.moment == *moment));
    pinned.or_else(|| failures.next_back())
}

/// Returns whether `at` is the moment of the failed request that has a label, the moment before it, or an earlier peak.
pub(crate) fn fails_at(recording: &Recording, selection: &Selection, at: &Moment) -> bool {
    let Some(moment) = labelled_failure(recording, selection) else { return false };
    let peak = recording.devices[selection.device].peak(&recording.trace, selection.metric);
    (moment - 1..=moment).contains(&at.position()) || (at == &peak && at.position() < moment)
}

impl Timeline {
    pub(crate) fn set_failure_cause(&mut self, cause: Option<(EventId, String)>) {
        self.failure_cause = cause;
    }

    /// Describes the failed request that has a label: its title, and below it the unfinished optimizer state, if any,
    /// and the cause or, until that is known, the free memory.
    pub(super) fn describe_failure(&mut self, ctx: &Context, recording: &Arc<Recording>, selection: &Selection) {
        let FailureText { free, label } = &mut self.failure;
        free.receive();
        let Some(moment) = labelled_failure(recording, selection) else { return };
        let key = (Identity::of(recording), moment);
        free.ask(ctx, &key);
        label.get((key, self.failure_cause.clone(), free.current().cloned()), |(_, cause, free)| {
            let (failure, index) = failure_at(recording, moment)?;
            let cause = cause.as_ref().filter(|(event, _)| *event == failure.event).map(|(_, cause)| cause);
            let state = unfinished_state(&recording.trace, &index.live, failure.event);
            let lines: Vec<String> = state.into_iter().chain(cause.or(free.as_ref()).cloned()).collect();
            Some([failure_title(&recording.trace, &failure), lines.join("\n")])
        });
    }

    /// The title and the lines of the label of the failed request that has one.
    pub(crate) fn failure(&self) -> Option<&[String; 2]> {
        self.failure.label.known().and_then(Option::as_ref)
    }

    /// Returns the marks of the selected device's failed requests; only that of [`labelled_failure`] has a label.
    pub(super) fn failed_marks(&self, recording: &Recording, selection: &Selection) -> Vec<FailedMark> {
        let (trace, index) = (&recording.trace, &recording.devices[selection.device]);
        let labelled = labelled_failure(recording, selection);
        let mark = |moment: usize| {
            let failure = moment.checked_sub(1).and_then(|row| RequestFailure::of(trace, EventId::from_index(row)));
            let total = index.moment(trace, drawn_metric(selection.metric), moment).bytes as f64;
            let asked = failure.map(|failure| [total, total + failure.requested as f64]);
            let text = self.failure().filter(|_| Some(moment) == labelled);
            let place = || when(&index.moment(trace, selection.metric, moment));
            let lines = |text: &str| format!("{text}\n{}", place()).trim_start().to_owned();
            let label = text.map(|[title, text]| (title.clone(), lines(text)));
            FailedMark { x: selection.middle_of(trace, moment), asked, label }
        };
        failures(recording, selection).map(mark).collect()
    }
}

#[cfg(test)]
mod tests {
    use highwater_notation::trace_from_text;

    use super::*;
    use crate::gui::widgets::Computed as _;

    #[test]
    fn the_title_and_the_cause_do_not_wait_for_the_free_memory() {
        let trace = trace_from_text("alloc a 1024\noom 4096 free=2048\n").unwrap();
        let (recording, ctx) = (Arc::new(Recording::new("test", None, trace)), Context::default());
        let (selection, mut timeline) = (Selection::new(&recording), Timeline::default());
        let mut described = |cause: Option<&str>, waits: bool| {
            timeline.set_failure_cause(cause.map(|cause| (EventId(1), cause.to_owned())));
            if waits {
                timeline.wait();
            }
            timeline.describe_failure(&ctx, &recording, &selection);
            timeline.failure().unwrap().clone()
        };
        let title = "Out of memory: 4 KiB requested";
        assert_eq!(described(None, false), [title, ""]);
        let [_, free] = described(None, true);
        assert!(free.starts_with("2 KiB free on the device"), "{free}");
        assert_eq!(described(Some("Cause: capacity"), false), [title, "Cause: capacity"]);
    }
}
