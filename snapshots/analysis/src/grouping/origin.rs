//! Classifies blocks by the phase of their allocation, including blocks from before the recording and from recordings
//! without phases.

use std::ops::Range;

use highwater_snapshots::Phase;
use highwater_snapshots::ids::BlockId;
use highwater_snapshots::trace::{Block, Trace};

use super::lifetime::step_of;

/// The phase in which a block was allocated, or the reason that there is no phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Origin {
    /// Before the recording.
    BeforeRecording,
    /// Allocated in this phase.
    Phase(Phase),
    /// Allocated in a recording without phases.
    Unmarked,
}

impl Origin {
    /// Number of origins.
    pub const COUNT: usize = Phase::ALL.len() + 2;

    /// Returns every origin, ordered by code.
    pub fn all() -> impl Iterator<Item = Self> {
        let phases = Phase::ALL.iter().map(|&phase| Self::Phase(phase));
        std::iter::once(Self::BeforeRecording).chain(phases).chain([Self::Unmarked])
    }

    /// The origin of `block`.
    pub fn of(trace: &Trace, block: &Block) -> Self {
        match block.is_from_before() {
            true => Self::BeforeRecording,
            false if trace.spans.is_all_setup() => Self::Unmarked,
            false => Self::Phase(trace.birth_stage(block).map_or(Phase::Other, |stage| stage.phase)),
        }
    }

    /// Returns the code, which is below [`Origin::COUNT`], for use as an array index.
    pub fn code(self) -> usize {
        match self {
            Self::BeforeRecording => 0,
            Self::Phase(phase) => phase as usize + 1,
            Self::Unmarked => Self::COUNT - 1,
        }
    }

    /// The origin with this code; [`Phase::Other`] if there is none.
    pub fn from_code(code: usize) -> Self {
        Self::all().nth(code).unwrap_or(Self::Phase(Phase::Other))
    }

    /// The name for tables and legends.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Phase(phase) => phase.name(),
            Self::BeforeRecording => "before the recording",
            Self::Unmarked => "(none)",
        }
    }

    /// The word used in conditions.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Phase(phase) => phase.name(),
            Self::BeforeRecording => "before",
            Self::Unmarked => "none",
        }
    }
}

/// Looks up the origins and steps of many blocks; fastest in allocation order.
#[derive(Clone, Debug)]
pub(crate) struct Origins<'a> {
    trace: &'a Trace,
    /// The range of events of the last phase that was looked up, its origin and its step.
    last: Option<(Range<u32>, Origin, Option<u32>)>,
}

impl<'a> Origins<'a> {
    pub(crate) fn new(trace: &'a Trace) -> Self {
        Self { trace, last: None }
    }

    pub(crate) fn of(&mut self, id: BlockId) -> Origin {
        self.origin_and_step(id).0
    }

    /// The step in which block `id` was allocated; `None` for baseline blocks and outside of steps.
    pub(crate) fn step(&mut self, id: BlockId) -> Option<u32> {
        self.origin_and_step(id).1
    }

    /// Whether block `id` was allocated and freed in the same phase of the recording.
    pub(crate) fn is_within_phase(&mut self, id: BlockId) -> bool {
        self.origin_and_step(id);
        let blocks = &self.trace.blocks;
        let (alloc, freed) = (blocks.alloc[id.0 as usize], blocks.free_requested[id.0 as usize]);
        self.last.as_ref().is_some_and(|(events, ..)| events.contains(&alloc.0) && events.contains(&freed.0))
    }

    fn origin_and_step(&mut self, id: BlockId) -> (Origin, Option<u32>) {
        let alloc = self.trace.blocks.alloc[id.0 as usize];
        if let Some((_, origin, step)) = self.last.as_ref().filter(|(events, ..)| events.contains(&alloc.0)) {
            return (*origin, *step);
        }
        let block = self.trace.blocks.get(id);
        let (origin, step) = (Origin::of(self.trace, &block), step_of(self.trace, &block));
        if let Some(span) = self.trace.spans.at(alloc).filter(|_| alloc.is_some()) {
            self.last = Some((span.first.0..span.end.0, origin, step));
        }
        (origin, step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grouping::lifetime::Lifetime;
    use highwater_notation::trace_from_text;

    #[test]
    fn codes_names_and_words_are_those_of_one_origin() {
        assert_eq!(Origin::all().count(), Origin::COUNT);
        for (code, origin) in Origin::all().enumerate() {
            assert_eq!((origin.code(), Origin::from_code(code)), (code, origin));
        }
    }

    #[test]
    fn only_blocks_allocated_in_a_recording_with_phases_have_one() {
        let origins = |text: &str| -> Vec<&str> {
            let trace = trace_from_text(text).expect("the text is a trace");
            let mut origins = Origins::new(&trace);
            let of = |id| {
                let block = trace.blocks.get(id);
                assert_eq!((origins.of(id), origins.step(id)), (Origin::of(&trace, &block), step_of(&trace, &block)));
                let is_within_phase = Lifetime::of(&trace, &block) == Lifetime::Phase;
                assert_eq!(origins.is_within_phase(id), is_within_phase);
                origins.of(id).name()
            };
            trace.blocks.ids().map(of).collect()
        };
        assert_eq!(origins("baseline a 10\nalloc b 10"), ["before the recording", "(none)"]);
        let marked =
            "baseline a 10\nalloc b 10\nstep 0\nphase forward\nalloc c 10\nfree a\nfree c\nalloc d 10\nstep 1\nfree d";
        assert_eq!(origins(marked), ["before the recording", "setup", "forward", "forward"]);
    }
}
