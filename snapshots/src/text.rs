//! Events as lines of text, in the form printed by `highwater events`.

use std::fmt::Write as _;

use crate::event::{EventKind, Range};
use crate::ids::{BlockId, DeviceId, EventId, OpId, ScopeId, StackId};
use crate::trace::{Subject, Trace};

/// Formats an event as a line of text, without its time.
pub fn event_text(trace: &Trace, id: EventId) -> String {
    text_with_stack(trace, id, trace.events.stack[id.0 as usize])
}

/// Formats an event as a line of text, without its time and stack.
pub fn event_text_without_stack(trace: &Trace, id: EventId) -> String {
    text_with_stack(trace, id, StackId::NONE)
}

fn text_with_stack(trace: &Trace, id: EventId, stack: StackId) -> String {
    let index = id.0 as usize;
    let kind = trace.events.kind[index];
    let device = device_text(trace.events.device[index]);
    let name = kind.name();
    match trace.subject(id) {
        Subject::Block(block) if kind == EventKind::Alloc => {
            format!("{name} {}", block_text(trace, block, stack))
        }
        Subject::Block(block) => format!("{name} b{}{device}{}", trace.block_number(block).0, stack_text(trace, stack)),
        Subject::Unmatched => format!("{name} ?{device}{}", stack_text(trace, stack)),
        Subject::Segment(segment) => {
            let range = range_text(&trace.segments.get(segment).range);
            format!("{name} {range}{device}{}", stack_text(trace, stack))
        }
        Subject::Tag(block, category) => format!("{name} b{} {category}{device}", trace.block_number(block).0),
        Subject::Oom(row) => {
            let oom = &trace.ooms[row];
            let context = context_text(trace, oom.op, oom.scope);
            let stream = oom.stream.map_or_else(String::new, |stream| format!(" stream={}", stream.0));
            let (requested, free, stack) = (oom.requested, oom.device_free, stack_text(trace, stack));
            format!("{name} {requested} free={free}{context}{stream}{device}{stack}")
        }
        Subject::DeviceUsed(bytes) => format!("{name} {bytes}{device}"),
        Subject::Step(step) => format!("{name} {step}"),
        Subject::Phase(phase) => format!("{name} {phase}"),
        Subject::Mark(text) => format!("{name} {}{device}", trace.tables.string(text)),
    }
}

/// Formats a block with its call stack.
pub fn block_text(trace: &Trace, id: BlockId, stack: StackId) -> String {
    let block = trace.blocks.get(id);
    let context = context_text(trace, block.op, block.scope);
    let stream = if block.stream.0 == 0 { String::new() } else { format!(" stream={}", block.stream.0) };
    format!(
        "b{} {}/{} {}{context} {}{stream}{}{}",
        trace.block_number(id).0,
        block.requested,
        block.allocated,
        block.category,
        block.pool,
        device_text(block.device),
        stack_text(trace, stack)
    )
}

fn context_text(trace: &Trace, op: OpId, scope: ScopeId) -> String {
    let mut out = String::new();
    if op.is_some() {
        let _ = write!(out, " #{}", trace.tables.op_name(op));
    }
    if scope.is_some() {
        let _ = write!(out, " @{}", trace.tables.scope_path(scope));
    }
    out
}

/// Formats a range of addresses with its pool and stream.
pub fn range_text(range: &Range) -> String {
    let stream = if range.stream.0 == 0 { String::new() } else { format!(" stream={}", range.stream.0) };
    format!("{:#x} {} {}{stream}", range.address, range.bytes, range.pool)
}

/// Formats a device, unless it is the first one.
pub fn device_text(device: DeviceId) -> String {
    if device.0 == 0 { String::new() } else { format!(" device={}", device.0) }
}

fn stack_text(trace: &Trace, stack: StackId) -> String {
    trace.tables.stack_text(stack).iter().fold(String::new(), |out, line| out + " < " + line)
}
