//! The phases that a recording itself contains: phase events, tags, and ranges marked by PyTorch.

use highwater_snapshots::Phase;
use highwater_snapshots::event::EventKind;
use highwater_snapshots::ids::EventId;
use highwater_snapshots::trace::Trace;

/// Returns whether the recording contains the phases of the program, so that none are guessed.
pub(super) fn has_recorded_phases(trace: &Trace) -> bool {
    trace.spans.are_tagged() || trace.events.kind.contains(&EventKind::Phase)
}

/// The recorded phases, with a cursor that follows the events.
pub(super) struct Recorded {
    /// Ranges of events with their phases, ordered by first event.
    ranges: Vec<(EventId, EventId, Phase)>,
    next: usize,
    open: Vec<(EventId, Phase)>,
    pub(super) has_just_ended: bool,
}

impl Recorded {
    pub(super) fn of(trace: &Trace) -> Self {
        let spans = trace.spans.rows().iter().map(|span| (span.first, span.end, span.phase));
        let spans = spans.filter(|(_, _, phase)| !matches!(phase, Phase::Setup | Phase::Other));
        let marked = trace.annotations.iter().filter(|annotation| !annotation.is_guessed);
        let marked = marked.filter_map(|annotation| {
            let phase = phase_of_name(trace.tables.string(annotation.name))?;
            Some((annotation.first, annotation.end, phase))
        });
        let mut ranges: Vec<_> = spans.chain(marked).collect();
        ranges.sort_by_key(|&(first, end, _)| (first, std::cmp::Reverse(end)));
        Self { ranges, next: 0, open: Vec::new(), has_just_ended: false }
    }

    /// Returns the recorded phase at `event`, and earlier phases that began and ended without an event.
    pub(super) fn at(&mut self, event: EventId) -> (Option<Phase>, Vec<Phase>) {
        let mut passed = Vec::new();
        let was_open = !self.open.is_empty();
        if !was_open && self.ranges.get(self.next).is_none_or(|(first, ..)| *first > event) {
            self.has_just_ended = false;
            return (None, passed);
        }
        while let Some(&(first, end, phase)) = self.ranges.get(self.next)
            && first <= event
        {
            self.next += 1;
            if end > event {
                self.open.push((end, phase));
            } else if first == end {
                passed.push(phase);
            }
        }
        while self.open.last().is_some_and(|(end, _)| *end <= event) {
            self.open.pop();
        }
        self.has_just_ended = was_open && self.open.is_empty();
        (self.open.last().map(|(_, phase)| *phase), passed)
    }
}

/// Returns the phase that the name of a range states, as a phase name of this project or PyTorch's name, if any.
fn phase_of_name(name: &str) -> Option<Phase> {
    match Phase::from_name(name) {
        Some(Phase::Setup | Phase::Other) => None,
        Some(phase) => Some(phase),
        _ if name.starts_with("Optimizer.step#") => Some(Phase::Optimizer),
        _ if name.starts_with("Optimizer.zero_grad#") => Some(Phase::ZeroGrad),
        _ => None,
    }
}
