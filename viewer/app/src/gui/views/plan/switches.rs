//! The changes of a plan as switches, each with its costs and the memory used with it.

use std::collections::HashMap;

use eframe::egui::{Align, Checkbox, Grid, Layout, RichText, Role, Stroke, Ui, WidgetInfo, vec2};

use super::job::{Chosen, Found};
use crate::answers::plan::{Change, PlanLine, Proof, Setup, name, recomputed};
use crate::figures::planned::{costs, shares};
use crate::gui::widgets::Shades;
use crate::report::column_of;

/// Minimum width, in points, at which costs have a column; with less, they are below the names.
const ROOM_FOR_COSTS: f32 = 516.0;
/// Width of a column of bytes, with the space before it, in points.
const BYTES_WIDTH: f32 = 96.0;
/// Width of the column of costs, with the space before it, in points.
const COSTS_WIDTH: f32 = 172.0;
/// Minimum width of the column of names, in points.
const NAME_MIN: f32 = 150.0;
/// Indentation of the text below a switch, in points.
const INDENT: f32 = 20.0;

#[derive(Clone, Debug, Default)]
pub(super) struct Switches {
    changes: Vec<(Change, bool)>,
    modules: Vec<(String, bool)>,
    settings: Option<(String, bool)>,
    /// The name of the change that recomputes the selected modules, or all modules if none is selected.
    recomputed: String,
    is_open: bool,
}

impl Switches {
    pub(super) fn of(setup: &Setup) -> Self {
        let modules: Vec<String> = setup.recomputed.clone().unwrap_or_default();
        Self {
            changes: setup.changes.iter().map(|change| (*change, true)).collect(),
            recomputed: recomputed(&modules),
            modules: modules.into_iter().map(|path| (path, true)).collect(),
            settings: setup.settings.clone().map(|settings| (settings, true)),
            is_open: false,
        }
    }

    /// Like [`Self::of`], with individual modules listed if they are listed now.
    pub(super) fn renewed(&self, setup: &Setup) -> Self {
        Self { is_open: self.is_open, ..Self::of(setup) }
    }

    /// Returns the setup with the changes, recomputed modules and allocator settings that are switched on.
    pub(super) fn setup(&self) -> Setup {
        Setup {
            changes: self.changes.iter().filter(|(_, is_on)| *is_on).map(|(change, _)| *change).collect(),
            recomputed: Some(self.modules_on()),
            settings: self.settings.as_ref().filter(|(_, is_on)| *is_on).map(|(settings, _)| settings.clone()),
        }
    }

    fn modules_on(&self) -> Vec<String> {
        self.modules.iter().filter(|(_, is_on)| *is_on).map(|(path, _)| path.clone()).collect()
    }

    fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.modules.is_empty() && self.settings.is_none()
    }

    /// Returns whether the user changed a switch. `chosen` contains the figures with the changes that are on; `None`
    /// while they are computed.
    pub(super) fn switches_ui(&mut self, ui: &mut Ui, chosen: Option<&Chosen>, found: &Found) -> bool {
        if self.is_empty() {
            return false;
        }
        let mut is_switched = false;
        let room = room_in(ui);
        let all = || chosen.into_iter().flat_map(|chosen| &chosen.lines);
        let requested = column_of(all().map(|line| line.trial.requested));
        let reserved = column_of(all().map(|line| line.trial.reserved));
        let mut lines = chosen.map(|chosen| chosen.lines.iter());
        // The lines are those of the changes that are on, in the same order.
        let mut next = |is_on: bool| {
            let line = lines.as_mut().filter(|_| is_on).and_then(Iterator::next);
            let sizes = |line: &PlanLine| [reserved(line.trial.reserved), requested(line.trial.requested)];
            line.map(|line| (line, found.proof, sizes(line))).ok_or(if is_on { "…" } else { "off" })
        };
        grid_ui(ui, "Changes", room, |ui| {
            for (change, is_on) in &mut self.changes {
                let line = next(*is_on);
                let set = Checkbox::new(is_on, change.name());
                is_switched |= change_ui(ui, room, line, set);
            }
            if !self.modules.is_empty() {
                let on = self.modules.iter().filter(|(_, is_on)| *is_on).count();
                let line = next(on > 0);
                let mut is_on = on == self.modules.len();
                let is_some = on > 0 && !is_on;
                let set = Checkbox::new(&mut is_on, &self.recomputed).indeterminate(is_some);
                if change_ui(ui, room, line, set) {
                    is_switched = true;
                    self.modules.iter_mut().for_each(|(_, module)| *module = is_on);
                }
                let words = if self.is_open { "Hide single modules" } else { "Single modules" };
                self.is_open ^= ui.small_button(words).on_hover_text("Exclude individual modules.").clicked();
                ui.end_row();
                if self.is_open {
                    is_switched |= self.modules_ui(ui, &found.shares);
                }
            }
            if let Some((settings, is_on)) = &mut self.settings {
                let line = next(*is_on);
                let set = Checkbox::new(is_on, settings.as_str());
                is_switched |= change_ui(ui, room, line, set);
            }
        });
        if is_switched {
            let on = self.modules_on();
            let all = || self.modules.iter().map(|(path, _)| path.clone()).collect();
            self.recomputed = recomputed(&if on.is_empty() { all() } else { on });
        }
        is_switched
    }

    fn modules_ui(&mut self, ui: &mut Ui, shares: &HashMap<String, f64>) -> bool {
        let mut is_switched = false;
        for (path, is_on) in &mut self.modules {
            ui.horizontal(|ui| {
                ui.add_space(INDENT);
                is_switched |= outlined(ui).checkbox(is_on, path.as_str()).changed();
                let share = shares.get(path).map(|share| format!("about +{:.1} % FLOPs", share * 100.0));
                ui.weak(share.unwrap_or_default());
            });
            ui.end_row();
        }
        is_switched
    }
}

/// The width of names in points, of which long ones wrap, and whether there is room for a column of costs.
type Room = (f32, bool);

fn room_in(ui: &Ui) -> Room {
    let has_costs = ui.available_width() >= ROOM_FOR_COSTS;
    let others = 2.0 * BYTES_WIDTH + if has_costs { COSTS_WIDTH } else { 0.0 };
    ((ui.available_width() - others).max(NAME_MIN), has_costs)
}

/// Shows the rows of `show` below the headings of the columns, of which that of the names is `name`.
fn grid_ui(ui: &mut Ui, name: &str, (_, has_costs): Room, show: impl FnOnce(&mut Ui)) {
    Grid::new(name).spacing(vec2(12.0, 3.0)).show(ui, |ui| {
        ui.weak(name);
        if has_costs {
            ui.weak("Costs");
        }
        figure_ui(ui, RichText::new("Reserved").weak());
        figure_ui(ui, RichText::new("Requested").weak());
        ui.end_row();
        show(ui);
    });
}

fn figure_ui(ui: &mut Ui, text: RichText) {
    let room = vec2(BYTES_WIDTH - 12.0, ui.spacing().interact_size.y);
    ui.allocate_ui_with_layout(room, Layout::right_to_left(Align::Center), |ui| ui.label(text));
}

/// Shows a row: a switch with its name, its costs beside or below it, and the reserved and requested bytes. Returns
/// whether the switch was used.
fn row_ui(
    ui: &mut Ui,
    (width, has_costs): Room,
    (costs, class): (&str, &str),
    [reserved, requested]: [String; 2],
    switch: impl FnOnce(&mut Ui) -> bool,
) -> bool {
    let costs_ui = |ui: &mut Ui| {
        let response = ui.weak(costs).on_hover_text(class);
        let text = if costs == class { costs.to_owned() } else { format!("Costs: {costs}; {class}") };
        response.widget_info(|| WidgetInfo::labeled(Role::Label, true, &text));
    };
    let is_used = ui.vertical(|ui| {
        ui.set_width(width);
        ui.spacing_mut().item_spacing.y = 0.0;
        let is_used = ui.scope(|ui| switch(outlined(ui))).inner;
        if !has_costs {
            ui.horizontal(|ui| {
                ui.add_space(INDENT);
                costs_ui(ui);
            });
        }
        is_used
    });
    if has_costs {
        let room = vec2(COSTS_WIDTH - 12.0, ui.spacing().interact_size.y);
        ui.allocate_ui_with_layout(room, Layout::left_to_right(Align::Center), |ui| {
            ui.set_width(room.x);
            costs_ui(ui);
        });
    }
    figure_ui(ui, RichText::new(reserved).strong());
    figure_ui(ui, RichText::new(requested));
    ui.end_row();
    is_used.inner
}

/// Shows the row of a change, or a text in place of its costs and figures. Returns whether the switch was used.
fn change_ui(
    ui: &mut Ui,
    room: Room,
    line: Result<(&PlanLine, Proof, [String; 2]), &str>,
    switch: Checkbox<'_>,
) -> bool {
    let (costs, class, figures) = match line {
        Ok((line, proof, figures)) => (costs(proof, line.class, line.shares), line.class.about(), figures),
        Err(text) => (text.to_owned(), text, Default::default()),
    };
    row_ui(ui, room, (&costs, class), figures, |ui| ui.add(switch).changed())
}

/// Draws switches as outlines, so that those that are off look empty.
fn outlined(ui: &mut Ui) -> &mut Ui {
    let shades = Shades::in_ui(ui);
    let inactive = &mut ui.visuals_mut().widgets.inactive;
    (inactive.bg_fill, inactive.bg_stroke) = (shades.canvas, Stroke::new(1.0, shades.faint));
    ui
}

/// Shows the plans, if there are several. Returns the changes of the plan that the user selects; `now` are the
/// displayed ones.
pub(super) fn others_ui(ui: &mut Ui, found: &Found, now: &Setup) -> Option<Setup> {
    let search = &found.search;
    if search.plans.len() < 2 {
        return None;
    }
    let (mut picked, room) = (None, room_in(ui));
    grid_ui(ui, "Plans", room, |ui| {
        let requested = column_of(search.plans.iter().map(|plan| plan.trial.requested));
        let reserved = column_of(search.plans.iter().map(|plan| plan.trial.reserved));
        for plan in &search.plans {
            let costs = costs(found.proof, plan.class, shares(search, plan));
            let figures = [reserved(plan.trial.reserved), requested(plan.trial.requested)];
            let is_shown = plan.setup == *now;
            let set = |ui: &mut Ui| ui.radio(is_shown, name(&plan.setup)).clicked();
            if row_ui(ui, room, (&costs, plan.class.about()), figures, set) {
                picked = Some(plan.setup.clone());
            }
        }
    });
    picked
}
