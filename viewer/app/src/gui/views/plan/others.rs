//! The list of the plans that were found.

use eframe::egui::{Grid, Ui, vec2};
use highwater_snapshots::units::format_bytes;

use super::job::Found;
use super::switches::{below_ui, name_ui, name_width};
use crate::answers::plan::{Setup, name};
use crate::figures::planned::{costs, shares};

/// Shows all plans, if there are several. Returns the changes of a plan that the user selects. `now` are the displayed
/// changes.
pub(super) fn others_ui(ui: &mut Ui, found: &Found, now: &Setup) -> Option<Setup> {
    let search = &found.search;
    if search.plans.len() < 2 {
        return None;
    }
    let mut picked = None;
    let width = name_width(ui, false);
    Grid::new("plans").num_columns(3).spacing(vec2(12.0, 3.0)).striped(true).show(ui, |ui| {
        for name in ["Plans", "Requested", "Reserved"] {
            ui.weak(name);
        }
        ui.end_row();
        for plan in &search.plans {
            let is_shown = plan.setup == *now;
            let is_picked = name_ui(ui, width, |ui| {
                let is_picked = ui.radio(is_shown, name(&plan.setup)).clicked();
                below_ui(ui, &costs(found.proof, plan.class, shares(search, plan)));
                is_picked
            });
            if is_picked {
                picked = Some(plan.setup.clone());
            }
            ui.label(format_bytes(plan.trial.requested));
            ui.label(format_bytes(plan.trial.reserved));
            ui.end_row();
        }
    });
    picked
}
