//! Explains the peak: its parts, the peak without each part, and advice on lowering it.

mod job;
mod bar;
mod advice;
mod groups;
mod head;

use std::sync::Arc;

use eframe::egui::{self, Color32, Ui};
use highwater_analysis::{Filter, GroupKey};
use highwater_snapshots::Category;

use crate::drawn_metric;
use crate::gui::colouring::{Colouring, LEAK};
use crate::gui::views::view::{Action, RecordingView, ViewContext, WriteTable, whole_table};
use crate::gui::widgets::{
    Query, TableState, computed, exact_height_ui, least_height_ui, scrolling_ui, split_ui, theme,
};
use groups::Groups;
use job::{Explained, Key, Keys};

/// Width of the groups' table in points. If more is available, the removals beside it use the rest.
const GROUPS_WIDTH: f32 = 800.0;
/// Minimum and maximum width of the removals, in points.
const REMOVALS_WIDTHS: [f32; 2] = [340.0, 580.0];
/// Minimum height of the groups beside the removals, in points: keys, four rows and the total.
const BELOW_MIN: f32 = 170.0;
/// Number of visible rows of groups in the layout with one column.
const ROWS: f32 = 14.0;

/// Returns the action that makes `condition` the only condition, or clears all conditions if it already is.
fn only(condition: &str, filter: &Filter) -> Action {
    Action::Only(if is_in_force(condition, filter) { String::new() } else { condition.to_owned() })
}

fn is_in_force(condition: &str, filter: &Filter) -> bool {
    condition.parse::<Filter>().is_ok_and(|wanted| wanted == *filter)
}

/// The names and colours of the parts of the peak, equal to those in the timeline.
#[derive(Clone, Copy, Debug)]
struct Looks<'a> {
    colouring: Option<&'a Colouring>,
    /// The name for blocks of unknown category, if nearly all of their bytes at the peak are leaked.
    leak: Option<&'a str>,
}

impl<'a> Looks<'a> {
    fn new(context: &ViewContext<'a>) -> Self {
        Self {
            colouring: context.colouring().map(|colouring| &**colouring),
            leak: context.index().leak_of(Category::Unknown.name()),
        }
    }

    /// Replaces the category at the start of a name by the name of the leaks.
    fn name(&self, name: String) -> String {
        match (self.leak, name.strip_prefix(Category::Unknown.name())) {
            (Some(leak), Some(rest)) => format!("{leak}{rest}"),
            _ => name,
        }
    }

    /// The colour of a value of `key`; `None` if the timeline is coloured by another key.
    fn colour(&self, key: GroupKey, label: &str) -> Option<Color32> {
        let colour = self.colouring?.colour_of(key, label)?;
        let leaks = key == GroupKey::Category && label == Category::Unknown.name() && self.leak.is_some();
        Some(if leaks { LEAK } else { colour })
    }
}

#[derive(Debug)]
pub struct ExplainView {
    keys: Keys,
    /// The explanation, computed in the background, or the reason the recording cannot be read.
    query: Query<Key, Result<Arc<Explained>, String>>,
    shown: Option<Keys>,
    groups: Groups,
    removals: TableState,
    /// Height of the part above the groups, in points.
    above: f32,
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
            above: 0.0,
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
        let is_wide = context.is_picture || ui.available_width() >= theme::EXPLAIN_WIDE;
        let least = self.above + BELOW_MIN;
        let mut show = |ui: &mut Ui| {
            let top = ui.cursor().top();
            let mut actions = self.above_ui(ui, context, &explained);
            self.above = ui.cursor().top() - top;
            actions.extend(self.below_ui(ui, context, &explained, is_wide));
            actions
        };
        match is_wide {
            true if context.is_picture => show(ui),
            true => least_height_ui(ui, "explanation", least, show),
            false => scrolling_ui(ui, "explanation", show),
        }
    }

    fn table(&mut self, _: &ViewContext<'_>) -> Result<WriteTable, String> {
        whole_table(self.csv(), "the explanation is")
    }

    fn panel(&self) -> (&'static str, f32) {
        ("explanation", theme::ANSWERS_HEIGHT)
    }
}

impl ExplainView {
    fn csv(&self) -> Option<String> {
        self.explained().map(|explained| self.groups.csv(explained))
    }

    fn explained(&self) -> Option<&Arc<Explained>> {
        self.query.answer()?.as_ref().ok()
    }

    /// Shows the peak after removing one part after another, and the groups: side by side if there is space.
    fn below_ui(
        &mut self,
        ui: &mut Ui,
        context: &ViewContext<'_>,
        explained: &Explained,
        is_wide: bool,
    ) -> Vec<Action> {
        let looks = Looks::new(context);
        let removals_ui = |ui: &mut Ui, view: &mut Self| advice::removals_ui(ui, explained, looks, &mut view.removals);
        let groups_ui = |ui: &mut Ui, view: &mut Self| view.groups_ui(ui, context, explained);
        let [removal, group] = match explained.explanation.removals.is_empty() {
            true if is_wide => [None, groups_ui(ui, self)],
            false if is_wide => {
                let width = (ui.available_width() - GROUPS_WIDTH).clamp(REMOVALS_WIDTHS[0], REMOVALS_WIDTHS[1]) - 8.0;
                split_ui(ui, "explanation", (width, 0.0), self, removals_ui, groups_ui).into()
            }
            _ => {
                let removal = removals_ui(ui, self);
                ui.separator();
                let rows = (explained.rows.len() as f32 + 1.0).clamp(4.0, ROWS);
                let height = (rows + 4.0) * theme::ROW_HEIGHT + 20.0;
                [removal, exact_height_ui(ui, height, |ui| groups_ui(ui, self))]
            }
        };
        removal.into_iter().chain(group).collect()
    }

    fn above_ui(&mut self, ui: &mut Ui, context: &ViewContext<'_>, explained: &Explained) -> Vec<Action> {
        let mut actions = Vec::new();
        let can_click = can_click(context);
        actions.extend(head::head_ui(ui, context, explained, self.query.is_busy() && can_click, can_click));
        actions.extend(head::failed_ui(ui, explained, can_click));
        actions.extend(head::filtered_ui(ui, explained, can_click));
        let (peak, composition) = (&explained.explanation.peak, &explained.composition);
        actions.extend(bar::bar_ui(ui, composition, peak, Looks::new(context), (context.filter, can_click)));
        ui.add_space(4.0);
        actions.extend(advice::cards_ui(ui, explained, context.filter, can_click));
        ui.add_space(6.0);
        actions
    }

    fn groups_ui(&mut self, ui: &mut Ui, context: &ViewContext<'_>, explained: &Explained) -> Option<Action> {
        if !context.is_picture {
            head::keys_ui(ui, &mut self.keys, context.recording);
        }
        self.groups.groups_ui(ui, explained, Looks::new(context), !context.is_picture)
    }

    /// Starts a query if the explanation has changed or its recording has grown enough, and handles finished queries.
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

/// Whether moments and blocks can be clicked. They cannot in an exported picture, or for a recording without events.
fn can_click(context: &ViewContext<'_>) -> bool {
    !context.is_picture && !context.recording.trace.is_state()
}

#[cfg(test)]
mod tests;
