//! Explains the peak: its parts, the peak without each part, and advice on lowering it.

mod job;
mod bar;
mod advice;
mod groups;
mod head;

use std::sync::Arc;

use eframe::egui::{self, Rect, ScrollArea, Sense, Ui, UiBuilder, pos2, vec2};
use highwater_analysis::{Filter, Metric};

use crate::gui::view_context::{Action, ViewContext};
use crate::gui::views::timeline::drawn_metric;
use crate::gui::widgets::room::{exact_height_ui, least_height_ui};
use crate::gui::widgets::table::TableState;
use crate::gui::widgets::theme;
use crate::gui::widgets::worker::Worker;
use crate::session::Recording;
use groups::Groups;
use job::{Asked, Explained, Key, Keys};

/// Width of the groups above which the advice beside them gets the rest, in points.
const GROUPS_WIDTH: f32 = 880.0;
/// Least and largest width of advice, in points, for readable lines.
const ADVICE_WIDTHS: [f32; 2] = [300.0, 520.0];
/// Visible rows of groups in the layout with one column.
const ROWS: f32 = 14.0;

/// The name of a total in a sentence.
trait MetricName {
    /// `device used`.
    fn words(&self) -> String;
}

impl MetricName for Metric {
    fn words(&self) -> String {
        self.name().replace('_', " ")
    }
}

/// The action for `condition` alone, or, if it is already in force, for no condition.
fn only(condition: &str, filter: &Filter) -> Action {
    let is_in_force = condition.parse::<Filter>().is_ok_and(|wanted| wanted == *filter);
    Action::Only(if is_in_force { String::new() } else { condition.to_owned() })
}

/// State of the view.
#[derive(Debug)]
pub struct ExplainView {
    keys: Keys,
    /// Whether it is drawn for a picture, without controls.
    is_picture: bool,
    worker: Worker<Asked, Result<Explained, String>>,
    asked: Option<Key>,
    shown: Option<Explained>,
    /// Why the recording cannot be read.
    unreadable: Option<String>,
    groups: Groups,
    removals: TableState,
}

impl Default for ExplainView {
    fn default() -> Self {
        Self {
            keys: Keys::default(),
            is_picture: false,
            worker: Worker::new("highwater-explain", Explained::of),
            asked: None,
            shown: None,
            unreadable: None,
            groups: Groups::default(),
            removals: TableState::default(),
        }
    }
}

impl ExplainView {
    /// A view without controls.
    pub fn for_picture() -> Self {
        Self { is_picture: true, ..Self::default() }
    }

    /// Whether an explanation is being computed.
    pub fn is_busy(&self) -> bool {
        self.worker.is_busy()
    }

    /// Waits until it is ready. For tests, and for pictures without a window.
    pub fn wait(&mut self) {
        if let Some(explained) = self.worker.wait() {
            self.take(explained);
        }
    }

    /// The groups as CSV, in exact figures and in the order shown; `None` until they are computed.
    pub fn csv(&self) -> Option<String> {
        self.shown.as_ref().map(|explained| self.groups.csv(explained))
    }

    /// Shows the view in the available space; scrolls if that is too small. Returns the user's requests.
    pub fn explain_ui(&mut self, ui: &mut Ui, context: &ViewContext<'_>) -> Vec<Action> {
        self.refresh(ui.ctx(), context);
        let Some(explained) = self.shown.take() else {
            ui.horizontal(|ui| {
                let failure = self.worker.failure().or(self.unreadable.as_deref());
                if !self.is_picture && failure.is_none() {
                    ui.spinner();
                }
                ui.weak(failure.unwrap_or("Explaining the peak…"));
            });
            return Vec::new();
        };
        let is_wide = ui.available_width() >= theme::EXPLAIN_WIDE;
        let actions = if self.is_picture {
            self.columns_ui(ui, context, &explained)
        } else if is_wide {
            let show = |ui: &mut Ui| self.columns_ui(ui, context, &explained);
            least_height_ui(ui, "explanation", theme::EXPLAIN_LEAST, show)
        } else {
            let scroll = ScrollArea::vertical().id_salt("explanation").auto_shrink([false, false]);
            scroll.show(ui, |ui| self.column_ui(ui, context, &explained)).inner
        };
        self.shown = Some(explained);
        actions
    }

    /// Advice at the left, groups at the right.
    fn columns_ui(&mut self, ui: &mut Ui, context: &ViewContext<'_>, explained: &Explained) -> Vec<Action> {
        let mut actions = self.above_ui(ui, context, explained);
        let at = ui.next_widget_position();
        let whole = Rect::from_min_max(at, ui.max_rect().max.max(at + vec2(200.0, 120.0)));
        ui.allocate_rect(whole, Sense::hover());
        let middle = whole.left() + (whole.width() - GROUPS_WIDTH).clamp(ADVICE_WIDTHS[0], ADVICE_WIDTHS[1]);
        let left = whole.with_max_x(middle - 8.0);
        let mut left_ui = ui.new_child(UiBuilder::new().id_salt("left").max_rect(left));
        let scroll = ScrollArea::vertical().id_salt("advice").auto_shrink([false, false]);
        scroll.show(&mut left_ui, |ui| actions.extend(self.advice_ui(ui, context, explained)));
        let line = egui::Stroke::new(1.0, theme::Shades::in_ui(ui).grid);
        ui.painter().vline(middle, whole.y_range(), line);
        let right = Rect::from_min_max(pos2(middle + 8.0, whole.top()), whole.max);
        let mut right_ui = ui.new_child(UiBuilder::new().id_salt("right").max_rect(right));
        actions.extend(self.groups_ui(&mut right_ui, context.recording, explained));
        actions
    }

    /// Everything in one column.
    fn column_ui(&mut self, ui: &mut Ui, context: &ViewContext<'_>, explained: &Explained) -> Vec<Action> {
        let mut actions = self.above_ui(ui, context, explained);
        actions.extend(self.advice_ui(ui, context, explained));
        ui.separator();
        let rows = (explained.rows.len() as f32 + 1.0).clamp(4.0, ROWS);
        let height = (rows + 4.0) * theme::ROW_HEIGHT + 20.0;
        exact_height_ui(ui, height, |ui| actions.extend(self.groups_ui(ui, context.recording, explained)));
        actions
    }

    /// The part above the columns.
    fn above_ui(&mut self, ui: &mut Ui, context: &ViewContext<'_>, explained: &Explained) -> Vec<Action> {
        let mut actions = Vec::new();
        let can_click = self.can_click(context);
        actions.extend(head::head_ui(ui, context, explained, self.worker.is_busy() && can_click, can_click));
        actions.extend(head::failed_ui(ui, explained, can_click));
        actions.extend(head::filtered_ui(ui, explained, can_click));
        let (peak, composition) = (&explained.explanation.peak, &explained.composition);
        actions.extend(bar::bar_ui(ui, composition, peak, context.filter, can_click));
        ui.add_space(4.0);
        actions
    }

    fn advice_ui(&mut self, ui: &mut Ui, context: &ViewContext<'_>, explained: &Explained) -> Vec<Action> {
        let mut actions = Vec::new();
        actions.extend(advice::advice_ui(ui, explained, context.filter, self.can_click(context)));
        if !explained.explanation.peak.is_state {
            actions.extend(advice::removals_ui(ui, explained, &mut self.removals));
        }
        actions
    }

    fn groups_ui(&mut self, ui: &mut Ui, recording: &Recording, explained: &Explained) -> Option<Action> {
        if !self.is_picture {
            head::keys_ui(ui, &mut self.keys, recording);
        }
        self.groups.groups_ui(ui, explained, !self.is_picture)
    }

    /// Whether moments can be gone to: not in a picture, nor in a recording without events.
    fn can_click(&self, context: &ViewContext<'_>) -> bool {
        !self.is_picture && !context.recording.trace.is_state()
    }

    /// Asks for the current explanation, and takes over finished ones.
    fn refresh(&mut self, ctx: &egui::Context, context: &ViewContext<'_>) {
        self.keys = self.keys.possible(&context.recording.absent);
        let (device, metric) = (context.selection.device, drawn_metric(context.selection.metric));
        let key = Key::new(context.recording, device, metric, context.filter, self.keys);
        let has_grown = |asked: &Key| asked.is_outgrown_by(&key) && !self.worker.is_busy();
        if !self.asked.as_ref().is_some_and(|asked| asked.is(&key) && !has_grown(asked)) {
            self.asked = Some(key.clone());
            self.unreadable = None;
            self.worker.ask(ctx, Asked { recording: Arc::clone(context.recording), key: key.clone() });
        }
        if let Some(explained) = self.worker.take() {
            self.take(explained);
        }
        // Results for another recording or device must not be shown for this one.
        self.shown = self.shown.take().filter(|shown| shown.key.is_about(&key));
    }

    fn take(&mut self, explained: Result<Explained, String>) {
        let explained = match explained {
            Ok(explained) => explained,
            Err(why) => {
                (self.shown, self.unreadable) = (None, Some(why));
                return;
            }
        };
        let has_same_keys = self.shown.as_ref().is_some_and(|shown| shown.key.keys == explained.key.keys);
        self.groups.renew(&explained, has_same_keys);
        self.removals = TableState::default();
        self.shown = Some(explained);
    }
}

#[cfg(test)]
mod tests;
