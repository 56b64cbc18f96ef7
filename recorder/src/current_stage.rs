//! The events at which the current step and phase began, for recordings and files that begin in the middle.

use highwater_snapshots::Phase;
use highwater_snapshots::event::{Event, What};

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct CurrentStage {
    step: Option<Event>,
    phase: Option<Event>,
}

impl CurrentStage {
    /// Returns whether an event concerns steps, phases or marks rather than memory.
    pub(crate) fn concerns(event: &Event) -> bool {
        matches!(event.what, What::Step(_) | What::Phase(_) | What::Mark(_))
    }

    pub(crate) fn follow(&mut self, event: &Event) {
        match event.what {
            What::Step(_) => (self.step, self.phase) = (Some(*event), None),
            What::Phase(Phase::Setup) => (self.step, self.phase) = (None, None),
            What::Phase(_) => self.phase = Some(*event),
            _ => {}
        }
    }

    pub(crate) fn events(&self) -> impl Iterator<Item = &Event> {
        self.step.iter().chain(&self.phase)
    }
}
