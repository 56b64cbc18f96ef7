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
use crate::gui::widgets::{Query, computed, when};
use crate::{Recording, Selection, drawn_metric};

/// What the text of a failed request depends on: the recording, the request's moment, and its cause if it is known.
type FailureKey = (Identity<Recording>, Option<usize>, Option<(EventId, String)>);

/// Describes the failed request that has a label on a background thread, which indexes the device's addresses.
#[derive(Debug)]
pub(super) struct FailureText {
    query: Query<FailureKey, Option<[String; 2]>>,
}

impl Default for FailureText {
    fn default() -> Self {
        Self { query: Query::new("highwater-failure", |key, _| Some(described(key))) }
    }
}

computed!(FailureText: query);

/// Returns the title of a failed request, and below it what was being created and the cause, or before that is known
/// the memory that was free.
fn described((recording, moment, cause): &FailureKey) -> Option<[String; 2]> {
    let recording = recording.get()?;
    let trace = &recording.trace;
    let failure = RequestFailure::of(trace, EventId::from_index((*moment)?.checked_sub(1)?))?;
    let index = recording.devices.iter().find(|index| index.device == failure.device)?;
    let cause = cause.as_ref().filter(|(event, _)| *event == failure.event).map(|(_, cause)| cause.clone());
    let free = || {
        let addresses = index.addresses(trace);
        let request = FailedRequest::of(trace, addresses, &index.live, &index.series, failure.event)?;
        Some(free_text(&request))
    };
    let state = unfinished_state(trace, &index.live, failure.event);
    let lines: Vec<String> = state.into_iter().chain(cause.or_else(free)).collect();
    Some([failure_title(trace, &failure), lines.join("\n")])
}

/// The moments of the failed requests of the selected device.
fn failures(recording: &Recording, selection: &Selection) -> impl DoubleEndedIterator<Item = usize> + Clone {
    let ours = recording.devices[selection.device].device;
    recording.regions.ooms.iter().filter(move |(device, _)| *device == ours).map(|(_, moment)| *moment)
}

/// The moment of the failed request that has a label: the pinned one, otherwise the last.
pub(crate) fn labelled_failure(recording: &Recording, selection: &Selection) -> Option<usize> {
    let mut failures = failures(recording, selection);
    let pinned = failures.clone().find(|moment| selection.pin.is_some_and(|pin| pin.moment == *moment));
    pinned.or_else(|| failures.next_back())
}

/// Returns whether the failed request that has a label is at the moment `at`, or `at` is the peak before it.
pub(crate) fn fails_at(recording: &Recording, selection: &Selection, at: &Moment) -> bool {
    let Some(moment) = labelled_failure(recording, selection) else { return false };
    let peak = recording.devices[selection.device].peak(&recording.trace, selection.metric);
    (moment - 1..=moment).contains(&at.position()) || (at == &peak && at.position() < moment)
}

impl Timeline {
    /// Sets the cause of the failed request at an event, once it is known.
    pub(crate) fn set_failure_cause(&mut self, cause: Option<(EventId, String)>) {
        self.failure_cause = cause;
    }

    /// Requests the text of the failed request that has a label.
    pub(super) fn describe_failure(&mut self, ctx: &Context, recording: &Arc<Recording>, selection: &Selection) {
        let query = &mut self.failure.query;
        query.receive();
        let labelled = labelled_failure(recording, selection);
        if labelled.is_some() {
            query.ask(ctx, &(Identity::of(recording), labelled, self.failure_cause.clone()));
        }
    }

    /// The title and the lines of the label of a failed request, once they are known.
    pub(crate) fn failure(&self) -> Option<&[String; 2]> {
        self.failure.query.current().and_then(Option::as_ref)
    }

    /// Returns the marks of the failed requests of the selected device. The pinned request, or the last one, has a
    /// label.
    pub(super) fn failed_marks(&self, recording: &Recording, selection: &Selection) -> Vec<FailedMark> {
        let (trace, index) = (&recording.trace, &recording.devices[selection.device]);
        let labelled = labelled_failure(recording, selection);
        let mark = |moment: usize| {
            let failure = moment.checked_sub(1).and_then(|row| RequestFailure::of(trace, EventId::from_index(row)));
            let total = index.moment(trace, drawn_metric(selection.metric), moment).bytes as f64;
            let asked = failure.map(|failure| [total, total + failure.requested as f64]);
            let text = self.failure().filter(|_| Some(moment) == labelled);
            let place = || when(&index.moment(trace, selection.metric, moment));
            let label = text.map(|[title, text]| (title.clone(), format!("{text}\n{}", place())));
            FailedMark { x: selection.middle_of(trace, moment), asked, label }
        };
        failures(recording, selection).map(mark).collect()
    }
}
