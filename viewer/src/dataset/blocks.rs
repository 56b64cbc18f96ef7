//! The table with a row for each block.

use std::ops::Range;

use highwater_analysis::Lifetime;
use highwater_analysis::Origin;
use highwater_analysis::lifetime::step_of;
use highwater_snapshots::trace::Block;
use highwater_snapshots::{BlockId, EventId, Trace};

use super::Rows;
use super::column::{Column, Value, number};
use super::identity::Identity;
use super::texts::Texts;

/// The rows of a recording.
pub(super) struct BlockRows<'a> {
    trace: &'a Trace,
    identity: &'a Identity,
    texts: Texts,
}

impl<'a> BlockRows<'a> {
    pub(super) fn new(trace: &'a Trace, identity: &'a Identity) -> Self {
        Self { trace, identity, texts: Texts::default() }
    }

    fn block(&self, row: usize) -> Block {
        self.trace.blocks.get(BlockId::from_index(row))
    }

    fn time(&self, event: EventId) -> Option<i64> {
        Some(self.identity.unix_ns(self.trace.events.time_of(event)?))
    }

    /// Returns the event at which a block's free was requested; -1 if that was before the first event.
    fn free_event(&self, row: usize) -> Option<i64> {
        if self.trace.was_waiting_at_start(BlockId::from_index(row)) {
            return Some(-1);
        }
        event_number(self.block(row).free_requested)
    }
}

fn event_number(event: EventId) -> Option<i64> {
    event.is_some().then_some(i64::from(event.0))
}

impl Rows for BlockRows<'_> {
    fn identity(&self) -> &Identity {
        self.identity
    }

    fn len(&self) -> usize {
        self.trace.blocks.len()
    }

    fn enter(&mut self, _rows: Range<usize>) {
        self.texts.forget();
    }
}

/// The columns.
pub(super) fn columns<'a>() -> Vec<Column<BlockRows<'a>>> {
    use Value::{Number, Running, Text};
    type Row<'a> = BlockRows<'a>;
    vec![
        Column::always("recording", "The file's name", Text(|r: &mut Row<'a>, _| Some(r.identity.recording.clone()))),
        Column::always(
            "block",
            "The number of the block in the recording, as in events",
            Running(|_, row| Some(row as i64)),
        ),
        Column::always("device", "The device", Number(|r, row| Some(i64::from(r.block(row).device.0)))),
        Column::or_null(
            "stream",
            "The stream that it was allocated for",
            Number(|r, row| number(r.block(row).stream.0)),
        ),
        Column::or_null("address", "The address of its first byte", Number(|r, row| number(r.block(row).address))),
        Column::or_null("requested_bytes", "Requested bytes", Number(|r, row| number(r.block(row).requested))),
        Column::or_null("allocated_bytes", "Bytes after rounding", Number(|r, row| number(r.block(row).allocated))),
        Column::always(
            "category",
            "What it is for: parameter, gradient, activation …",
            Text(|r, row| Some(r.texts.fixed(r.trace.blocks.category[row].name()))),
        ),
        Column::or_null(
            "op_id",
            "The number of the forward operation that requested it, in execution order",
            Number(|r, row| {
                let op = r.block(row).op;
                op.is_some().then_some(i64::from(op.0))
            }),
        ),
        Column::or_null(
            "op",
            "Its name: linear, layer_norm …",
            Text(|r, row| r.texts.op(r.trace, r.trace.blocks.op[row])),
        ),
        Column::or_null(
            "scope",
            "The module path in which it was allocated: encoder.layers.3.mlp",
            Text(|r, row| r.texts.scope(r.trace, r.trace.blocks.scope[row])),
        ),
        Column::always(
            "pool",
            "The allocator's pool",
            Text(|r, row| Some(r.texts.fixed(r.trace.blocks.pool[row].name()))),
        ),
        Column::or_null(
            "step",
            "The training step in which it was allocated, from 0",
            Number(|r, row| step_of(r.trace, &r.block(row)).map(i64::from)),
        ),
        Column::always(
            "phase",
            "The phase in which it was allocated; before for blocks from before the recording, none in a recording without phases",
            Text(|r, row| Some(r.texts.fixed(Origin::of(r.trace, &r.block(row)).word()))),
        ),
        Column::always(
            "lifetime",
            "phase, step, steps: freed in the same phase, the same step, a later step; kept: live at the end; before, \
             always: from before the recording, and freed in it or live at its end",
            Text(|r, row| Some(r.texts.fixed(Lifetime::of(r.trace, &r.block(row)).word()))),
        ),
        Column::always(
            "alloc_event",
            "The event that allocated it; -1 for blocks from before the first event",
            Running(|r, row| Some(event_number(r.block(row).alloc).unwrap_or(-1))),
        ),
        Column::or_null(
            "free_event",
            "The event by which its free was requested, from which on it is not live; null while it lives",
            Running(|r, row| r.free_event(row)),
        ),
        Column::or_null(
            "free_completed_event",
            "The event by which its memory came back, from which on it is not active",
            Running(|r, row| event_number(r.block(row).free_completed)),
        ),
        Column::or_null(
            "last_use_event",
            "The event of its last use, where the recording says uses",
            Running(|r, row| event_number(r.block(row).last_use)),
        ),
        Column::or_null(
            "alloc_time_ns",
            "The time of its allocation, in nanoseconds since 1970",
            Running(|r, row| r.time(r.block(row).alloc)),
        ),
        Column::or_null(
            "free_time_ns",
            "When its free was requested",
            Running(|r, row| r.time(r.block(row).free_requested)),
        ),
        Column::or_null(
            "lifetime_ns",
            "How long it lived, where both are known",
            Running(|r, row| {
                let block = r.block(row);
                let (made, freed) = (r.time(block.alloc)?, r.time(block.free_requested)?);
                Some(freed.saturating_sub(made))
            }),
        ),
        Column::or_null(
            "frame",
            "The innermost line of its stack that is the program's own: file:line function",
            Text(|r, row| r.texts.frame(r.trace, r.trace.blocks.stack[row])),
        ),
        Column::or_null(
            "stack",
            "The stack that allocated it: lines as function (file:line), outermost first, with ; between them",
            Text(|r, row| r.texts.stack(r.trace, r.trace.blocks.stack[row])),
        ),
    ]
}
