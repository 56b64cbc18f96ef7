//! Runs the replay on a background thread, and makes a recording of its prediction.

use std::sync::{Arc, Weak};

use highwater_snapshots::{EventId, Trace};

use super::form::Applied;
use crate::answers::prediction::{Change, Changed, Prediction};
use crate::answers::replays::predict;
use crate::gui::views::predicted::PredictedRun;
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
        let outcome = predict(&recording.source, &change).map_err(|why| why.to_string());
        if cancel.is_cancelled() {
            return None;
        }
        let first = recording.events().start;
        Some(Self { key, outcome: outcome.map(|prediction| Arc::new(Replayed::of(prediction, first))) })
    }
}

/// A prediction with its look-up tables.
#[derive(Debug)]
pub(super) struct Replayed {
    pub(super) prediction: Prediction,
    /// The changed recording, if there is a change.
    run: Option<Arc<PredictedRun>>,
}

impl Replayed {
    /// `first` is the number of the recording's first event.
    fn of(mut prediction: Prediction, first: u64) -> Self {
        let run = prediction.changed.as_mut().and_then(|changed| {
            let source = std::mem::take(&mut changed.source);
            let failure = changed.oom.as_ref().map(|oom| EventId::from_index((oom.event - first) as usize));
            let run = PredictedRun::of(changed.recording.shared()?, source, prediction.device, failure);
            Some(Arc::new(run.from(first)))
        });
        Self { prediction, run }
    }

    /// The change, if there is one.
    pub(super) fn other(&self) -> Option<Other<'_>> {
        Some(Other { changed: self.prediction.changed.as_ref()?, run: self.run.as_ref()? })
    }
}

/// The change, and the predicted recording by events of the recorded one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Other<'a> {
    pub(super) changed: &'a Changed,
    pub(super) run: &'a Arc<PredictedRun>,
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
