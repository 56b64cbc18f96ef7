//! Notes on a replay: assumptions, differences from the recording, and the allocator's state if a request fails.

use eframe::egui::{Grid, Ui, vec2};
use highwater_snapshots::{format_bytes, format_required_bytes};

use super::form::Applied;
use super::job::Replayed;
use crate::answers::prediction::{Changed, Failed};
use crate::figures::moment::at_event;
use crate::figures::predicted::{LOWEST_ADDRESS, NO_BLOCK, concerned, deviation, settings_and_memory};
use crate::gui::views::view::Action;
use crate::gui::widgets::{assumption_ui, labelled_button_ui, note_ui, warning_ui};

/// Returns the action for a clicked moment.
pub(super) fn notes_ui(ui: &mut Ui, applied: &Applied, replayed: &Replayed) -> Option<Action> {
    let unchanged = &replayed.prediction.unchanged;
    let mut action = None;
    if let Some(changed) = &replayed.prediction.changed {
        action = changed_ui(ui, applied, changed);
    }
    let changed = replayed.prediction.changed.as_ref();
    for text in changed.map_or(&unchanged.assumptions, |changed| &changed.assumptions) {
        assumption_ui(ui, text);
    }
    if unchanged.takes_lowest_address {
        note_ui(ui, LOWEST_ADDRESS);
    }
    if let Some(differs) = &unchanged.divergence {
        warning_ui(ui, &deviation(differs));
        action = there_ui(ui, "Go there", "Go to the first difference between replay and recording", differs.event)
            .or(action);
        for cause in &unchanged.causes {
            warning_ui(ui, &format!("Possible cause: {cause}."));
        }
    }
    action
}

fn changed_ui(ui: &mut Ui, applied: &Applied, changed: &Changed) -> Option<Action> {
    let mut action = None;
    if let Some(oom) = &changed.oom {
        action = there_ui(ui, "Go to the request that fails", "Go to the request that fails", oom.event);
        Grid::new("request that fails").num_columns(2).spacing(vec2(12.0, 1.0)).show(ui, |ui| {
            for (name, value) in failed_rows(oom, changed) {
                ui.weak(name);
                ui.label(value);
                ui.end_row();
            }
        });
        ui.add_space(4.0);
    }
    let sentences = concerned(changed);
    for sentence in &sentences {
        note_ui(ui, sentence);
    }
    if applied.is_of_blocks() && sentences.is_empty() {
        warning_ui(ui, NO_BLOCK);
    }
    note_ui(ui, &settings_and_memory(changed));
    action
}

fn failed_rows(oom: &Failed, changed: &Changed) -> Vec<(&'static str, String)> {
    let mut rows = vec![
        ("fails at", at_event(oom.event, oom.step, oom.phase)),
        ("requested", format_bytes(oom.requested)),
        ("in live blocks", format_bytes(oom.allocated)),
        ("reserved", format_bytes(oom.reserved)),
    ];
    let large_enough = changed.suffices.filter(|_| changed.ends_in_oom.is_none());
    rows.extend(large_enough.map(|bytes| ("large enough", format!("a device of {}", format_required_bytes(bytes)))));
    rows
}

/// Shows a button that pins the state after `event`.
fn there_ui(ui: &mut Ui, name: &str, label: &str, event: u64) -> Option<Action> {
    let tooltip = "Pin that moment, and show it in the timeline.";
    labelled_button_ui(ui, name, label, tooltip).then_some(Action::Event(Some(event)))
}
