//! Commands that change the view in a comparison.

use std::sync::Arc;

use eframe::egui::Context;
use highwater_analysis::{DiffAt, GroupKey, Moment, TreeKey};

use super::pair::Shown;
use super::{DiffLook, DiffView, choices};
use crate::gui::views::group_keys::next_key;
use crate::gui::views::timeline::Paint;
use crate::gui::widgets::next_of;
use crate::{Axis, Command, Recording};

impl DiffView {
    /// Whether a comparison can execute `command` now; `None` if comparisons do not handle the command.
    pub fn can(&self, command: Command) -> Option<bool> {
        use Command as C;
        let has_steps = || self.choices.at.iter().any(|at| matches!(at, DiffAt::Step(_) | DiffAt::StepEnd(_)));
        let is_searching = || !self.search_text().is_empty();
        match command {
            _ if command.is_movement() => Some(true),
            C::GoToPeak
            | C::FitAll
            | C::ToggleAxis
            | C::NextMetric
            | C::Search
            | C::NextLook
            | C::NextKey
            | C::Unpin => Some(true),
            C::PreviousStep | C::NextStep => Some(has_steps()),
            C::ClearSearch | C::ToggleHide => Some(is_searching()),
            // Commands that need facts of a single recording.
            C::Undo
            | C::Redo
            | C::GoToStep
            | C::PreviousPeak
            | C::NextPeak
            | C::PreviousOom
            | C::NextOom
            | C::MarkA
            | C::MarkB
            | C::Unmark
            | C::ShowRange
            | C::LargestBlock
            | C::BlockAbove
            | C::BlockBelow
            | C::ZoomToBlock
            | C::ToggleFit
            | C::NextDevice
            | C::SaveBelow => Some(false),
            _ => None,
        }
    }

    /// Executes `command`. Returns whether the comparison handles it.
    pub fn run(
        &mut self,
        ctx: &Context,
        command: Command,
        recordings: [&Arc<Recording>; 2],
        paint: &mut Paint,
    ) -> bool {
        if self.can(command) != Some(true) {
            return false;
        }
        let moments = self.moments(recordings).ok();
        match command {
            Command::Search => self.pair.sides[0].search.focus(),
            Command::ClearSearch => self.search_for(ctx, recordings, ""),
            Command::ToggleHide => paint.is_hiding = !paint.is_hiding,
            Command::NextLook => self.choices.look = next_of(DiffLook::ALL, self.choices.look),
            Command::NextKey => {
                let first = self.choices.keys.first().copied().unwrap_or(GroupKey::Category);
                // Keys with values on one side only separate the sides; single blocks are no groups of both sides.
                let is_there = |key| key != TreeKey::Block && choices::absent_in_both(recordings, key).is_none();
                if let TreeKey::By(key) = next_key(TreeKey::By(first), is_there) {
                    self.choices.keys = vec![key];
                }
            }
            Command::NextMetric => self.choices.metric = next_of(&self.metrics(recordings), self.choices.metric),
            Command::PreviousStep => self.choices.shift(-1),
            Command::NextStep => self.choices.shift(1),
            Command::ToggleAxis => {
                let is_event = self.pair.sides[0].selection.axis() == Axis::Event;
                self.set_axis(recordings, moments, if is_event { Axis::Time } else { Axis::Event });
            }
            Command::Unpin => {
                if !self.below.unchoose() {
                    self.pair.pinned = None;
                }
            }
            Command::FitAll => self.pair.fit(),
            command => self.travel(recordings, moments, command),
        }
        // The pointer is ignored until it moves again, so that the result of the command is visible.
        self.pair.sides.iter_mut().for_each(|side| side.timeline.rest_pointer());
        true
    }

    /// Pans or zooms both timelines, or moves the cursor.
    fn travel(&mut self, recordings: [&Arc<Recording>; 2], moments: Option<[Moment; 2]>, command: Command) {
        let alignment = self.alignment(recordings, moments);
        let shown = Shown { recordings, alignment: &alignment, moments, metric: self.choices.metric };
        match command {
            Command::GoToPeak => {
                if let Some(moments) = moments {
                    self.pair.show_moments(&shown, moments);
                }
            }
            Command::PreviousEvent => self.pair.step_cursor(&shown, -1),
            Command::NextEvent => self.pair.step_cursor(&shown, 1),
            _ => {
                // The top of the higher of the two stays in view.
                let top = moments.and_then(|moments| moments.map(|moment| moment.bytes).into_iter().max());
                if let Some(view) = command.steered(&self.pair.view(&shown), top.unwrap_or(0) as f64) {
                    self.pair.show(&shown, &view);
                }
            }
        }
    }

    pub(super) fn set_axis(&mut self, recordings: [&Arc<Recording>; 2], moments: Option<[Moment; 2]>, axis: Axis) {
        let alignment = self.alignment(recordings, moments);
        let shown = Shown { recordings, alignment: &alignment, moments, metric: self.choices.metric };
        self.pair.set_axis(&shown, axis);
    }
}
