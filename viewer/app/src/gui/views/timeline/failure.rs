//! The marks of failed requests, one of which has a label.

use highwater_analysis::Moment;
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

/// The failed request that has a label, where the moment `at` is its own, or the peak before it.
pub(crate) fn failure_at(
    recording: &Recording,
    selection: &Selection,
    at: &Moment,
    cause: Option<&(EventId, String)>,
) -> Option<String> {
    let moment = labelled_failure(recording, selection)?;
    let failure = RequestFailure::of(&recording.trace, EventId::from_index(moment.checked_sub(1)?))?;
    let peak = recording.devices[selection.device].peak(&recording.trace, selection.metric);
    let is_there = (moment - 1..=moment).contains(&at.position()) || (at == &peak && at.position() < moment);
    let text = || {
        format!(
            "{}\n{}",
            failure_title(&recording.trace, &failure),
            cause_of(recording, selection, (&failure, moment), cause)
        )
    };
    is_there.then(text)
}

/// The cause of a failed request at a moment, or before that is known the memory that was free.
fn cause_of(
    recording: &Recording,
    selection: &Selection,
    (failure, moment): (&RequestFailure, usize),
    cause: Option<&(EventId, String)>,
) -> String {
    let totals = recording.devices[selection.device].series.before_position(&recording.trace, moment);
    let free = || free_text(failure, totals.reserved.saturating_sub(totals.active));
    cause.filter(|(event, _)| *event == failure.event).map_or_else(free, |(_, cause)| cause.clone())
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
            let label = failure.map(|failure| {
                let cause = cause_of(recording, selection, (&failure, moment), self.failure_cause.as_ref());
                let place = when(&index.moment(trace, selection.metric, moment));
                (failure_title(trace, &failure), format!("{cause}\n{place}"))
            });
            FailedMark { x: selection.middle_of(trace, moment), asked, label }
        };
        failures(recording, selection).map(mark).collect()
    }
}
