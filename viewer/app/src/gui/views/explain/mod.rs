//! Explains the peak: its parts, the peak without each part, and advice on lowering it.

mod job;
mod bar;
mod advice;
mod groups;
mod head;

use std::sync::Arc;

use eframe::egui::{self, Rect, ScrollArea, Sense, Ui, UiBuilder, pos2, vec2};
use highwater_analysis::{Filter, Metric};

use crate::gui::views::view::{Action, ViewContext};
use crate::gui::widgets::query::{Query, computed};
use crate::gui::widgets::room::{exact_height_ui, least_height_ui};
use crate::gui::widgets::table::TableState;
use crate::gui::widgets::theme;
use crate::selection::drawn_metric;
use crate::session::Recording;
use groups::Groups;
use job::{Explained, Key, Keys};

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
    /// The explanation, or why the recording cannot be read.
    query: Query<Key, Result<Arc<Explained>, String>>,
    /// The keys of the groups in view.
    shown: Option<Keys>,
    groups: Groups,
    removals: TableState,
}

computed!(ExplainView: query);

impl Default for ExplainView {
    fn default() -> Self {
        Self {
            keys: Keys::default(),
            is_picture: false,
            query: Query::new("highwater-explain", Explained::of),
            shown: None,
            groups: Groups::default(),
            removals: TableState::default(),
        }
    }
}

impl ExplainView {
    /// A view without controls.
    pub(crate) fn for_picture() -> Self {
        Self { is_picture: true, ..Self::default() }
    }

    /// The groups as CSV, in exact figures and in the order shown; `None` until they are computed.
    pub fn csv(&self) -> Option<String> {
        self.explained().map(|explained| self.groups.csv(explained))
    }

    /// Shows the view in the available space; scrolls if that is too small. Returns the user's requests.
    pub(crate) fn explain_ui(&mut self, ui: &mut Ui, context: &ViewContext<'_>) -> Vec<Action> {
        self.refresh(ui.ctx(), context);
        let Some(explained) = self.explained().map(Arc::clone) else {
            ui.horizontal(|ui| {
                let unreadable = self.query.answer().filter(|_| !self.query.is_busy());
                let unreadable = unreadable.and_then(|explained| explained.as_ref().err());
                let failure = self.query.failure().or(unreadable.map(String::as_str));
                if !self.is_picture && failure.is_none() {
                    ui.spinner();
                }
                ui.weak(failure.unwrap_or("Explaining the peak…"));
            });
            return Vec::new();
        };
        let is_wide = ui.available_width() >= theme::EXPLAIN_WIDE;
        if self.is_picture {
            self.columns_ui(ui, context, &explained)
        } else if is_wide {
            let show = |ui: &mut Ui| self.columns_ui(ui, context, &explained);
            least_height_ui(ui, "explanation", theme::EXPLAIN_MIN, show)
        } else {
            let scroll = ScrollArea::vertical().id_salt("explanation").auto_shrink([false, false]);
            scroll.show(ui, |ui| self.column_ui(ui, context, &explained)).inner
        }
    }

    fn explained(&self) -> Option<&Arc<Explained>> {
        self.query.answer()?.as_ref().ok()
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
        actions.extend(head::head_ui(ui, context, explained, self.query.is_busy() && can_click, can_click));
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
        let key = Key::new(context, drawn_metric(context.selection.metric), self.keys);
        let has_grown = |asked: &Key| asked.is_outgrown_by(&key) && !self.query.is_busy();
        if !self.query.asked().is_some_and(|asked| asked.is(&key) && !has_grown(asked)) {
            self.query.ask(ctx, &key);
        }
        let is_new = self.query.receive();
        // Results for another recording or device must not be shown for this one.
        self.query.keep_if(|shown| shown.is_about(&key));
        match self.explained().map(Arc::clone) {
            Some(explained) if is_new => {
                self.groups.renew(&explained, self.shown == Some(explained.keys));
                (self.shown, self.removals) = (Some(explained.keys), TableState::default());
            }
            Some(_) => {}
            None => self.shown = None,
        }
    }
}

#[cfg(test)]
mod tests;
