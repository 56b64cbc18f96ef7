//! Runs the replay on a background thread, and makes a recording of its prediction.

use std::sync::{Arc, Weak};

use highwater_analysis::{Metric, Moment, Series, Totals};
use highwater_snapshots::{EventId, Trace};

use super::form::Applied;
use crate::answers::prediction::{Change, Changed, Prediction};
use crate::answers::replays::predict;
use crate::gui::widgets::worker::Cancel;
use crate::session::Recording;

/// The key of a replay. Does not keep the recording, so that its memory is freed when the file is read again.
#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) of: Weak<Recording>,
    /// Row of the device.
    pub(super) device: usize,
    pub(super) applied: Applied,
}

/// A question.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) recording: Arc<Recording>,
    pub(super) key: Key,
}

/// The answer, or the reason why there is none.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) key: Key,
    pub(super) outcome: Result<Arc<Replayed>, String>,
}

impl Answer {
    /// Replays the question; `None` if cancelled.
    pub(super) fn to(asked: Asked, cancel: &Cancel) -> Option<Self> {
        let Asked { recording, key } = asked;
        let device = recording.devices.get(key.device)?.device;
        let change = Change { device, ..key.applied.change.clone() };
        let outcome = predict(&recording.trace, &change);
        if cancel.is_cancelled() {
            return None;
        }
        Some(Self { key, outcome: outcome.map(|prediction| Arc::new(Replayed::of(prediction))) })
    }
}

/// A prediction with its look-up tables.
#[derive(Debug)]
pub(super) struct Replayed {
    pub(super) prediction: Prediction,
    /// The totals of the changed recording, if there is a change.
    series: Option<Series>,
}

impl Replayed {
    fn of(prediction: Prediction) -> Self {
        let series = prediction.changed.as_ref().map(|changed| Series::build(&changed.trace, prediction.device));
        Self { prediction, series }
    }

    /// The change, if there is one.
    pub(super) fn other(&self) -> Option<Other<'_>> {
        Some(Other { changed: self.prediction.changed.as_ref()?, series: self.series.as_ref()? })
    }
}

/// The predicted recording, by events of the recorded one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Other<'a> {
    pub(super) changed: &'a Changed,
    pub(super) series: &'a Series,
}

impl Other<'_> {
    /// The recorded event for one of its events.
    pub(super) fn recorded(&self, event: EventId) -> Option<EventId> {
        self.changed.source.get(event.index()?).copied()
    }

    /// Converts one of its moments to the recorded event.
    pub(super) fn told(&self, moment: &Moment) -> Moment {
        Moment { event: moment.event.and_then(|event| self.recorded(event)), ..*moment }
    }

    /// Number of its events before the recorded `moment`.
    fn position(&self, moment: usize) -> usize {
        self.changed.source.partition_point(|event| (event.0 as usize) < moment)
    }

    /// The last recorded moment before a request fails.
    pub(super) fn end(&self) -> Option<usize> {
        self.changed.oom.as_ref().map(|oom| oom.event.0 as usize + 1)
    }

    /// Its moments during the recorded moments `first..=last`; `None` after its end.
    pub(super) fn moments(&self, first: usize, last: usize) -> Option<std::ops::Range<usize>> {
        if self.end().is_some_and(|end| first > end) {
            return None;
        }
        let end = self.position(last);
        // The events made from one recorded event have intermediate states.
        let start = first.checked_sub(1).map_or(0, |before| self.position(before) + 1);
        Some(start.min(end)..end + 1)
    }

    /// Its totals at the recorded `moment`; `None` after its end.
    pub(super) fn totals(&self, moment: usize) -> Option<Totals> {
        let moments = self.moments(moment, moment)?;
        Some(self.series.before_position(&self.changed.trace, moments.end - 1))
    }

    /// The maximum of its lines, in bytes.
    pub(super) fn highest(&self) -> u64 {
        self.changed.figures.peak_bytes(Metric::Reserved).max(self.changed.figures.peak_bytes(Metric::Allocated))
    }
}

/// A request to make a recording from a prediction.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) name: String,
    pub(super) trace: Arc<Trace>,
    pub(super) compares: bool,
}

/// A predicted recording, ready to be shown.
#[derive(Debug)]
pub struct Predicted {
    /// The recording.
    pub recording: Recording,
    /// Whether to compare it with its original.
    pub compares: bool,
}

impl Predicted {
    /// Makes the requested recording.
    pub(super) fn of(opening: Opening, _: &Cancel) -> Option<Self> {
        let Opening { name, trace, compares } = opening;
        Some(Self { recording: Recording::new(name, None, trace), compares })
    }
}
