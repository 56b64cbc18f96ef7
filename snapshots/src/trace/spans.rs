//! Spans: steps and phases as ranges of events.

use crate::Phase;
use crate::event::EventKind;
use crate::ids::EventId;

use super::Events;

/// A run of events of one step and phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The step; none before the first.
    pub step: Option<u32>,
    /// The phase.
    pub phase: Phase,
    /// The first event.
    pub first: EventId,
    /// One past the last event.
    pub end: EventId,
}

/// The spans of a trace: in order, without gaps, covering every event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Spans {
    rows: Vec<Span>,
}

impl Spans {
    /// Reads the spans off the step and phase events. Before the first of them the phase is
    /// [`Phase::Setup`]; a step begins in phase [`Phase::Other`]; setup lies outside all steps.
    pub(crate) fn from_events(events: &Events) -> Self {
        let mut rows = Vec::new();
        let mut current = Span { step: None, phase: Phase::Setup, first: EventId(0), end: EventId(0) };
        for (index, &kind) in events.kind.iter().enumerate() {
            let (step, phase) = match kind {
                EventKind::Step => (Some(events.subject[index]), Phase::Other),
                EventKind::Phase => match Phase::from_code(events.subject[index] as u8) {
                    Some(Phase::Setup) => (None, Phase::Setup),
                    phase => (current.step, phase.unwrap_or(Phase::Other)),
                },
                _ => continue,
            };
            if (step, phase) == (current.step, current.phase) {
                continue;
            }
            current.end = EventId::from_index(index);
            if current.first < current.end {
                rows.push(current);
            }
            current = Span { step, phase, first: current.end, end: current.end };
        }
        current.end = EventId::from_index(events.len());
        if current.first < current.end {
            rows.push(current);
        }
        Self { rows }
    }

    /// The spans, in order.
    pub fn rows(&self) -> &[Span] {
        &self.rows
    }

    /// The span that holds event `id`; `None` past the end.
    pub fn at(&self, id: EventId) -> Option<&Span> {
        let after = self.rows.partition_point(|span| span.first <= id);
        after.checked_sub(1).map(|index| &self.rows[index]).filter(|span| id < span.end)
    }

    /// The numbers of the steps, each once, in order of appearance.
    pub fn steps(&self) -> Vec<u32> {
        let mut seen = std::collections::HashSet::new();
        let steps: Vec<u32> = self.rows.iter().filter_map(|span| span.step).filter(|step| seen.insert(*step)).collect();
        steps
    }

    /// The events of step `step`: first and one past the last; `None` if there is no such step.
    pub fn step_range(&self, step: u32) -> Option<std::ops::Range<u32>> {
        let of_step = |span: &&Span| span.step == Some(step);
        let first = self.rows.iter().find(of_step)?.first.0;
        let end = self.rows.iter().rev().find(of_step)?.end.0;
        Some(first..end)
    }
}
