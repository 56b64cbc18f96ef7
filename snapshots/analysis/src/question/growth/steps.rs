//! The steps of a device, and the reasons the last one may be incomplete.

use std::collections::HashMap;
use std::fmt;
use std::ops::{ControlFlow, Range};

use highwater_snapshots::event::EventKind;
use highwater_snapshots::ids::{BlockId, DeviceId, EventId};
use highwater_snapshots::trace::Trace;
use highwater_snapshots::transition::Transition;
use highwater_snapshots::{Category, Phase, Result};

use crate::index::device_spans::{ActiveSpan, StepActivity, active_spans, append_spans};
use crate::question::source::Source;

/// Number of events read at a time.
const EVENTS: u64 = 1 << 20;

/// The reason a step is incomplete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cut {
    /// A request failed in the step, on any device.
    OutOfMemory,
    /// The step lacks phases of the previous step.
    Lacks(Vec<Phase>),
    /// The step frees parameters, because the program ends in it.
    FreesModel,
    /// The step allocates almost nothing.
    AllocatesLittle,
}

/// Formats the reason as a predicate of which the step is the subject.
impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OutOfMemory => f.write_str("runs out of memory"),
            Self::Lacks(phases) => {
                let names: Vec<&str> = phases.iter().map(|phase| phase.name()).collect();
                let listed = match names.as_slice() {
                    [] => String::new(),
                    [one] => (*one).to_owned(),
                    [others @ .., last] => format!("{} and {last}", others.join(", ")),
                };
                write!(f, "has no {listed}")
            }
            Self::FreesModel => f.write_str("frees the model"),
            Self::AllocatesLittle => f.write_str("allocates almost nothing"),
        }
    }
}

/// Returns the code that marks steps in this kind of program, for messages.
pub fn how_to_mark_steps(trace: &Trace) -> &'static str {
    match trace.header.recorder.as_str() {
        "PyTorch" => "with torch.profiler.record_function(f\"step {i}\")",
        _ => "with scope::step(i)",
    }
}

#[derive(Clone)]
pub(super) struct Run {
    pub(super) step: u32,
    pub(super) events: Range<u64>,
    pub(super) phases: Vec<Phase>,
}

/// The longest time around each point in which no memory is allocated or freed. Distinguishes idle points from minima
/// within bursts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Idle {
    /// The shortest of these times at an idle point.
    pub(super) shortest_ns: u64,
    /// The longest of these times at a minimum within a burst.
    pub(super) longest_within_ns: u64,
}

/// The steps of a device, ordered by first event.
#[derive(Clone)]
pub(crate) struct Steps {
    pub(super) runs: Vec<Run>,
    /// Facts about the last two steps.
    pub(super) facts: Vec<StepFacts>,
    /// The range of all events of the recording.
    pub(super) events: Range<u64>,
    pub(super) how_to_mark: &'static str,
    /// The property that distinguishes idle points, if the steps are bursts and time decides.
    pub(super) idle: Option<Idle>,
}

impl Steps {
    /// Returns the steps of `device`; `spans` contains all spans of the recording.
    pub(crate) fn of(source: &Source<'_>, device: DeviceId, spans: &[ActiveSpan]) -> Result<Self> {
        let of_device = StepActivity::of(spans.iter().map(|span| (span.step, span.activity)));
        let mut row_of: HashMap<u32, usize> = HashMap::new();
        let mut runs: Vec<Run> = Vec::new();
        for span in spans.iter().filter(|span| of_device.is_of_device(span.step)) {
            let Some(step) = span.step else { continue };
            let row = *row_of.entry(step).or_insert(runs.len());
            if row == runs.len() {
                runs.push(Run { step, events: span.events.start..0, phases: Vec::new() });
            }
            runs[row].events.end = span.events.end;
            if !runs[row].phases.contains(&span.phase) && span.activity.is_of_device() {
                runs[row].phases.push(span.phase);
            }
        }
        let last = runs[runs.len().saturating_sub(2)..].iter();
        let facts = last.map(|run| StepFacts::of(source, device, run.events.clone())).collect::<Result<_>>()?;
        let how_to_mark = how_to_mark_steps(source.facts());
        Ok(Self { runs, facts, events: source.events(), how_to_mark, idle: None })
    }

    pub(crate) fn of_device(source: &Source<'_>, device: DeviceId) -> Result<Self> {
        let mut spans = Vec::new();
        let take = |more| append_spans(&mut spans, more);
        source.each_window(|trace| active_spans(trace, device), take, &mut |_| ControlFlow::Continue(()))?;
        Self::of(source, device, &spans)
    }

    /// Returns the event indices at which steps begin or end.
    pub(super) fn bounds(&self) -> impl Iterator<Item = u64> {
        self.runs.iter().flat_map(|run| [run.events.start, run.events.end])
    }

    /// Returns the reason the last step is incomplete, judged by the step before it; `None` if it is complete. A last
    /// step is incomplete if a request failed in it on any device, or if it lacks almost everything that the previous
    /// step has: all of its training phases, or more than 99% of its allocated bytes. A step with which the recording
    /// ends
    /// may also lack individual phases, or contain the end of the program, which frees the model.
    pub(super) fn cut(&self) -> Option<Cut> {
        let facts = self.facts.as_slice();
        if facts.last().is_some_and(|last| last.ran_out) {
            return Some(Cut::OutOfMemory);
        }
        let ([.., before, last], [before_facts, last_facts]) = (self.runs.as_slice(), facts) else { return None };
        let is_training = |phase: &Phase| !matches!(phase, Phase::Setup | Phase::Other | Phase::Eval);
        let had: Vec<Phase> = before.phases.iter().copied().filter(is_training).collect();
        let lacks: Vec<Phase> = had.iter().copied().filter(|phase| !last.phases.contains(phase)).collect();
        let is_followed = last.events.end < self.events.end;
        let frees_model = last_facts.frees_model && !before_facts.frees_model;
        let is_empty = (!had.is_empty() && lacks.len() == had.len())
            || last_facts.allocated.saturating_mul(100) < before_facts.allocated;
        match is_empty || !is_followed {
            true if frees_model => Some(Cut::FreesModel),
            true if !lacks.is_empty() => Some(Cut::Lacks(lacks)),
            true if is_empty => Some(Cut::AllocatesLittle),
            _ => None,
        }
    }
}

/// The facts about a device in a step, or in a part of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct StepFacts {
    /// Whether a request failed, on any device.
    ran_out: bool,
    /// Bytes allocated on the device.
    allocated: u64,
    /// Whether parameters on the device are freed.
    frees_model: bool,
}

impl StepFacts {
    fn of(source: &Source<'_>, device: DeviceId, events: Range<u64>) -> Result<Self> {
        let mut facts = Self::default();
        for window in source.windows_within(events, EVENTS) {
            let window = window?;
            facts = facts.and(Self::in_window(&window.trace, device, window.events));
        }
        Ok(facts)
    }

    fn in_window(trace: &Trace, device: DeviceId, events: Range<usize>) -> Self {
        let (columns, blocks) = (&trace.events, &trace.blocks);
        let mut facts = Self { ran_out: columns.kind[events.clone()].contains(&EventKind::Oom), ..Self::default() };
        for index in events.filter(|index| columns.device[*index] == device) {
            let block = BlockId(columns.subject[index]);
            match trace.transition(EventId::from_index(index)) {
                Transition::Allocated { .. } => {
                    facts.allocated = facts.allocated.saturating_add(blocks.allocated[block.0 as usize]);
                }
                Transition::FreeRequested => {
                    facts.frees_model |= blocks.category[block.0 as usize] == Category::Parameter;
                }
                _ => {}
            }
        }
        facts
    }

    fn and(self, other: Self) -> Self {
        Self {
            ran_out: self.ran_out | other.ran_out,
            allocated: self.allocated.saturating_add(other.allocated),
            frees_model: self.frees_model | other.frees_model,
        }
    }
}
