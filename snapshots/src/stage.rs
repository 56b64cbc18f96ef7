//! The step and phase at an event or an allocation, for recordings that are read from the middle.

use serde::{Deserialize, Serialize};

use crate::category::Phase;
use crate::event::What;

/// The step and the phase at some point of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    /// The step; `None` outside of steps.
    pub step: Option<u32>,
    /// The running phase.
    pub phase: Phase,
    /// The index of the event at which the step or the phase began.
    pub since: u64,
}

impl Default for Stage {
    fn default() -> Self {
        Self { step: None, phase: Phase::Setup, since: 0 }
    }
}

impl Stage {
    /// Returns the stage after the event `what` with index `number`. A step starts in phase [`Phase::Other`].
    #[inline]
    #[must_use]
    pub fn after(self, what: &What, number: u64) -> Self {
        let (step, phase) = match *what {
            What::Step(step) => (Some(step), Phase::Other),
            What::Phase(Phase::Setup) => (None, Phase::Setup),
            What::Phase(phase) => (self.step, phase),
            _ => return self,
        };
        if (step, phase) == (self.step, self.phase) { self } else { Self { step, phase, since: number } }
    }
}

/// An allocation or a requested free that is outside of the window of events that was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outside {
    /// The index of the event.
    pub event: u64,
    /// The time, in nanoseconds since the recording's origin.
    pub time_ns: u64,
    /// The step and phase.
    pub stage: Stage,
}
