//! The trait of views of a recording, their input, and the actions that they request.

use std::io;
use std::sync::Arc;

use eframe::egui::Ui;
use highwater_analysis::{Filter, Matches, Moment};
use highwater_snapshots::BlockId;

use crate::gui::colouring::Colouring;
use crate::gui::identity::Identity;
use crate::gui::views::timeline::{Picture, PlotFrame, Timeline};
use crate::gui::widgets::{Computed, theme};
use crate::{DeviceIndex, Recording, Selection};

/// A closure that writes a table as CSV, on any thread.
pub(crate) type WriteTable = Box<dyn FnOnce(&mut dyn io::Write) -> io::Result<()> + Send>;

/// A view of a recording at the side of the timeline or below it. Its content is computed in the background.
pub trait RecordingView: Computed {
    /// Shows the view in the available space, with scroll bars if that is too small. Returns the requested actions.
    fn view_ui(&mut self, ui: &mut Ui, context: &ViewContext<'_>) -> Vec<Action>;

    /// Returns a closure that writes the view's table as CSV on any thread.
    ///
    /// # Errors
    /// Fails with a message if the view has no table, or has not computed it yet.
    fn table(&mut self, context: &ViewContext<'_>) -> Result<WriteTable, String>;

    /// For views below the timeline, the key under which their height is stored, and their initial height in points.
    fn panel(&self) -> (&'static str, f32) {
        ("below", theme::BOTTOM_HEIGHT)
    }

    /// Moves the keyboard focus to the view's first field, if there is one.
    fn focus(&mut self) {}
}

/// Returns a closure that writes the complete table as CSV. `subject` begins the error message and includes the verb, such
/// as `the plan is`.
///
/// # Errors
/// Fails with a message if the table is not computed yet.
pub(super) fn whole_table(csv: Option<String>, subject: &str) -> Result<WriteTable, String> {
    let csv = csv.ok_or_else(|| format!("{subject} still being computed; try again in a moment"))?;
    Ok(Box::new(move |out| out.write_all(csv.as_bytes())))
}

/// The timeline above a view. The view may share its horizontal position, columns and colours.
#[derive(Clone, Copy, Debug)]
pub struct Under<'a> {
    /// The timeline's plot rectangle, with the visible range.
    pub frame: &'a PlotFrame,
    /// The picture of the visible range.
    pub picture: &'a Picture,
    /// The title and the lines of the label of a failed request.
    pub failure: Option<&'a [String; 2]>,
}

impl<'a> Under<'a> {
    /// Returns the timeline's frame and picture; `None` until its first picture is drawn.
    pub fn of(timeline: &'a Timeline) -> Option<Self> {
        Some(Self { frame: timeline.frame()?, picture: timeline.picture()?, failure: timeline.failure() })
    }
}

/// The reason a moment is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The moment is the peak, since the user selected no other moment.
    Peak,
    /// The user pinned the moment by a click or a command.
    Pinned,
}

/// The input of views.
#[derive(Clone, Copy, Debug)]
pub struct ViewContext<'a> {
    /// The recording to show.
    pub recording: &'a Arc<Recording>,
    /// Device, total, axis, visible range, pinned block, and marks.
    pub selection: &'a Selection,
    /// The moment to show: the pinned moment, otherwise the peak; in views below the timeline, the moment under the
    /// pointer takes precedence.
    pub moment: Moment,
    /// Why this moment is shown, unless it is the moment under the pointer.
    pub reason: Reason,
    /// The blocks that match the search.
    pub matches: &'a Arc<Matches>,
    /// The search conditions.
    pub filter: &'a Filter,
    /// The timeline above; `None` until its first picture is drawn.
    pub under: Option<Under<'a>>,
    /// Whether the view is drawn for a picture file, without controls.
    pub is_picture: bool,
}

impl<'a> ViewContext<'a> {
    /// The indexes of the selected device.
    pub fn index(&self) -> &'a DeviceIndex {
        &self.recording.devices[self.selection.device]
    }

    /// The colours of blocks in the timeline; `None` until its first picture is drawn.
    pub fn colouring(&self) -> Option<&'a Arc<Colouring>> {
        self.under.map(|under| &under.picture.colouring)
    }
}

/// A device of a recording, for the keys of background queries.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OfDevice {
    pub recording: Identity<Recording>,
    /// Index of the device in the recording.
    pub device: usize,
}

impl OfDevice {
    pub(crate) fn selected(context: &ViewContext<'_>) -> Self {
        Self { recording: Identity::of(context.recording), device: context.selection.device }
    }
}

/// An action that a view requests and that affects all views.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Pin this moment: the state after this many events.
    Moment(usize),
    /// Pin the moment after this event, given by its index in the whole recording, in any part; `None` stands for the
    /// moment before the first event.
    Event(Option<u64>),
    /// Pin this block, and show its facts. If it is not live at the pinned moment, pin the moment of its allocation.
    Block(BlockId),
    /// Show the lifetime of this block in the timeline.
    Life(BlockId),
    /// Show this range of moments in the timeline.
    Span(std::ops::Range<usize>),
    /// Show this range of the horizontal axis in the timeline, at the current height.
    Across(std::ops::Range<f64>),
    /// Add this `--where` condition to the search.
    Where(String),
    /// Replace all search conditions by this one; an empty condition matches all blocks.
    Only(String),
    /// Show a failed request of this device in Segments: the one at the pinned moment, otherwise the first.
    Oom,
    /// Show the leaks in Statistics.
    Leaks,
    /// Show this message to the user.
    ShowMessage(String),
}
