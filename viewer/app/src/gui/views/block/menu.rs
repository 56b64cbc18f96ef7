//! Context menus of the timeline and the map of segments.

use eframe::egui::{Response, RichText, Ui};
use highwater_analysis::Metric;
use highwater_snapshots::BlockId;

use super::facts::{Facts, origins};
use crate::gui::views::timeline::Hover;
use crate::gui::views::view::Action;
use crate::{Recording, Selection, drawn_metric};

/// Shows the menu after a right click on `target` in the timeline.
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
        if let Some(id) = target.block {
            chosen = block_ui(ui, recording, drawn_metric(selection.metric), id);
            ui.separator();
        }
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

/// Shows the menu after a right click on memory; `target` is the block under the pointer.
pub(crate) fn block_menu_ui(
    response: &Response,
    recording: &Recording,
    metric: Metric,
    target: Option<BlockId>,
) -> Option<Action> {
    let mut chosen = None;
    response.context_menu(|ui| match target {
        Some(id) => chosen = block_ui(ui, recording, drawn_metric(metric), id),
        None => _ = ui.weak("No block here"),
    });
    chosen
}

fn block_ui(ui: &mut Ui, recording: &Recording, metric: Metric, id: BlockId) -> Option<Action> {
    let trace = &recording.trace;
    let mut chosen = None;
    let facts = Facts::of(recording, id, metric);
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
    chosen
}
