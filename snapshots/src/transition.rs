//! The effect of an event on the memory of its device. All code that follows a recording's events, in the recorder and
//! in readers, calls [`transition`] and applies the result to its own state.

use serde::{Deserialize, Serialize};

use crate::event::EventKind;

/// The state before an event: that of the block to which the event refers, or of the segment that the event releases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Named {
    /// Not allocated or reserved, or already freed.
    Unknown,
    /// A live block, or a reserved segment.
    Live,
    /// A block awaiting free, whose free was requested but is not completed.
    Waiting,
}

/// The effect of an event on the memory of its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transition {
    /// The block becomes live. An earlier block with its key counts as freed, since its free event is missing.
    Allocated {
        /// The state of the earlier block.
        former: Named,
    },
    /// The free of the block is requested. The block is no longer live, but still active.
    FreeRequested,
    /// The block is no longer active.
    FreeCompleted {
        /// Whether the block was live until now, because the event that requested its free is missing.
        was_live: bool,
    },
    /// The block gets a category.
    Tagged {
        /// Whether the block is live.
        is_live: bool,
    },
    /// The block is used.
    Used,
    /// A segment is reserved, or pages are mapped.
    Reserved,
    /// A segment is released, or pages are unmapped.
    Released {
        /// Whether the reservation was recorded. If not, its bytes were never counted as reserved. Always true for
        /// unmapped pages.
        is_known: bool,
    },
    /// The driver reports the memory in use on the device.
    Sampled,
    /// The event does not apply to the block or segment in its current state, and changes nothing.
    Refused(Contradiction),
    /// The event has no effect on memory.
    Nothing,
}

/// A contradiction between an event and those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contradiction {
    /// A free or tag of an unknown block.
    UnmatchedFree,
    /// An allocation of a block that was in use.
    RepeatedAlloc,
    /// A use of a block that was not live.
    UnmatchedUse,
    /// A release of an unknown segment.
    UnmatchedRelease,
}

/// Returns the effect of an event of `kind`, given the state of the block or segment to which it refers; `named` is
/// ignored for kinds that refer to neither.
#[inline]
pub const fn transition(kind: EventKind, named: Named) -> Transition {
    match (kind, named) {
        (EventKind::Alloc, former) => Transition::Allocated { former },
        (EventKind::FreeRequested, Named::Live) => Transition::FreeRequested,
        (EventKind::FreeCompleted, Named::Live) => Transition::FreeCompleted { was_live: true },
        (EventKind::FreeCompleted, Named::Waiting) => Transition::FreeCompleted { was_live: false },
        (EventKind::Tag, Named::Live) => Transition::Tagged { is_live: true },
        (EventKind::Tag, Named::Waiting) => Transition::Tagged { is_live: false },
        (EventKind::FreeRequested | EventKind::FreeCompleted | EventKind::Tag, _) => {
            Transition::Refused(Contradiction::UnmatchedFree)
        }
        (EventKind::Used, Named::Live) => Transition::Used,
        (EventKind::Used, _) => Transition::Refused(Contradiction::UnmatchedUse),
        (EventKind::SegmentAlloc | EventKind::SegmentMap, _) => Transition::Reserved,
        (EventKind::SegmentFree, named) => Transition::Released { is_known: matches!(named, Named::Live) },
        // Pages may be unmapped in other pieces than they were mapped.
        (EventKind::SegmentUnmap, _) => Transition::Released { is_known: true },
        (EventKind::DeviceUsed, _) => Transition::Sampled,
        (EventKind::Oom | EventKind::Step | EventKind::Phase | EventKind::Mark, _) => Transition::Nothing,
    }
}

impl Transition {
    /// The contradiction that the transition reveals, if any.
    #[inline]
    pub const fn contradiction(self) -> Option<Contradiction> {
        match self {
            Self::Allocated { former: Named::Live | Named::Waiting } => Some(Contradiction::RepeatedAlloc),
            Self::Released { is_known: false } => Some(Contradiction::UnmatchedRelease),
            Self::Refused(contradiction) => Some(contradiction),
            _ => None,
        }
    }
}

/// Number of events that contradicted earlier events, by kind of contradiction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Contradictions {
    /// Frees and tags of unknown blocks.
    pub unmatched_frees: u32,
    /// Allocations of blocks that were in use.
    pub repeated_allocs: u32,
    /// Uses of blocks that were not live.
    pub unmatched_uses: u32,
    /// Releases of unknown segments.
    pub unmatched_releases: u32,
}

impl Contradictions {
    /// Counts the contradiction of a transition, if any.
    #[inline]
    pub fn count(&mut self, transition: Transition) {
        if let Some(contradiction) = transition.contradiction() {
            *match contradiction {
                Contradiction::UnmatchedFree => &mut self.unmatched_frees,
                Contradiction::RepeatedAlloc => &mut self.repeated_allocs,
                Contradiction::UnmatchedUse => &mut self.unmatched_uses,
                Contradiction::UnmatchedRelease => &mut self.unmatched_releases,
            } += 1;
        }
    }
}
