//! The changes of a plan as switches, each with its costs and the memory used with it.

use std::collections::HashMap;

use eframe::egui::{Checkbox, Grid, Response, Role, Stroke, Ui, WidgetInfo, vec2};

use super::job::{Chosen, Found};
use crate::answers::plan::{Change, PlanLine, Proof, Setup, name, recomputed};
use crate::figures::planned::{costs, shares};
use crate::gui::widgets::Shades;
use crate::report::column_of;

/// Minimum width in points at which the column for the phase of the peak is shown.
const ROOM_FOR_PLACE: f32 = 560.0;
/// Width of a column of bytes, with the space before it, in points.
const BYTES_WIDTH: f32 = 88.0;
/// Width of the column for the phase of the peak, with the space before it, in points.
const PHASE_WIDTH: f32 = 136.0;
/// Minimum width of the column of names, in points.
const NAME_MIN: f32 = 150.0;
/// Indentation of the text below a switch, in points.
const INDENT: f32 = 20.0;

/// The changes, each on or off.
#[derive(Clone, Debug, Default)]
pub(super) struct Switches {
    changes: Vec<(Change, bool)>,
    modules: Vec<(String, bool)>,
    settings: Option<(String, bool)>,
    /// The name of the recomputation of the selected modules, or of all modules if none is selected.
    recomputed: String,
    /// Whether individual modules are listed.
    is_open: bool,
}

impl Switches {
    /// The changes of `setup`, all on.
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

    /// Returns switches for the changes of `setup`, all on; individual modules are listed if they are listed now.
    pub(super) fn renewed(&self, setup: &Setup) -> Self {
        Self { is_open: self.is_open, ..Self::of(setup) }
    }

    /// The changes that are on.
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

    /// Shows the switches. Returns whether the user changed a switch. `chosen` contains the figures with the changes
    /// that are on; `None` while they are computed.
    pub(super) fn switches_ui(&mut self, ui: &mut Ui, chosen: Option<&Chosen>, found: &Found) -> bool {
        if self.is_empty() {
            return false;
        }
        let mut is_switched = false;
        let has_place = ui.available_width() >= ROOM_FOR_PLACE;
        let columns = if has_place { 4 } else { 3 };
        let width = name_width(ui, has_place);
        let all = || chosen.into_iter().flat_map(|chosen| &chosen.lines);
        let requested = column_of(all().map(|line| line.trial.requested));
        let reserved = column_of(all().map(|line| line.trial.reserved));
        let mut lines = chosen.map(|chosen| chosen.lines.iter());
        // The lines are those of the changes that are on, in the same order.
        let mut next = |is_on: bool| {
            let line = lines.as_mut().filter(|_| is_on).and_then(Iterator::next);
            let sizes = |line: &PlanLine| [requested(line.trial.requested), reserved(line.trial.reserved)];
            line.map(|line| (line, found.proof, sizes(line))).ok_or(if is_on { "…" } else { "off" })
        };
        Grid::new("changes").num_columns(columns).spacing(vec2(12.0, 3.0)).show(ui, |ui| {
            for name in ["Change", "Requested", "Reserved", "Peak in"].into_iter().take(columns) {
                ui.weak(name);
            }
            ui.end_row();
            for (change, is_on) in &mut self.changes {
                let line = next(*is_on);
                let set = Checkbox::new(is_on, change.name());
                is_switched |= row_ui(ui, (width, has_place), line, set);
            }
            if !self.modules.is_empty() {
                let on = self.modules.iter().filter(|(_, is_on)| *is_on).count();
                let line = next(on > 0);
                let mut is_on = on == self.modules.len();
                let is_some = on > 0 && !is_on;
                let set = Checkbox::new(&mut is_on, &self.recomputed).indeterminate(is_some);
                if row_ui(ui, (width, has_place), line, set) {
                    is_switched = true;
                    self.modules.iter_mut().for_each(|(_, module)| *module = is_on);
                }
                let words = if self.is_open { "Hide single modules" } else { "Single modules" };
                self.is_open ^= ui.small_button(words).on_hover_text("Exclude individual modules.").clicked();
                ui.end_row();
                if self.is_open {
                    is_switched |= self.modules_ui(ui, &found.shares, columns);
                }
            }
            if let Some((settings, is_on)) = &mut self.settings {
                let line = next(*is_on);
                let set = Checkbox::new(is_on, settings.as_str());
                is_switched |= row_ui(ui, (width, has_place), line, set);
            }
        });
        if is_switched {
            let on = self.modules_on();
            let all = || self.modules.iter().map(|(path, _)| path.clone()).collect();
            self.recomputed = recomputed(&if on.is_empty() { all() } else { on });
        }
        is_switched
    }

    /// Shows a row for each module.
    fn modules_ui(&mut self, ui: &mut Ui, shares: &HashMap<String, f64>, columns: usize) -> bool {
        let mut is_switched = false;
        for (path, is_on) in &mut self.modules {
            ui.horizontal(|ui| {
                ui.add_space(INDENT);
                is_switched |= outlined(ui).checkbox(is_on, path.as_str()).changed();
                let share = shares.get(path).map(|share| format!("about +{:.1} % FLOPs", share * 100.0));
                ui.weak(share.unwrap_or_default());
            });
            (1..columns).for_each(|_| {
                ui.label("");
            });
            ui.end_row();
        }
        is_switched
    }
}

/// Width of the column of names, in points. Names of many modules are long and wrap.
pub(super) fn name_width(ui: &Ui, has_place: bool) -> f32 {
    let figures = 2.0 * BYTES_WIDTH + if has_place { PHASE_WIDTH } else { 0.0 };
    (ui.available_width() - figures).max(NAME_MIN)
}

/// Shows a cell of `width` points, in which a long name wraps.
pub(super) fn name_ui<R>(ui: &mut Ui, width: f32, show: impl FnOnce(&mut Ui) -> R) -> R {
    ui.vertical(|ui| {
        ui.set_width(width);
        ui.spacing_mut().item_spacing.y = 0.0;
        show(ui)
    })
    .inner
}

/// Shows the row of a change: its switch with its costs below and its figures, or a text in place of the figures.
/// Returns whether the user changed the switch.
fn row_ui(
    ui: &mut Ui,
    (width, has_place): (f32, bool),
    line: Result<(&PlanLine, Proof, [String; 2]), &str>,
    switch: Checkbox<'_>,
) -> bool {
    let is_switched = name_ui(ui, width, |ui| {
        let is_switched = ui.scope(|ui| outlined(ui).add(switch).changed()).inner;
        match &line {
            Ok((line, proof, _)) => {
                let (costs, class) = (costs(*proof, line.class, line.shares), line.class.about());
                let cost = below_ui(ui, &costs).on_hover_text(class);
                if costs != class {
                    let text = format!("Costs: {costs}; {class}");
                    cost.widget_info(|| WidgetInfo::labeled(Role::Label, true, &text));
                }
            }
            Err(text) => drop(below_ui(ui, text)),
        }
        is_switched
    });
    let figures =
        |(line, _, [requested, reserved]): (&PlanLine, _, [String; 2])| [requested, reserved, line.step_and_phase()];
    for cell in line.map(figures).unwrap_or_default().into_iter().take(if has_place { 3 } else { 2 }) {
        ui.label(cell);
    }
    ui.end_row();
    is_switched
}

/// Draws switches as outlines, so that those that are off look empty.
fn outlined(ui: &mut Ui) -> &mut Ui {
    let shades = Shades::in_ui(ui);
    let inactive = &mut ui.visuals_mut().widgets.inactive;
    (inactive.bg_fill, inactive.bg_stroke) = (shades.canvas, Stroke::new(1.0, shades.faint));
    ui
}

/// Shows unobtrusive text below a switch.
pub(super) fn below_ui(ui: &mut Ui, text: &str) -> Response {
    let below = |ui: &mut Ui| {
        ui.add_space(INDENT);
        ui.weak(text)
    };
    ui.horizontal(below).inner
}

/// Shows all plans, if there are several. Returns the changes of a plan that the user selects; `now` are the changes
/// displayed.
pub(super) fn others_ui(ui: &mut Ui, found: &Found, now: &Setup) -> Option<Setup> {
    let search = &found.search;
    if search.plans.len() < 2 {
        return None;
    }
    let mut picked = None;
    let width = name_width(ui, ui.available_width() >= ROOM_FOR_PLACE);
    Grid::new("plans").num_columns(3).spacing(vec2(12.0, 3.0)).show(ui, |ui| {
        for name in ["Plans", "Requested", "Reserved"] {
            ui.weak(name);
        }
        ui.end_row();
        let requested = column_of(search.plans.iter().map(|plan| plan.trial.requested));
        let reserved = column_of(search.plans.iter().map(|plan| plan.trial.reserved));
        for plan in &search.plans {
            let is_shown = plan.setup == *now;
            let is_picked = name_ui(ui, width, |ui| {
                let is_picked = ui.scope(|ui| outlined(ui).radio(is_shown, name(&plan.setup)).clicked()).inner;
                below_ui(ui, &costs(found.proof, plan.class, shares(search, plan)));
                is_picked
            });
            if is_picked {
                picked = Some(plan.setup.clone());
            }
            ui.label(requested(plan.trial.requested));
            ui.label(reserved(plan.trial.reserved));
            ui.end_row();
        }
    });
    picked
}
