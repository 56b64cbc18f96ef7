//! Block: everything known of one block, briefly under the pointer and in full in the side panel.

mod facts;
mod stack;
mod panel;

use eframe::egui::{self, Sense, Ui, vec2};
use highwater_snapshots::analysis::{Metric, Moment};
use highwater_snapshots::trace::Block;
use highwater_snapshots::units::{format_bytes, format_count, format_nanos};
use highwater_snapshots::{BlockId, EventId, Trace};

use super::colouring::Entry;
use super::theme;
use super::timeline::{Hover, drawn_metric, when};
use crate::selection::Selection;
use crate::session::Recording;

pub use panel::BlockPanel;

/// What is under the pointer, in a few lines.
pub fn hover_ui(ui: &mut Ui, recording: &Recording, selection: &Selection, hover: Hover, entry: Option<&Entry>) {
    let trace = &recording.trace;
    let metric = drawn_metric(selection.metric);
    if let Some(id) = hover.block {
        let block = trace.blocks.get(id);
        ui.horizontal(|ui| {
            if let Some(entry) = entry {
                swatch_ui(ui, entry.colour);
            }
            ui.strong(format!("{}  {}", format_bytes(size(&block, metric)), title(trace, &block)));
        });
        if block.scope.is_some() {
            ui.label(trace.tables.scope_path(block.scope));
        }
        ui.label(life(trace, id));
        if let Some(entry) = entry.filter(|entry| entry.name != block.category.name()) {
            ui.weak(&entry.name);
        }
        ui.add_space(6.0);
    }
    let moment = recording.devices[selection.device].moment(trace, metric, hover.moment);
    ui.label(format!("{} {metric} in all", format_bytes(hover.total)));
    ui.weak(moment_text(&moment));
}

/// A field of the legend's colour.
pub fn swatch_ui(ui: &mut Ui, colour: egui::Color32) {
    let (rect, _) = ui.allocate_exact_size(vec2(theme::SWATCH, theme::SWATCH), Sense::hover());
    ui.painter().rect_filled(rect, 2.0, colour);
}

/// A moment in words: where in the recording, and when.
pub fn moment_text(moment: &Moment) -> String {
    let time = moment.time_ns.map_or_else(String::new, |time| format!(", at {}", format_nanos(time)));
    format!("{}{time}", when(moment))
}

/// What to call a block: its category and the operation that made it.
fn title(trace: &Trace, block: &Block) -> String {
    match trace.tables.op_name(block.op) {
        "" => block.category.to_string(),
        op => format!("{} of {op}", block.category),
    }
}

fn size(block: &Block, metric: Metric) -> u64 {
    if metric == Metric::Requested { block.requested } else { block.allocated }
}

/// From when to when a block lives, in words.
fn life(trace: &Trace, id: BlockId) -> String {
    // The event at which such a block's free was requested stands for none of the recording.
    if trace.was_waiting_at_start(id) {
        return "freed before the recording, waiting for a stream".to_owned();
    }
    let block = trace.blocks.get(id);
    let made = if block.is_baseline() {
        "from before the recording".to_owned()
    } else {
        format!("from {}", phase(trace, block.alloc))
    };
    let Some(end) = block.free_requested.index() else {
        return format!("{made}, kept to the end");
    };
    let first = block.alloc.index().unwrap_or(0);
    let time = |index: usize| trace.events.time_of(EventId::from_index(index)).unwrap_or(0);
    let lasted = format_nanos(time(end).saturating_sub(time(first)));
    let events = format_count(end.saturating_sub(first) as u64);
    format!("{made} to {}: {events} events, {lasted}", phase(trace, block.free_requested))
}

/// Step and phase at an event: `step 3 backward`.
fn phase(trace: &Trace, event: EventId) -> String {
    let Some(span) = trace.spans.at(event) else {
        return String::new();
    };
    let step = span.step.map_or_else(String::new, |step| format!("step {step} "));
    format!("{step}{}", span.phase)
}

fn event_text(trace: &Trace, event: EventId, none: &str) -> String {
    match trace.events.time_of(event) {
        Some(time) => format!("event {}, {}", format_count(u64::from(event.0)), format_nanos(time)),
        None => none.to_owned(),
    }
}
