//! Steps and phases as ranges of events.
//!
//! Steps and phases are computed from their events if there are any, or otherwise from the annotations, by these rules:
//!
//! - **Steps** are the annotations named as steps: first by tags of allocations, otherwise by `torch.profiler`'s
//!   spelling, else by words, otherwise guessed ones; `step_names` defines the names. Of nested annotations the
//!   outermost counts; if two overlap, the earlier ends where the later begins.
//! - **Steps by the optimizer.** If no annotation is a step, a step ends where an outermost optimizer annotation ends.
//!   Steps are numbered from 0; events after the last end are one more step, and a step without events is left out. The
//!   first begins with the first phase annotation if a forward comes before any optimizer, otherwise with the first
//!   event, since the end of setup is unknown.
//! - **Phase** at an event: the phase of the innermost annotation around it that is named as one. If two overlap, the
//!   later counts as the inner one. Tags take precedence over other annotations made by the program, and these over
//!   guessed ones.
//! - **Elsewhere** the phase is [`Phase::Other`], but [`Phase::Setup`] before the first step.
//! - An event outside all step annotations has no step. The device of an annotation does not matter.
//!
//! Without step or phase annotations, everything is setup, as before the first step event.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use crate::Phase;
use crate::event::{EventKind, What};
use crate::ids::EventId;
use crate::stage::Stage;
use crate::tables::Tables;

use super::step_names::{Meaning, StepName};
use super::{Annotation, Events, Start};

/// A range of consecutive events in one step and phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The step; `None` outside of steps.
    pub step: Option<u32>,
    /// The phase of the program in these events.
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
    is_guessed: bool,
    names_steps: bool,
    is_tagged: bool,
    /// Whether the whole recording has steps or phases, even if this window has none.
    has_stages: bool,
}

#[derive(Clone, Copy, Debug)]
struct StepRange {
    step: u32,
    first: u32,
    end: u32,
}

/// The origin of a step or a phase, ordered from least to most reliable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    Guess,
    Name,
    Tag,
}

#[derive(Clone, Copy, Debug)]
struct PhaseRange {
    phase: Phase,
    source: Source,
    first: u32,
    end: u32,
}

/// The steps found in annotations, without overlap and in order.
#[derive(Clone, Debug, Default)]
struct Steps {
    rows: Vec<StepRange>,
    is_guessed: bool,
    is_named: bool,
}

impl Spans {
    /// Computes the spans from the step and phase events. Before the first event, the phase is [`Phase::Setup`]; a step
    /// starts in phase [`Phase::Other`]; setup is outside of steps.
    pub(crate) fn from_events(events: &Events, start: &Start) -> Self {
        let mut rows = Vec::new();
        let names_steps = events.kind.contains(&EventKind::Step) || start.stage.step.is_some();
        let mut stage = start.stage;
        let mut current = Span { step: stage.step, phase: stage.phase, first: EventId(0), end: EventId(0) };
        for (index, &kind) in events.kind.iter().enumerate() {
            let what = match kind {
                EventKind::Step => What::Step(events.subject[index]),
                EventKind::Phase => What::Phase(Phase::from_code(events.subject[index] as u8).unwrap_or(Phase::Other)),
                _ => continue,
            };
            stage = stage.after(&what, start.events + index as u64);
            let Stage { step, phase, .. } = stage;
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
        Self { rows, is_guessed: false, names_steps, is_tagged: false, has_stages: start.has_stages }
    }

    /// Computes the spans of `events` events from annotations, by the rules above; `None` if no annotation is a step or
    /// phase. `annotations` must be ordered by first event, outer before inner. Takes O(n log n) time.
    pub(crate) fn from_annotations(annotations: &[Annotation], tables: &Tables, events: usize) -> Option<Self> {
        let events = u32::try_from(events).ok()?;
        let mut names = HashMap::new();
        let mut steps: Vec<(bool, StepName, StepRange)> = Vec::new();
        let mut phases = Vec::new();
        let mut is_tagged = false;
        for annotation in annotations {
            let Annotation { name, is_guessed, .. } = *annotation;
            let (first, end) = (annotation.first.0.min(events), annotation.end.0.min(events));
            if first > end {
                continue;
            }
            let meaning = names.entry(name).or_insert_with(|| Meaning::of(tables.string(name)));
            if let Some(named) = meaning.step.filter(|_| first < end) {
                let (StepName::Tag(step) | StepName::Profiler(step) | StepName::Worded(step)) = named;
                steps.push((is_guessed, named, StepRange { step, first, end }));
            }
            if let Some(phase) = meaning.phase {
                let source = match (is_guessed, meaning.is_tag) {
                    (true, _) => Source::Guess,
                    (false, false) => Source::Name,
                    (false, true) => Source::Tag,
                };
                phases.push(PhaseRange { phase, source, first, end });
            }
            is_tagged |= meaning.is_tag;
        }
        let steps = Steps::from_names(&steps).or_else(|| Steps::from_optimizer(&phases, events)).unwrap_or_default();
        phases.retain(|range| range.first < range.end);
        if events == 0 || (steps.rows.is_empty() && phases.is_empty()) {
            return None;
        }
        Some(Self { is_tagged, ..Self::from_ranges(&steps, &phases, events) })
    }

    /// Combines steps and phases, both ordered by their first events, into spans.
    fn from_ranges(steps: &Steps, phases: &[PhaseRange], events: u32) -> Self {
        let ends = phases.iter().flat_map(|range| [range.first, range.end]);
        let mut bounds: Vec<u32> = steps.rows.iter().flat_map(|step| [step.first, step.end]).chain(ends).collect();
        bounds.extend([0, events]);
        bounds.sort_unstable();
        bounds.dedup();
        let first_step = steps.rows.first().map_or(0, |step| step.first);
        let mut steps_left = steps.rows.as_slice();
        let mut phases_left = phases.iter().enumerate().peekable();
        // The innermost is on top. Annotations that have ended are removed when they reach the top.
        let mut open = BinaryHeap::new();
        let mut spans = Self { names_steps: steps.is_named, ..Self::default() };
        for bound in bounds.windows(2) {
            let (first, end) = (bound[0], bound[1]);
            while let Some((order, range)) = phases_left.next_if(|(_, range)| range.first <= first) {
                open.push((range.source, range.first, Reverse(range.end), order));
            }
            while open.peek().is_some_and(|(_, _, Reverse(end), _)| *end <= first) {
                open.pop();
            }
            while let Some((_, later)) = steps_left.split_first().filter(|(step, _)| step.end <= first) {
                steps_left = later;
            }
            let step = steps_left.first().filter(|step| step.first <= first).map(|step| step.step);
            let range = open.peek().and_then(|(.., order)| phases.get(*order));
            let phase = match range {
                Some(range) => range.phase,
                None if first < first_step => Phase::Setup,
                None => Phase::Other,
            };
            spans.is_guessed |=
                range.is_some_and(|range| range.source == Source::Guess) || (step.is_some() && steps.is_guessed);
            match spans.rows.last_mut() {
                Some(last) if (last.step, last.phase) == (step, phase) => last.end = EventId(end),
                _ => spans.rows.push(Span { step, phase, first: EventId(first), end: EventId(end) }),
            }
        }
        spans
    }

    /// Whether steps or phases were guessed from stacks, not marked by the program.
    pub fn are_guessed(&self) -> bool {
        self.is_guessed
    }

    /// Whether steps and phases come from allocation tags.
    pub fn are_tagged(&self) -> bool {
        self.is_tagged
    }

    /// Returns whether events or annotations name the steps. If not, optimizer annotations delimit them.
    pub fn names_steps(&self) -> bool {
        self.names_steps
    }

    /// Returns whether the recording has no steps or phases.
    pub fn is_all_setup(&self) -> bool {
        !self.has_stages && self.rows.iter().all(|span| span.step.is_none() && span.phase == Phase::Setup)
    }

    /// The spans, in order.
    pub fn rows(&self) -> &[Span] {
        &self.rows
    }

    /// The span that contains event `id`; `None` after the last event.
    pub fn at(&self, id: EventId) -> Option<&Span> {
        let after = self.rows.partition_point(|span| span.first <= id);
        after.checked_sub(1).map(|index| &self.rows[index]).filter(|span| id < span.end)
    }

    /// The step numbers, without duplicates, in order of appearance.
    pub fn steps(&self) -> Vec<u32> {
        let mut seen = std::collections::HashSet::new();
        let steps: Vec<u32> = self.rows.iter().filter_map(|span| span.step).filter(|step| seen.insert(*step)).collect();
        steps
    }

    /// Returns the events from the first to the last of step `step` as a half-open range; `None` if there is no such
    /// step.
    pub fn step_range(&self, step: u32) -> Option<std::ops::Range<u32>> {
        let of_step = |span: &&Span| span.step == Some(step);
        let first = self.rows.iter().find(of_step)?.first.0;
        let end = self.rows.iter().rev().find(of_step)?.end.0;
        Some(first..end)
    }
}

impl Steps {
    /// Returns the steps from annotations, using only the most reliable kind of name that occurs; `None` if none
    /// occurs.
    fn from_names(named: &[(bool, StepName, StepRange)]) -> Option<Self> {
        // From the most reliable kind to the least.
        let kind = |is_guessed: bool, name: StepName| match name {
            StepName::Tag(_) => 0,
            StepName::Profiler(_) => 1 + 2 * usize::from(is_guessed),
            StepName::Worded(_) => 2 + 2 * usize::from(is_guessed),
        };
        (0..=4).find_map(|wanted| {
            let of_kind = named.iter().filter(|(is_guessed, name, _)| kind(*is_guessed, *name) == wanted);
            let mut rows: Vec<StepRange> = Vec::new();
            for (.., next) in of_kind {
                match rows.last_mut() {
                    Some(last) if next.end <= last.end => continue,
                    Some(last) => last.end = last.end.min(next.first),
                    None => {}
                }
                rows.push(*next);
            }
            (!rows.is_empty()).then_some(Self { rows, is_guessed: wanted > 2, is_named: true })
        })
    }

    /// Returns the steps that end with the outermost optimizer annotations; `None` if there is no such annotation.
    fn from_optimizer(phases: &[PhaseRange], events: u32) -> Option<Self> {
        let of_optimizer = |range: &&PhaseRange| range.phase == Phase::Optimizer;
        let is_guess = |range: &&PhaseRange| range.source == Source::Guess;
        let is_guessed = phases.iter().filter(of_optimizer).all(|range| is_guess(&range));
        let mut optimizer = phases.iter().filter(of_optimizer).filter(|range| is_guess(range) == is_guessed);
        let mut reach = *optimizer.next()?;
        let begins_with = phases.first().map_or(0, |range| range.first);
        let mut before = phases.iter().take_while(|range| range.first < reach.first);
        let mut first = if before.any(|range| range.phase == Phase::Forward) { begins_with } else { 0 };
        let mut rows = Vec::new();
        let mut end_step = |end: u32| {
            if first < end {
                rows.push(StepRange { step: rows.len() as u32, first, end });
                first = end;
            }
        };
        for next in optimizer {
            if next.first >= reach.end {
                end_step(reach.end);
                reach = *next;
            }
            reach.end = reach.end.max(next.end);
        }
        end_step(reach.end);
        end_step(events);
        Some(Self { rows, is_guessed, is_named: false })
    }
}
