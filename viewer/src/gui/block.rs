//! Block: everything known of one block, briefly under the pointer and in full in the side panel.

use eframe::egui::{self, CollapsingHeader, Grid, Label, RichText, Sense, TextWrapMode, Ui, vec2};
use highwater_snapshots::analysis::breakdown::Lifetime;
use highwater_snapshots::analysis::frames::{StackLine, stack_lines};
use highwater_snapshots::analysis::{Metric, Moment};
use highwater_snapshots::trace::Block;
use highwater_snapshots::units::{format_bytes, format_count, format_nanos};
use highwater_snapshots::{BlockId, EventId, StackId, Trace};

use super::colouring::Entry;
use super::theme::{self, Shades};
use super::timeline::{Hover, drawn_metric, when};
use crate::selection::Selection;
use crate::session::Recording;

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

/// A block in full.
pub fn block_ui(ui: &mut Ui, recording: &Recording, id: BlockId) {
    let trace = &recording.trace;
    let tables = &trace.tables;
    let block = trace.blocks.get(id);
    ui.strong(title(trace, &block));
    ui.weak(life(trace, id));
    ui.add_space(4.0);
    let rounding = block.allocated.saturating_sub(block.requested);
    let exact = |bytes: u64| format!("{} ({} B)", format_bytes(bytes), format_count(bytes));
    let or_unknown = |text: String| {
        if text.is_empty() { "unknown".to_owned() } else { text }
    };
    let mut rows: Vec<(&str, String)> = vec![
        ("Requested", exact(block.requested)),
        ("Allocated", exact(block.allocated)),
        ("Lost to rounding", format_bytes(rounding)),
        ("Category", block.category.to_string()),
        ("Operation", or_unknown(tables.op_name(block.op).to_owned())),
        ("Module", or_unknown(tables.scope_path(block.scope))),
        ("Allocated at", event_text(trace, block.alloc, "before the recording")),
    ];
    let was_waiting = trace.was_waiting_at_start(id);
    let freed = if was_waiting {
        "before the recording".to_owned()
    } else {
        event_text(trace, block.free_requested, "not in the recording")
    };
    rows.push(("Freed at", freed));
    let (requested, completed) = (block.free_requested, block.free_completed);
    if was_waiting || completed != requested && completed.0 != requested.0.wrapping_add(1) {
        rows.push(("Reusable at", event_text(trace, completed, "not in the recording")));
    }
    rows.push(("Lifetime", Lifetime::of(trace, &block).name().to_owned()));
    rows.push(("Stream and pool", format!("stream {}, {} pool", block.stream.0, block.pool)));
    rows.push(("Address", format!("{:#x} on device {}", block.address, block.device.0)));
    Grid::new("block facts").num_columns(2).spacing(vec2(12.0, 3.0)).show(ui, |ui| {
        for (name, value) in rows {
            ui.weak(name);
            ui.add(Label::new(&value).truncate()).on_hover_text(&value);
            ui.end_row();
        }
    });
    let op_stack = tables.op(block.op).map_or(StackId::NONE, |op| op.stack);
    let free_event = requested.index().filter(|_| !was_waiting);
    let free_stack = free_event.and_then(|index| trace.events.stack.get(index)).copied().unwrap_or(StackId::NONE);
    stack_ui(ui, trace, "Allocated by", block.stack);
    if op_stack.is_some() && op_stack != block.stack {
        stack_ui(ui, trace, "Forward operation called by", op_stack);
    }
    stack_ui(ui, trace, "Freed by", free_stack);
}

/// A stack, innermost first: the user's lines plain, the machinery's faint, and folded where it stands innermost.
fn stack_ui(ui: &mut Ui, trace: &Trace, name: &str, stack: StackId) {
    ui.add_space(8.0);
    let rows = stack_lines(&trace.tables, stack);
    ui.horizontal(|ui| {
        ui.strong(name);
        if !rows.is_empty() && ui.small_button("Copy").on_hover_text("Copy this stack as text.").clicked() {
            let lines: Vec<&str> = rows.iter().map(|row| row.text.as_str()).collect();
            ui.ctx().copy_text(lines.join("\n"));
        }
    });
    if rows.is_empty() {
        ui.weak("no stack was recorded");
        return;
    }
    let shades = Shades::in_ui(ui);
    let row_ui = |ui: &mut Ui, row: &StackLine| {
        line_ui(ui, &row.text, if row.is_program { shades.strong } else { shades.faint });
    };
    // How memory was obtained matters less than for whom: the allocator's own lines are folded away.
    let inner = rows.iter().position(|row| row.is_program).unwrap_or(0);
    if inner > 0 {
        let title = format!("{inner} lines of allocator and framework");
        let folded = CollapsingHeader::new(RichText::new(title).size(12.0)).id_salt(name);
        folded.show(ui, |ui| rows[..inner].iter().for_each(|row| row_ui(ui, row)));
    }
    rows[inner..].iter().for_each(|row| row_ui(ui, row));
}

/// One line of a stack: the function, and below it where that is.
fn line_ui(ui: &mut Ui, text: &str, colour: egui::Color32) {
    ui.scope(|ui| {
        ui.style_mut().wrap_mode = Some(TextWrapMode::Truncate);
        ui.spacing_mut().item_spacing.y = 0.0;
        let (function, place) = text.rsplit_once(" (").unwrap_or((text, ""));
        ui.add(Label::new(RichText::new(function).monospace().size(12.0).color(colour))).on_hover_text(text);
        if !place.is_empty() {
            let place = place.trim_end_matches(')');
            let faint = Shades::in_ui(ui).faint;
            ui.add(Label::new(RichText::new(format!("    {place}")).monospace().size(11.0).color(faint)))
                .on_hover_text(text);
        }
    });
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
    let phase = |event: EventId| {
        let Some(span) = trace.spans.at(event) else {
            return String::new();
        };
        let step = span.step.map_or_else(String::new, |step| format!("step {step} "));
        format!("{step}{}", span.phase)
    };
    let made = if block.is_baseline() {
        "from before the recording".to_owned()
    } else {
        format!("from {}", phase(block.alloc))
    };
    let Some(end) = block.free_requested.index() else {
        return format!("{made}, kept to the end");
    };
    let first = block.alloc.index().unwrap_or(0);
    let time = |index: usize| trace.events.time_of(EventId::from_index(index)).unwrap_or(0);
    let lasted = format_nanos(time(end).saturating_sub(time(first)));
    let events = format_count(end.saturating_sub(first) as u64);
    format!("{made} to {}: {events} events, {lasted}", phase(block.free_requested))
}

fn event_text(trace: &Trace, event: EventId, none: &str) -> String {
    match trace.events.time_of(event) {
        Some(time) => format!("event {}, {}", format_count(u64::from(event.0)), format_nanos(time)),
        None => none.to_owned(),
    }
}
