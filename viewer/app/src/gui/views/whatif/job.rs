//! Runs the replay on a background thread, and converts its prediction to a recording.

use std::sync::Arc;

use highwater_snapshots::{EventId, Trace};

use super::form::Applied;
use crate::Recording;
use crate::answers::prediction::{Change, Changed, Prediction};
use crate::answers::replays::predict;
use crate::gui::identity::Identity;
use crate::gui::views::predicted::PredictedRun;
use crate::gui::views::view::OfDevice;
use crate::gui::widgets::Cancel;

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Key {
    pub(super) of: OfDevice,
    pub(super) applied: Applied,
}

pub(super) type Outcome = Result<Arc<Replayed>, String>;

/// Replays the recording; `None` if cancelled or if the recording was closed.
pub(super) fn replay(key: &Key, cancel: &Cancel) -> Option<Outcome> {
    let recording = key.of.recording.get()?;
    let device = recording.devices.get(key.of.device)?.device;
    let change = Change { device, ..key.applied.change.clone() };
    let outcome = predict(&recording.source, &change).map_err(|why| why.to_string());
    if cancel.is_cancelled() {
        return None;
    }
    let (first, applied) = (recording.events().start, &key.applied);
    Some(outcome.map(|prediction| Arc::new(Replayed::of(prediction, applied.clone(), first))))
}

#[derive(Debug)]
pub(super) struct Replayed {
    pub(super) applied: Applied,
    pub(super) prediction: Prediction,
    /// The predicted recording; `None` without a change.
    run: Option<Arc<PredictedRun>>,
}

impl Replayed {
    /// Indexes a prediction; `first` is the index of the recording's first event.
    fn of(mut prediction: Prediction, applied: Applied, first: u64) -> Self {
        let run = prediction.changed.as_mut().and_then(|changed| {
            let source = std::mem::take(&mut changed.source);
            let failure = changed.oom.as_ref().map(|oom| EventId::from_index((oom.event - first) as usize));
            let run = PredictedRun::of(changed.recording.shared()?, source, prediction.device, failure);
            Some(Arc::new(run.from(first)))
        });
        Self { applied, prediction, run }
    }

    /// The result of the change; `None` without a change.
    pub(super) fn other(&self) -> Option<Other<'_>> {
        Some(Other { changed: self.prediction.changed.as_ref()?, run: self.run.as_ref()? })
    }
}

/// The result of a change, and the predicted recording with its events mapped to the recorded events.
#[derive(Clone, Copy, Debug)]
pub(super) struct Other<'a> {
    pub(super) changed: &'a Changed,
    pub(super) run: &'a Arc<PredictedRun>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Opening {
    pub(super) name: String,
    pub(super) trace: Identity<Trace>,
    pub(super) compares: bool,
}

#[derive(Debug)]
pub(crate) struct Predicted {
    /// The predicted recording.
    pub recording: Recording,
    /// Whether to compare the recording with its original.
    pub compares: bool,
}

impl Predicted {
    pub(super) fn of(opening: &Opening, _: &Cancel) -> Option<Self> {
        let Opening { name, trace, compares } = opening;
        Some(Self { recording: Recording::new(name, None, trace.get()?), compares: *compares })
    }
}
