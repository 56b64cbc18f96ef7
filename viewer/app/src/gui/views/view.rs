//! The input that every view gets, and the actions that it returns; these link all views.

use std::sync::Arc;

use highwater_analysis::{Filter, Matches, Moment};
use highwater_snapshots::BlockId;

use crate::gui::colouring::Colouring;
use crate::selection::Selection;
use crate::session::{DeviceIndex, Recording};

/// The reason for the shown moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No other moment was chosen: the peak.
    Peak,
    /// It is under the pointer.
    Pointer,
    /// It was clicked.
    Pinned,
}

/// The input of all views in one frame.
#[derive(Clone, Copy, Debug)]
pub struct ViewContext<'a> {
    /// The recording.
    pub recording: &'a Arc<Recording>,
    /// Device, total, axis, visible part, pinned block, marks.
    pub selection: &'a Selection,
    /// The moment to show: under the pointer, else pinned, else the peak.
    pub moment: Moment,
    /// The reason for it.
    pub reason: Reason,
    /// The blocks that meet the search conditions.
    pub matches: &'a Arc<Matches>,
    /// The search conditions.
    pub filter: &'a Filter,
    /// The timeline's colours; `None` until its first picture is drawn.
    pub colouring: Option<&'a Colouring>,
}

impl<'a> ViewContext<'a> {
    /// The selected device.
    pub fn index(&self) -> &'a DeviceIndex {
        &self.recording.devices[self.selection.device]
    }
}

/// A request from one view that all views follow.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Pin this moment: the state after this many events.
    Moment(usize),
    /// Pin the moment after this event, by its number in the whole recording, in whichever part it is; `None`: the moment
    /// before the first event.
    Event(Option<u64>),
    /// Pin this block, at the pinned moment if it is live then, else at its allocation, and show its facts.
    Block(BlockId),
    /// Show the lifetime of this block in the timeline.
    Life(BlockId),
    /// Show this range of moments in the timeline.
    Span(std::ops::Range<usize>),
    /// Show this range of the horizontal axis in the timeline, at the current height.
    Across(std::ops::Range<f64>),
    /// Add this `--where` condition to the search.
    Where(String),
    /// Replace all search conditions by this one; an empty one matches all blocks.
    Only(String),
    /// Show a failed request of this device in Segments: at the pinned moment, else the first.
    Oom,
    /// Show this message to the user: what was done, or why not.
    ShowMessage(String),
}
