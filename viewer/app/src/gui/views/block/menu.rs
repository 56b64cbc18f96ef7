//! The menu for what is under the pointer in the timeline.

use eframe::egui::{Response, RichText, Ui};

use super::facts::{Facts, origins};
use crate::gui::views::timeline::Hover;
use crate::gui::views::view::Action;
use crate::selection::{Selection, drawn_metric};
use crate::session::Recording;

/// Shows the menu after a right click on the timeline, where `target` was under the pointer. Returns what was chosen.
pub(crate) fn menu_ui(
    response: &Response,
    recording: &Recording,
    selection: &mut Selection,
    target: Option<Hover>,
) -> Option<Action> {
    let mut chosen = None;
    response.context_menu(|ui| {
        let Some(target) = target else {
            ui.weak("Nothing is recorded here");
            return;
        };
        chosen = block_ui(ui, recording, selection, target);
        if ui.button("Pin this moment").clicked() {
            chosen = Some(Action::Moment(target.moment));
        }
        for (row, name) in ["A", "B"].into_iter().enumerate() {
            if ui.button(format!("Mark this moment as {name}")).clicked() {
                selection.marks[row] = Some(target.moment);
            }
        }
    });
    chosen
}

/// The part about the block, if there is one.
fn block_ui(ui: &mut Ui, recording: &Recording, selection: &Selection, target: Hover) -> Option<Action> {
    let id = target.block?;
    let trace = &recording.trace;
    let mut chosen = None;
    let facts = Facts::of(recording, id, drawn_metric(selection.metric));
    ui.label(RichText::new(&facts.title).strong());
    if ui.button("Show its call stack and facts").clicked() {
        chosen = Some(Action::Block(id));
    }
    if ui.button("Zoom to its lifetime").clicked() {
        chosen = Some(Action::Life(id));
    }
    for origin in origins(trace, &trace.blocks.get(id)) {
        let button = ui.button(format!("Show only blocks of this {}", origin.kind));
        if button.on_hover_text(&origin.name).clicked() {
            chosen = Some(Action::Only(origin.condition));
        }
    }
    if ui.button("Copy as text").clicked() {
        ui.ctx().copy_text(facts.text());
    }
    ui.separator();
    chosen
}
