//! Explains the peak: its parts, the peak without each part, and advice on lowering it.

mod job;
mod bar;
mod advice;
mod groups;
mod head;

use std::sync::Arc;

use eframe::egui::{self, Ui};
use highwater_analysis::Filter;

use crate::gui::views::view::{Action, RecordingView, ViewContext, WriteTable, whole_table};
use crate::gui::widgets::query::{Query, computed};
use crate::gui::widgets::room::{exact_height_ui, least_height_ui, scrolling_ui, split_ui};
use crate::gui::widgets::table::TableState;
use crate::gui::widgets::theme;
use crate::selection::drawn_metric;
use groups::Groups;
use job::{Explained, Key, Keys};

/// Width of the groups above which the advice beside them gets the rest, in points.
const GROUPS_WIDTH: f32 = 880.0;
/// Minimum and maximum width of advice, in points, for readable lines.
const ADVICE_WIDTHS: [f32; 2] = [300.0, 520.0];
/// Visible rows of groups in the layout with one column.
const ROWS: f32 = 14.0;

/// The action for `condition` alone, or, if it is already in force, for no condition.
fn only(condition: &str, filter: &Filter) -> Action {
    Action::Only(if is_in_force(condition, filter) { String::new() } else { condition.to_owned() })
}

/// Whether `condition` alone is in force.
fn is_in_force(condition: &str, filter: &Filter) -> bool {
    condition.parse::<Filter>().is_ok_and(|wanted| wanted == *filter)
}

/// State of the view.
#[derive(Debug)]
pub struct ExplainView {
    keys: Keys,
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
            query: Query::new("highwater-explain", Explained::of),
            shown: None,
            groups: Groups::default(),
            removals: TableState::default(),
        }
    }
}

impl RecordingView for ExplainView {
    fn view_ui(&mut self, ui: &mut Ui, context: &ViewContext<'_>) -> Vec<Action> {
        self.refresh(ui.ctx(), context);
        let Some(explained) = self.explained().map(Arc::clone) else {
            ui.horizontal(|ui| {
                let unreadable = self.query.answer().filter(|_| !self.query.is_busy());
                let unreadable = unreadable.and_then(|explained| explained.as_ref().err());
                let failure = self.query.failure().or(unreadable.map(String::as_str));
                if !context.is_picture && failure.is_none() {
                    ui.spinner();
                }
                ui.weak(failure.unwrap_or("Explaining the peak…"));
            });
            return Vec::new();
        };
        let is_wide = ui.available_width() >= theme::EXPLAIN_WIDE;
        if context.is_picture {
            self.columns_ui(ui, context, &explained)
        } else if is_wide {
            let show = |ui: &mut Ui| self.columns_ui(ui, context, &explained);
            least_height_ui(ui, "explanation", theme::EXPLAIN_MIN, show)
        } else {
            scrolling_ui(ui, "explanation", |ui| self.column_ui(ui, context, &explained))
        }
    }

    fn table(&mut self, _: &ViewContext<'_>) -> Result<WriteTable, String> {
        whole_table(self.csv(), "the explanation is")
    }

    fn panel(&self) -> (&'static str, f32) {
        ("explanation", theme::EXPLAIN_HEIGHT)
    }
}

impl ExplainView {
    /// The groups as CSV, in exact figures and in the order shown; `None` until they are computed.
    fn csv(&self) -> Option<String> {
        self.explained().map(|explained| self.groups.csv(explained))
    }

    fn explained(&self) -> Option<&Arc<Explained>> {
        self.query.answer()?.as_ref().ok()
    }

    /// The advice with the largest savings as cards; below, other advice at the left, groups at the right.
    fn columns_ui(&mut self, ui: &mut Ui, context: &ViewContext<'_>, explained: &Explained) -> Vec<Action> {
        let mut actions = self.above_ui(ui, context, explained);
        actions.extend(advice::cards_ui(ui, explained, context.filter, can_click(context)));
        ui.add_space(6.0);
        let explanation = &explained.explanation;
        if explanation.advice.len() <= advice::CARDS && explanation.removals.is_empty() {
            actions.extend(self.groups_ui(ui, context, explained));
            return actions;
        }
        let width = (ui.available_width() - GROUPS_WIDTH).clamp(ADVICE_WIDTHS[0], ADVICE_WIDTHS[1]) - 8.0;
        let advice_ui = |ui: &mut Ui, view: &mut Self| view.advice_ui(ui, context, explained, advice::CARDS);
        let groups_ui = |ui: &mut Ui, view: &mut Self| view.groups_ui(ui, context, explained);
        let (advice, group) = split_ui(ui, "explanation", (width, 0.0), self, advice_ui, groups_ui);
        actions.extend(advice);
        actions.extend(group);
        actions
    }

    /// Shows all parts below each other, for narrow windows.
    fn column_ui(&mut self, ui: &mut Ui, context: &ViewContext<'_>, explained: &Explained) -> Vec<Action> {
        let mut actions = self.above_ui(ui, context, explained);
        actions.extend(self.advice_ui(ui, context, explained, 0));
        ui.separator();
        let rows = (explained.rows.len() as f32 + 1.0).clamp(4.0, ROWS);
        let height = (rows + 4.0) * theme::ROW_HEIGHT + 20.0;
        exact_height_ui(ui, height, |ui| actions.extend(self.groups_ui(ui, context, explained)));
        actions
    }

    /// The part above the columns.
    fn above_ui(&mut self, ui: &mut Ui, context: &ViewContext<'_>, explained: &Explained) -> Vec<Action> {
        let mut actions = Vec::new();
        let can_click = can_click(context);
        actions.extend(head::head_ui(ui, context, explained, self.query.is_busy() && can_click, can_click));
        actions.extend(head::failed_ui(ui, explained, can_click));
        actions.extend(head::filtered_ui(ui, explained, can_click));
        let (peak, composition) = (&explained.explanation.peak, &explained.composition);
        actions.extend(bar::bar_ui(ui, composition, peak, context.filter, can_click));
        ui.add_space(4.0);
        actions
    }

    /// The advice from row `first` on, and the peak without one part after another.
    fn advice_ui(
        &mut self,
        ui: &mut Ui,
        context: &ViewContext<'_>,
        explained: &Explained,
        first: usize,
    ) -> Vec<Action> {
        let mut actions = Vec::new();
        let all = explained.explanation.advice.len();
        if first == 0 || all > first {
            actions.extend(advice::advice_ui(ui, explained, (context.filter, can_click(context)), first));
        }
        if !explained.explanation.peak.is_state {
            actions.extend(advice::removals_ui(ui, explained, &mut self.removals));
        }
        actions
    }

    fn groups_ui(&mut self, ui: &mut Ui, context: &ViewContext<'_>, explained: &Explained) -> Option<Action> {
        if !context.is_picture {
            head::keys_ui(ui, &mut self.keys, context.recording);
        }
        self.groups.groups_ui(ui, explained, !context.is_picture)
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

/// Whether moments can be gone to: not in a picture, nor in a recording without events.
fn can_click(context: &ViewContext<'_>) -> bool {
    !context.is_picture && !context.recording.trace.is_state()
}

#[cfg(test)]
mod tests;
