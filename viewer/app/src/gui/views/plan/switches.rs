//! The changes of a plan as switches, each with its costs and the memory that it leaves.

use std::collections::HashMap;

use eframe::egui::{Checkbox, Grid, Role, Ui, WidgetInfo, vec2};
use highwater_snapshots::units::format_bytes;

use super::job::{Chosen, Found};
use crate::answers::plan::{Change, PlanLine, Proof, Setup, recomputed};
use crate::figures::planned::costs;

/// Minimum width at which the phase of the peak is shown, in points.
const ROOM_FOR_PLACE: f32 = 560.0;
/// Share of the width that the names take, and their least width in points.
const NAME_SHARE: f32 = 0.28;
/// See [`NAME_SHARE`].
const NAME_MIN: f32 = 112.0;

/// The changes, each on or off.
#[derive(Clone, Debug, Default)]
pub(super) struct Switches {
    changes: Vec<(Change, bool)>,
    modules: Vec<(String, bool)>,
    settings: Option<(String, bool)>,
    /// The name of the recomputation: of the modules that are on, or of all if none is.
    recomputed: String,
    /// Whether single modules are listed.
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

    /// The changes of `setup`, all on, with single modules listed if they are now.
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

    /// Shows the switches. Returns whether one was switched. `chosen` are the figures of the changes that are on;
    /// `None` while they are computed.
    pub(super) fn switches_ui(&mut self, ui: &mut Ui, chosen: Option<&Chosen>, found: &Found) -> bool {
        if self.is_empty() {
            return false;
        }
        let mut is_switched = false;
        let has_place = ui.available_width() >= ROOM_FOR_PLACE;
        let columns = if has_place { 5 } else { 4 };
        let width = name_width(ui);
        let mut lines = chosen.map(|chosen| chosen.lines.iter());
        // The lines are those of the changes that are on, in the same order.
        let mut next = |is_on: bool| lines.as_mut().filter(|_| is_on).and_then(Iterator::next);
        Grid::new("changes").num_columns(columns).spacing(vec2(12.0, 3.0)).striped(true).show(ui, |ui| {
            for name in ["Change", "Costs", "Requested", "Reserved", "Peak in"].into_iter().take(columns) {
                ui.weak(name);
            }
            ui.end_row();
            for (change, is_on) in &mut self.changes {
                let line = next(*is_on);
                is_switched |= name_ui(ui, width, |ui| ui.checkbox(is_on, change.name()).changed());
                figures_ui(ui, *is_on, line.map(|line| (line, found.proof)), has_place);
            }
            if !self.modules.is_empty() {
                let on = self.modules.iter().filter(|(_, is_on)| *is_on).count();
                let line = next(on > 0);
                let mut is_on = on == self.modules.len();
                let is_some = on > 0 && !is_on;
                let set = Checkbox::new(&mut is_on, &self.recomputed).indeterminate(is_some);
                if name_ui(ui, width, |ui| ui.add(set).changed()) {
                    is_switched = true;
                    self.modules.iter_mut().for_each(|(_, module)| *module = is_on);
                }
                figures_ui(ui, on > 0, line.map(|line| (line, found.proof)), has_place);
                let words = if self.is_open { "Hide single modules" } else { "Single modules" };
                self.is_open ^= ui.small_button(words).on_hover_text("Leave single modules out.").clicked();
                ui.end_row();
                if self.is_open {
                    is_switched |= self.modules_ui(ui, &found.shares, columns);
                }
            }
            if let Some((settings, is_on)) = &mut self.settings {
                let line = next(*is_on);
                is_switched |= name_ui(ui, width, |ui| ui.checkbox(is_on, settings.as_str()).changed());
                figures_ui(ui, *is_on, line.map(|line| (line, found.proof)), has_place);
            }
        });
        if is_switched {
            let on = self.modules_on();
            let all = || self.modules.iter().map(|(path, _)| path.clone()).collect();
            self.recomputed = recomputed(&if on.is_empty() { all() } else { on });
        }
        is_switched
    }

    /// A row for each module.
    fn modules_ui(&mut self, ui: &mut Ui, shares: &HashMap<String, f64>, columns: usize) -> bool {
        let mut is_switched = false;
        for (path, is_on) in &mut self.modules {
            ui.horizontal(|ui| {
                ui.add_space(18.0);
                is_switched |= ui.checkbox(is_on, path.as_str()).changed();
            });
            let share = shares.get(path).map(|share| format!("about +{:.1} % FLOPs", share * 100.0));
            ui.weak(share.unwrap_or_default());
            (2..columns).for_each(|_| {
                ui.label("");
            });
            ui.end_row();
        }
        is_switched
    }
}

/// Width of the column of names, in points: names of many modules are long, and wrap.
pub(super) fn name_width(ui: &Ui) -> f32 {
    (ui.available_width() * NAME_SHARE).max(NAME_MIN)
}

/// Shows a cell of `width` points, in which a long name wraps.
pub(super) fn name_ui<R>(ui: &mut Ui, width: f32, show: impl FnOnce(&mut Ui) -> R) -> R {
    ui.vertical(|ui| {
        ui.set_width(width);
        show(ui)
    })
    .inner
}

/// The cells of a change after its switch.
fn figures_ui(ui: &mut Ui, is_on: bool, line: Option<(&PlanLine, Proof)>, has_place: bool) {
    let cells = match line {
        Some((line, proof)) => {
            let costs = costs(proof, line.class, line.shares);
            let class = line.class.about();
            let cost = ui.label(&costs).on_hover_text(class);
            if costs != class {
                let text = format!("Costs: {costs}; {class}");
                cost.widget_info(|| WidgetInfo::labeled(Role::Label, true, &text));
            }
            [format_bytes(line.trial.requested), format_bytes(line.trial.reserved), line.place()]
        }
        None => {
            ui.weak(if is_on { "…" } else { "off" });
            Default::default()
        }
    };
    let shown = if has_place { 3 } else { 2 };
    for cell in cells.iter().take(shown) {
        ui.label(cell);
    }
    ui.end_row();
}
