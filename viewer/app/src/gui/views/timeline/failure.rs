//! The marks of failed requests, one of which has a label.

use highwater_snapshots::EventId;

use super::Timeline;
use super::marks::FailedMark;
use crate::answers::request_failure::RequestFailure;
use crate::figures::cause::failure_title;
use crate::figures::requests::free_text;
use crate::gui::widgets::when;
use crate::{Recording, Selection, drawn_metric};

/// The moments of the failed requests of the selected device.
fn failures(recording: &Recording, selection: &Selection) -> impl DoubleEndedIterator<Item = usize> + Clone {
    let ours = recording.devices[selection.device].device;
    recording.regions.ooms.iter().filter(move |(device, _)| *device == ours).map(|(_, moment)| *moment)
}

/// The moment of the failed request that has a label: the pinned one, else the last.
pub(crate) fn labelled_failure(recording: &Recording, selection: &Selection) -> Option<usize> {
    let mut failures = failures(recording, selection);
    let pinned = failures.clone().find(|moment| selection.pin.is_some_and(|pin| pin.moment == *moment));
    pinned.or_else(|| failures.next_back())
}

impl Timeline {
    /// Sets the cause of the failed request at an event, once it is known.
    pub(crate) fn set_failure_cause(&mut self, cause: Option<(EventId, String)>) {
        self.failure_cause = cause;
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
            let failure = failure.filter(|_| Some(moment) == labelled);
            let label = failure.map(|failure| self.failure_label(recording, selection, &failure, moment));
            FailedMark { x: selection.middle_of(trace, moment), asked, label }
        };
        failures(recording, selection).map(mark).collect()
    }

    /// Returns the title and the lines of the label of a failed request at `moment`: its cause, or the free memory
    /// until the cause is known, and its source line.
    fn failure_label(
        &self,
        recording: &Recording,
        selection: &Selection,
        failure: &RequestFailure,
        moment: usize,
    ) -> (String, String) {
        let index = &recording.devices[selection.device];
        let totals = index.series.before_position(&recording.trace, moment);
        let free = || free_text(failure, totals.reserved.saturating_sub(totals.active));
        let cause = self.failure_cause.as_ref().filter(|(event, _)| *event == failure.event);
        let cause = cause.map_or_else(free, |(_, cause)| cause.clone());
        let place = when(&index.moment(&recording.trace, selection.metric, moment));
        (failure_title(&recording.trace, failure), format!("{cause}\n{place}"))
    }
}
