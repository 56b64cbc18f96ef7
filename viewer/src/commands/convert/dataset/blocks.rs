//! The table with a row for each block.

use std::collections::HashMap;
use std::ops::Range;

use highwater_analysis::{BlockValues, GroupKey};
use highwater_snapshots::trace::Block;
use highwater_snapshots::{BlockId, EventId, Trace};
use parquet::data_type::ByteArray;

use super::Rows;
use super::column::{Column, Value, number};
use super::identity::Identity;
use super::texts::Texts;

/// The rows of a recording, or of a part of one: the blocks that the part allocates.
pub(super) struct BlockRows<'a> {
    trace: &'a Trace,
    identity: &'a Identity,
    texts: Texts,
    /// The values of keys, with the word for each.
    keys: HashMap<GroupKey, (BlockValues<'a>, Vec<Option<ByteArray>>)>,
    /// The number of blocks that belong to earlier parts.
    before: usize,
    /// The ends of blocks that outlive the window.
    ends: &'a LaterEnds,
}

/// An event by its number in the recording, and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Numbered {
    number: u64,
    time_ns: u64,
}

/// The end of a block after the part that allocates it.
#[derive(Clone, Copy, Debug, Default)]
struct End {
    free_requested: Option<Numbered>,
    free_completed: Option<Numbered>,
    last_use: Option<Numbered>,
}

/// The ends of blocks that outlive the part that allocates them, by their numbers.
#[derive(Debug, Default)]
pub(super) struct LaterEnds(HashMap<BlockId, End>);

impl LaterEnds {
    /// The ends of blocks of earlier parts, in `trace`, a window whose blocks are numbered.
    pub(super) fn of(trace: &Trace) -> Self {
        let mut ends = HashMap::new();
        if trace.start.events > 0 {
            for id in (0..rows_before(trace)).map(BlockId::from_index) {
                let block = trace.blocks.get(id);
                // An earlier part has the request of what waits for a stream.
                let requested = (!trace.was_waiting_at_start(id)).then_some(block.free_requested);
                let end = End {
                    free_requested: requested.and_then(|event| numbered(trace, event)),
                    free_completed: numbered(trace, block.free_completed),
                    last_use: numbered(trace, block.last_use),
                };
                if end.free_requested.or(end.free_completed).or(end.last_use).is_some() {
                    ends.insert(trace.block_number(id), end);
                }
            }
        }
        Self(ends)
    }

    /// Adds the ends in a part that follows.
    pub(super) fn append(&mut self, part: Self) {
        for (block, end) in part.0 {
            let known = self.0.entry(block).or_default();
            known.free_requested = known.free_requested.or(end.free_requested);
            known.free_completed = known.free_completed.or(end.free_completed);
            known.last_use = end.last_use.or(known.last_use);
        }
    }
}

/// The number of blocks that `trace` does not allocate.
fn rows_before(trace: &Trace) -> usize {
    trace.blocks.alloc.partition_point(|alloc| !alloc.is_some())
}

fn numbered(trace: &Trace, event: EventId) -> Option<Numbered> {
    Some(Numbered { time_ns: trace.events.time_of(event)?, number: trace.number(event) })
}

impl<'a> BlockRows<'a> {
    /// The rows of `trace`; `ends` has those of blocks that outlive it.
    pub(super) fn new(trace: &'a Trace, identity: &'a Identity, ends: &'a LaterEnds) -> Self {
        let before = if trace.start.events == 0 { 0 } else { rows_before(trace) };
        Self { trace, identity, texts: Texts::default(), keys: HashMap::new(), before, ends }
    }

    fn id(&self, row: usize) -> BlockId {
        BlockId::from_index(self.before + row)
    }

    /// The values of `key` of all blocks, and the value of the block of a row.
    fn values(&mut self, key: GroupKey, row: usize) -> (&(BlockValues<'a>, Vec<Option<ByteArray>>), usize) {
        let block = self.before + row;
        let values = self.keys.entry(key).or_insert_with(|| {
            let values = BlockValues::of(self.trace, key);
            let word = |value: usize| values.word(value).map(|word| ByteArray::from(word.into_bytes()));
            let words = (0..values.count()).map(word).collect();
            (values, words)
        });
        let value = values.0.value(block);
        (values, value)
    }

    fn key_number(&mut self, key: GroupKey, row: usize) -> Option<i64> {
        let ((values, _), value) = self.values(key, row);
        values.number(value).and_then(number)
    }

    fn key_word(&mut self, key: GroupKey, row: usize) -> Option<ByteArray> {
        let ((_, words), value) = self.values(key, row);
        words[value].clone()
    }

    fn block(&self, row: usize) -> Block {
        self.trace.blocks.get(self.id(row))
    }

    fn time(&self, event: Numbered) -> i64 {
        self.identity.unix_ns(event.time_ns)
    }

    fn end(&self, row: usize) -> End {
        self.ends.0.get(&self.trace.block_number(self.id(row))).copied().unwrap_or_default()
    }

    fn alloc(&self, row: usize) -> Option<Numbered> {
        numbered(self.trace, self.block(row).alloc)
    }

    /// Returns the event at which a block's free was requested in the recording.
    fn free_requested(&self, row: usize) -> Option<Numbered> {
        if self.trace.was_waiting_at_start(self.id(row)) {
            return None;
        }
        numbered(self.trace, self.block(row).free_requested).or(self.end(row).free_requested)
    }
}

fn event_number(event: Option<Numbered>) -> Option<i64> {
    event.and_then(|event| number(event.number))
}

impl Rows for BlockRows<'_> {
    fn identity(&self) -> &Identity {
        self.identity
    }

    fn len(&self) -> usize {
        self.trace.blocks.len() - self.before
    }

    fn enter(&mut self, _rows: Range<usize>) {
        self.texts.forget();
    }
}

/// The columns of the table of blocks.
pub(super) fn columns<'a>() -> Vec<Column<BlockRows<'a>>> {
    use Value::{KeyNumber, KeyText, Number, Running, Text};
    type Row<'a> = BlockRows<'a>;
    let mut columns = vec![
        Column::always("recording", "The file's name", Text(|r: &mut Row<'a>, _| Some(r.identity.recording.clone()))),
        Column::always(
            "block",
            "The number of the block in the recording, as in events",
            Running(|r, row| Some(i64::from(r.trace.block_number(r.id(row)).0))),
        ),
        Column::always("device", "The device", Number(|r, row| Some(i64::from(r.block(row).device.0)))),
        Column::or_null("stream", "The stream that it was allocated for", KeyNumber(GroupKey::Stream, Row::key_number)),
        Column::or_null("address", "The address of its first byte", Number(|r, row| number(r.block(row).address))),
        Column::or_null("requested_bytes", "Requested bytes", Number(|r, row| number(r.block(row).requested))),
        Column::or_null("allocated_bytes", "Bytes after rounding", Number(|r, row| number(r.block(row).allocated))),
        Column::always(
            "category",
            "Category: parameter, gradient, activation …",
            Text(|r, row| Some(r.texts.fixed(r.block(row).category.name()))),
        ),
        Column::or_null(
            "op_id",
            "The number of the forward operation that requested it, in execution order",
            Number(|r, row| {
                let op = r.block(row).op;
                op.is_some().then(|| i64::from(r.trace.op_number(op).0))
            }),
        ),
        Column::or_null("op", "Its name: linear, layer_norm …", Text(|r, row| r.texts.op(r.trace, r.block(row).op))),
        Column::or_null(
            "scope",
            "The module path in which it was allocated: encoder.layers.3.mlp",
            Text(|r, row| r.texts.scope(r.trace, r.block(row).scope)),
        ),
        Column::or_null(
            "shape",
            "Shape and dtype of its tensor, if recorded: [4096, 4096] bfloat16",
            Text(|r, row| r.trace.shape(r.id(row)).map(ByteArray::from)),
        ),
        Column::always("pool", "The allocator's pool", Text(|r, row| Some(r.texts.fixed(r.block(row).pool.name())))),
        Column::or_null(
            "step",
            "The training step in which it was allocated, from 0",
            KeyNumber(GroupKey::Step, Row::key_number),
        ),
        Column::always(
            "phase",
            "The phase in which it was allocated; before for blocks from before the recording, none in a recording without phases",
            KeyText(GroupKey::Phase, Row::key_word),
        ),
        Column::always(
            "lifetime",
            "phase, step, steps: freed in the same phase, the same step, a later step; kept: live at the end; before, \
             always: from before the recording, and freed in it or live at its end",
            KeyText(GroupKey::Lifetime, Row::key_word),
        ),
        Column::always(
            "alloc_event",
            "The event that allocated it; -1 for blocks from before the first event",
            Running(|r, row| Some(event_number(r.alloc(row)).unwrap_or(-1))),
        ),
        Column::or_null(
            "free_event",
            "The event by which its free was requested, from which on it is not live; null while it is live",
            Running(|r, row| match r.trace.was_waiting_at_start(r.id(row)) {
                // It was requested before the first event.
                true => Some(-1),
                false => event_number(r.free_requested(row)),
            }),
        ),
        Column::or_null(
            "free_completed_event",
            "The event that completed its free, from which on it is not active",
            Running(|r, row| {
                event_number(numbered(r.trace, r.block(row).free_completed).or(r.end(row).free_completed))
            }),
        ),
        Column::or_null(
            "last_use_event",
            "The event of its last use, if the recording has uses",
            Running(|r, row| event_number(r.end(row).last_use.or(numbered(r.trace, r.block(row).last_use)))),
        ),
        Column::or_null(
            "alloc_time_ns",
            "The time of its allocation, in nanoseconds since 1970",
            Running(|r, row| r.alloc(row).map(|event| r.time(event))),
        ),
        Column::or_null(
            "free_time_ns",
            "The time at which its free was requested",
            Running(|r, row| r.free_requested(row).map(|event| r.time(event))),
        ),
        Column::or_null(
            "lifetime_ns",
            "Its lifetime, if both times are known",
            Running(|r, row| {
                let (made, freed) = (r.time(r.alloc(row)?), r.time(r.free_requested(row)?));
                Some(freed.saturating_sub(made))
            }),
        ),
        Column::or_null(
            "frame",
            "The innermost line of its stack that is the program's own: file:line function",
            Text(|r, row| r.texts.frame(r.trace, r.block(row).stack)),
        ),
        Column::or_null(
            "stack",
            "The stack that allocated it: lines as function (file:line), outermost first, with ; between them",
            Text(|r, row| r.texts.stack(r.trace, r.block(row).stack)),
        ),
    ];
    // The size is that of requested_bytes.
    for key in GroupKey::ALL.iter().filter(|key| **key != GroupKey::Size) {
        if columns.iter().all(|column| column.name != key.name()) {
            let value = match key.has_numbers() {
                true => KeyNumber(*key, Row::key_number),
                false => KeyText(*key, Row::key_word),
            };
            columns.push(Column::or_null(key.name(), key.hint(), value));
        }
    }
    columns
}
