//! The tooltip for the block under the pointer.

use eframe::egui::Ui;
use highwater_analysis::between::bytes_of;
use highwater_analysis::frames::leading_frame;
use highwater_snapshots::units::format_bytes;

use super::Hover;
use crate::gui::colouring::{Entry, short_line};
use crate::gui::widgets::theme::swatch_ui;
use crate::gui::widgets::words::{life, moment_text, title};
use crate::selection::{Selection, drawn_metric};
use crate::session::Recording;

/// Shows the tooltip about the moment and the block under the pointer.
pub(super) fn hover_ui(ui: &mut Ui, recording: &Recording, selection: &Selection, hover: Hover, entry: Option<&Entry>) {
    let trace = &recording.trace;
    let metric = drawn_metric(selection.metric);
    if let Some(id) = hover.block {
        let block = trace.blocks.get(id);
        ui.horizontal(|ui| {
            if let Some(entry) = entry {
                swatch_ui(ui, entry.colour);
            }
            ui.strong(format!("{}  {}", format_bytes(bytes_of(trace, metric, id)), title(trace, &block)));
        });
        if block.scope.is_some() {
            ui.label(trace.tables.scope_path(block.scope));
        }
        if let Some(line) = leading_frame(&trace.tables, block.stack) {
            ui.label(short_line(&line.text(&trace.tables)));
        }
        ui.label(life(trace, id));
        ui.add_space(6.0);
    }
    let moment = recording.devices[selection.device].moment(trace, metric, hover.moment);
    ui.label(format!("{} {metric} in all", format_bytes(hover.total)));
    ui.weak(moment_text(&moment));
}
