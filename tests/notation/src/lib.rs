//! A notation of traces as lines of text. Tests are written in it, and `highwater events` prints its events.
//!
//! Each event is a line: its kind as in [`EventKind`](highwater_snapshots::event::EventKind), its subject, then its
//! attributes.
//!
//! ```text
//! baseline w 4096/4096 parameter @encoder
//! segment_alloc 0x200000 2097152
//! step 0
//! phase forward
//! alloc a 1000/1024 activation #linear @encoder.mlp < forward < main
//! used a
//! tag a gradient
//! free a
//! oom 4096 free=1024
//! begin "ProfilerStep#7"
//! alloc b 512
//! attribute user_metadata "layer 3"
//! end "ProfilerStep#7"
//! ```
//!
//! Sizes of blocks are `requested/allocated`, or one number for both. Blocks have names; `free x` means `free_requested
//! x` followed by `free_completed x`. Attributes: a category, `#op`, `@scope.path`, `stream=2`, `device=1`, `small` or
//! `large`, `t=12us` (by default each event is one microsecond after the previous one), and at the end the stack,
//! innermost function first, each after `<`: `forward`, or `model.py:10 forward`, or `forward (model.so)` if the line
//! is unknown. `#` at the start of a line begins a comment.
//!
//! `begin` and `end` enclose the events of an annotation; of several with the same name, the one that began last ends
//! first, and without an `end` it extends to the end of the trace. `begin` may be followed by `device=1` and `guessed`;
//! the times of annotations are not written. `attribute` adds a name and a value to the subject of the previous line. A
//! name or value of several words is in double quotes, with the escapes `\"`, `\\` and `\n` as in Rust. A mark may end
//! with `device=1`.

mod quotes;
mod parse;

use std::fmt::Write as _;

pub use parse::trace_from_text;

use highwater_snapshots::ids::EventId;
use highwater_snapshots::text::{block_text, device_text, event_text, range_text};
use highwater_snapshots::trace::{Annotation, Owner, SegmentRole, Trace};
use quotes::quoted;

/// Writes a whole trace as text: the baseline, then each event with its attributes, with annotations between them.
pub fn text_from_trace(trace: &Trace) -> String {
    let mut out = String::new();
    for id in trace.blocks.ids().take_while(|id| trace.blocks.get(*id).is_baseline()) {
        let waits = if trace.was_waiting_at_start(id) { " waiting" } else { "" };
        let _ = writeln!(out, "baseline {}{waits}", block_text(trace, id, trace.blocks.stack[id.0 as usize]));
        push_attributes(&mut out, trace, Owner::Block(id));
    }
    for id in trace.segments.ids().take_while(|id| !trace.segments.get(*id).alloc.is_some()) {
        let segment = trace.segments.get(id);
        let word = match segment.role {
            SegmentRole::Segment => "baseline_segment",
            _ => "baseline_mapping",
        };
        let _ = writeln!(out, "{word} {}{}", range_text(&segment.range), device_text(segment.device));
        push_attributes(&mut out, trace, Owner::Segment(id));
    }
    let mut annotations = trace.annotations.iter().peekable();
    let mut open: Vec<&Annotation> = Vec::new();
    let events = trace.events.ids().map(|id| (id, true));
    for (id, is_event) in events.chain([(EventId::from_index(trace.events.len()), false)]) {
        push_ends(&mut out, trace, &mut open, id);
        while let Some(annotation) = annotations.next_if(|annotation| annotation.first <= id) {
            let guessed = if annotation.is_guessed { " guessed" } else { "" };
            let name = quoted(trace.tables.string(annotation.name));
            let _ = writeln!(out, "begin {name}{}{guessed}", device_text(annotation.device));
            open.push(annotation);
            if annotation.end <= id {
                push_ends(&mut out, trace, &mut open, id);
            }
        }
        if is_event {
            let _ = writeln!(out, "{}", event_text(trace, id));
            push_attributes(&mut out, trace, Owner::Event(id));
        }
    }
    out
}

/// Writes the `end` lines of those annotations of `open` that end before event `id`, the last begun first.
fn push_ends(out: &mut String, trace: &Trace, open: &mut Vec<&Annotation>, id: EventId) {
    for annotation in open.iter().rev().filter(|annotation| annotation.end <= id) {
        let _ = writeln!(out, "end {}", quoted(trace.tables.string(annotation.name)));
    }
    open.retain(|annotation| annotation.end > id);
}

fn push_attributes(out: &mut String, trace: &Trace, owner: Owner) {
    for attribute in trace.attributes_of(owner) {
        let [name, value] = [attribute.name, attribute.value].map(|text| quoted(trace.tables.string(text)));
        let _ = writeln!(out, "attribute {name} {value}");
    }
}
