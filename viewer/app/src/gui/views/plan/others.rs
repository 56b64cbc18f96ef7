//! The plans that were found, one of which is chosen, and the changes as CSV.

use eframe::egui::{Grid, Ui, vec2};
use highwater_snapshots::units::format_bytes;

use super::job::{Chosen, Found};
use super::switches::{name_ui, name_width};
use crate::answers::plan::{Setup, name};
use crate::figures::planned::{costs, shares};
use crate::gui::widgets::table::{Column, csv};

/// Shows all plans, if there are several. Returns the changes of one that the user picks. `now` are those in view.
pub(super) fn others_ui(ui: &mut Ui, found: &Found, now: &Setup) -> Option<Setup> {
    let search = &found.search;
    if search.plans.len() < 2 {
        return None;
    }
    let mut picked = None;
    let width = name_width(ui);
    Grid::new("plans").num_columns(4).spacing(vec2(12.0, 3.0)).striped(true).show(ui, |ui| {
        for name in ["Plans", "Costs", "Requested", "Reserved"] {
            ui.weak(name);
        }
        ui.end_row();
        for plan in &search.plans {
            let is_shown = plan.setup == *now;
            if name_ui(ui, width, |ui| ui.radio(is_shown, name(&plan.setup)).clicked()) {
                picked = Some(plan.setup.clone());
            }
            ui.label(costs(found.proof, plan.class, shares(search, plan)));
            ui.label(format_bytes(plan.trial.requested));
            ui.label(format_bytes(plan.trial.reserved));
            ui.end_row();
        }
    });
    picked
}

/// The changes in view, with sizes in bytes.
pub(super) fn changes_csv(chosen: &Chosen) -> String {
    let columns = [
        Column::of_file("change", false),
        Column::of_file("modules", false),
        Column::of_file("class", false),
        Column::of_file("flops_share", true),
        Column::of_file("requested_bytes", true),
        Column::of_file("reserved_bytes", true),
    ];
    csv(&columns, chosen.lines.len(), |row, column| {
        let line = &chosen.lines[row];
        match column {
            0 => line.change.clone(),
            1 => line.scopes.join(" "),
            2 => line.class.about().to_owned(),
            3 => line.shares[0].map_or_else(String::new, |share| format!("{share:.6}")),
            4 => line.trial.requested.to_string(),
            _ => line.trial.reserved.to_string(),
        }
    })
}
