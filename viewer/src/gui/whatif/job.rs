//! Runs the replay on a background thread, and makes a recording of its prediction.

use std::sync::{Arc, Weak};

use highwater_analysis::{Metric, Moment, Series, Totals};
use highwater_snapshots::{EventId, Trace};

use super::form::Applied;
use crate::gui::worker::Cancel;
use crate::prediction::{Change, Changed, Prediction};
use crate::session::Recording;
use crate::whatif::predict;

/// What is replayed. It does not keep the recording: a file that is read again leaves memory at once.
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

/// The answer, or why there is none.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) key: Key,
    pub(super) outcome: Result<Arc<Replayed>, String>,
}

impl Answer {
    /// Replays what is asked for; `None` if the answer is not wanted any more.
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

/// A prediction with what is looked up in it.
#[derive(Debug)]
pub(super) struct Replayed {
    pub(super) prediction: Prediction,
    /// The totals of the changed recording, if anything was changed.
    series: Option<Series>,
}

impl Replayed {
    fn of(prediction: Prediction) -> Self {
        let series = prediction.changed.as_ref().map(|changed| Series::build(&changed.trace, prediction.device));
        Self { prediction, series }
    }

    /// What was changed, if anything was.
    pub(super) fn other(&self) -> Option<Other<'_>> {
        Some(Other { changed: self.prediction.changed.as_ref()?, series: self.series.as_ref()? })
    }
}

/// A recording as it would have been, seen from the recorded one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Other<'a> {
    pub(super) changed: &'a Changed,
    pub(super) series: &'a Series,
}

impl Other<'_> {
    /// The recorded event of one of its events.
    pub(super) fn recorded(&self, event: EventId) -> Option<EventId> {
        self.changed.source.get(event.index()?).copied()
    }

    /// A moment of it, with the recorded event in place of its own.
    pub(super) fn told(&self, moment: &Moment) -> Moment {
        Moment { event: moment.event.and_then(|event| self.recorded(event)), ..*moment }
    }

    /// How many of its events have happened by the recorded `moment`.
    fn position(&self, moment: usize) -> usize {
        self.changed.source.partition_point(|event| (event.0 as usize) < moment)
    }

    /// The last recorded moment that it comes to, where a request fails.
    pub(super) fn end(&self) -> Option<usize> {
        self.changed.oom.as_ref().map(|oom| oom.event.0 as usize + 1)
    }

    /// Its own moments while the recording goes through moments `first..=last`; none after its end.
    pub(super) fn moments(&self, first: usize, last: usize) -> Option<std::ops::Range<usize>> {
        if self.end().is_some_and(|end| first > end) {
            return None;
        }
        let end = self.position(last);
        // What one recorded event became has states of its own in between.
        let start = first.checked_sub(1).map_or(0, |before| self.position(before) + 1);
        Some(start.min(end)..end + 1)
    }

    /// Its totals at the recorded `moment`; none after its end.
    pub(super) fn totals(&self, moment: usize) -> Option<Totals> {
        let moments = self.moments(moment, moment)?;
        Some(self.series.before_position(&self.changed.trace, moments.end - 1))
    }

    /// Bytes of the highest point of its lines.
    pub(super) fn highest(&self) -> u64 {
        self.changed.figures.peak_bytes(Metric::Reserved).max(self.changed.figures.peak_bytes(Metric::Allocated))
    }
}

/// A recording that is to be made from what was predicted.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) name: String,
    pub(super) trace: Arc<Trace>,
    pub(super) compares: bool,
}

/// A recording that was predicted, to be shown.
#[derive(Debug)]
pub struct Predicted {
    /// It.
    pub recording: Recording,
    /// Whether it is to stand beside the one that it comes from.
    pub compares: bool,
}

impl Predicted {
    /// Makes what is asked for.
    pub(super) fn of(opening: Opening, _: &Cancel) -> Option<Self> {
        let Opening { name, trace, compares } = opening;
        Some(Self { recording: Recording::new(name, None, trace), compares })
    }
}
