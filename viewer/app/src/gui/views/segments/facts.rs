//! Describes addresses, pieces and segments.

use eframe::egui::{Color32, RichText, Ui};
use highwater_analysis::ReservedSegment;
use highwater_analysis::addresses::{Content, Piece};
use highwater_snapshots::{BlockId, EventId, Trace, count_of, format_bytes, format_count};

use crate::gui::widgets::{swatch_ui, theme};

/// Returns the content of an address at a moment, one fact per line.
pub(super) fn content_lines(
    trace: &Trace,
    content: Option<Content>,
    address: Option<u64>,
    moment: usize,
) -> Vec<String> {
    let mut lines = match content {
        None => vec!["not reserved".to_owned()],
        Some(Content::Hole) => vec!["free".to_owned()],
        Some(Content::Unmapped) => vec!["not mapped: address space without memory".to_owned()],
        Some(Content::Live(block)) => block_lines(trace, block, ""),
        Some(Content::Rounding(block)) => block_lines(trace, block, "rounding loss of "),
        Some(Content::Waiting(block)) => block_lines(trace, block, "awaiting free: "),
    };
    let place = address.map_or_else(String::new, |address| format!("address {address:#x}, "));
    let moment = match (moment.checked_sub(1), trace.start.events) {
        (Some(event), _) => format!("after event {}", format_count(trace.number(EventId::from_index(event)))),
        (None, _) if trace.is_state() => "in the state at the dump".to_owned(),
        (None, 0) => "before the first event".to_owned(),
        (None, first) => format!("before event {}", format_count(first)),
    };
    lines.push(format!("{place}{moment}"));
    lines
}

fn block_lines(trace: &Trace, id: BlockId, prefix: &str) -> Vec<String> {
    if id.index().is_none_or(|row| row >= trace.blocks.len()) {
        return Vec::new();
    }
    let block = trace.blocks.get(id);
    let of = match trace.tables.op_name(block.op) {
        "" => String::new(),
        op => format!(" of {op}"),
    };
    let mut lines = vec![format!("{prefix}{}{of}", block.category)];
    if block.scope.is_some() {
        lines.push(trace.tables.scope_path(block.scope));
    }
    lines.push(format!(
        "{} requested, {} allocated, stream {}",
        format_bytes(block.requested),
        format_bytes(block.allocated),
        block.stream.0
    ));
    lines
}

pub(super) fn segment_lines(segment: &ReservedSegment) -> Vec<String> {
    let usage = &segment.usage;
    let kind = if segment.is_expandable { "expandable segment" } else { "segment" };
    let mut lines = vec![
        format!(
            "{kind} of {} at {:#x}, {}",
            format_bytes(usage.reserved()),
            segment.addresses.start,
            segment.home.text()
        ),
        format!(
            "{} allocated in {}, {} rounding, {} awaiting free",
            format_bytes(usage.allocated()),
            count_of(usage.blocks, "block"),
            format_bytes(usage.rounding),
            format_bytes(usage.waiting)
        ),
        format!(
            "{} free in {}, the largest {}",
            format_bytes(usage.free),
            count_of(usage.holes, "range"),
            format_bytes(usage.largest_hole)
        ),
    ];
    if usage.unmapped > 0 {
        lines.push(format!("{} not mapped", format_bytes(usage.unmapped)));
    }
    lines
}

pub(super) fn piece_lines(trace: &Trace, piece: &Piece, moment: usize) -> Vec<String> {
    let mut lines = content_lines(trace, Some(piece.content), Some(piece.addresses.start), moment);
    let bytes = piece.bytes();
    lines.insert(1, format!("{} ({} B)", format_bytes(bytes), format_count(bytes)));
    lines
}

/// Shows the lines of a tooltip, the first one in a strong colour after a square of `colour`.
pub(super) fn tooltip_ui(ui: &mut Ui, colour: Option<Color32>, lines: &[String]) {
    ui.set_max_width(theme::TOOLTIP_WIDTH);
    let mut lines = lines.iter();
    ui.horizontal(|ui| {
        if let Some(colour) = colour {
            swatch_ui(ui, colour);
        }
        if let Some(first) = lines.next() {
            ui.strong(first);
        }
    });
    for line in lines {
        ui.label(RichText::new(line).size(12.0));
    }
}
