//! The input that every view gets, and the wishes that it returns; these link all views.

use std::sync::Arc;

use highwater_analysis::{Filter, Matches, Moment};
use highwater_snapshots::BlockId;

use super::colouring::Colouring;
use crate::selection::Selection;
use crate::session::{DeviceIndex, Recording};

/// Which moment is shown, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Nothing else was chosen.
    Peak,
    /// It is under the pointer.
    Pointer,
    /// It was clicked.
    Pinned,
}

/// What is looked at in this frame. The same for all views.
#[derive(Clone, Copy, Debug)]
pub struct Scene<'a> {
    /// The recording.
    pub recording: &'a Arc<Recording>,
    /// Device, total, axis, view, pinned block, marks.
    pub selection: &'a Selection,
    /// The moment that views of one moment show: under the pointer, else pinned, else the peak.
    pub moment: Moment,
    /// Why that one.
    pub reason: Reason,
    /// The blocks that meet the conditions of the search box.
    pub matches: &'a Matches,
    /// Those conditions.
    pub filter: &'a Filter,
    /// The timeline's colours; none until its first picture is drawn.
    pub colouring: Option<&'a Colouring>,
}

impl<'a> Scene<'a> {
    /// The chosen device.
    pub fn index(&self) -> &'a DeviceIndex {
        &self.recording.devices[self.selection.device]
    }
}

/// The user's request in one view and all views follow.
#[derive(Clone, Debug, PartialEq)]
pub enum Wish {
    /// Pin this moment: the state after so many events.
    Moment(usize),
    /// Pin this block, at the pinned moment if it lives then, else at its birth, and show its facts.
    Block(BlockId),
    /// Show the whole life of this block in the timeline.
    Life(BlockId),
    /// Show these moments in the timeline.
    Span(std::ops::Range<usize>),
    /// Show this part of the horizontal axis in the timeline, as high as it is.
    Across(std::ops::Range<f64>),
    /// Add this condition, in the language of `--where`, to those that blocks must meet.
    Where(String),
    /// Let this be the only condition that blocks must meet; the empty one lets all pass.
    Only(String),
    /// Show a failed request of this device in Segments: the one at the pinned moment, else the first.
    Oom,
    /// Say this to the user: what was done, or why not.
    Tell(String),
}
