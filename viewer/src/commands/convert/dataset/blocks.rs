//! The table with a row for each block.

use std::collections::HashMap;
use std::ops::Range;

use highwater_analysis::{BlockValues, GroupKey};
use highwater_snapshots::trace::Block;
use highwater_snapshots::{BlockId, EventId, Trace};
use parquet::data_type::ByteArray;

use super::Rows;
use super::column::number;
use super::identity::Identity;
use super::texts::Texts;

/// The rows of a recording, or of a window of one: the blocks that the window allocates, and in the first window also
/// those from before the recording.
pub(super) struct BlockRows<'a> {
    trace: &'a Trace,
    identity: &'a Identity,
    texts: Texts,
    /// For each key, the values of all blocks, and the text of each value.
    keys: HashMap<GroupKey, (BlockValues<'a>, Vec<Option<ByteArray>>)>,
    /// Number of blocks in `trace` that have their row in an earlier window.
    before: usize,
    ends: &'a LaterEnds,
}

/// The index of an event in the recording, and its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Numbered {
    number: u64,
    time_ns: u64,
}

/// The end of a block that outlives the window in which it is allocated.
#[derive(Clone, Copy, Debug, Default)]
struct End {
    free_requested: Option<Numbered>,
    free_completed: Option<Numbered>,
    last_use: Option<Numbered>,
}

/// The ends of blocks that outlive the window in which they are allocated, by block id.
#[derive(Debug, Default)]
pub(super) struct LaterEnds(HashMap<BlockId, End>);

impl LaterEnds {
    /// Returns the ends, in the window `trace`, of blocks of earlier windows. The blocks of `trace` must have the ids
    /// of the whole recording.
    pub(super) fn of(trace: &Trace) -> Self {
        let mut ends = HashMap::new();
        if trace.start.events > 0 {
            for id in (0..rows_before(trace)).map(BlockId::from_index) {
                let block = trace.blocks.get(id);
                // If the block was already waiting at the start, an earlier window has the request.
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

    /// Adds the ends from a later window.
    pub(super) fn append(&mut self, part: Self) {
        for (block, end) in part.0 {
            let known = self.0.entry(block).or_default();
            known.free_requested = known.free_requested.or(end.free_requested);
            known.free_completed = known.free_completed.or(end.free_completed);
            known.last_use = end.last_use.or(known.last_use);
        }
    }
}

/// Returns the number of blocks that `trace` does not allocate.
fn rows_before(trace: &Trace) -> usize {
    trace.blocks.alloc.partition_point(|alloc| !alloc.is_some())
}

fn numbered(trace: &Trace, event: EventId) -> Option<Numbered> {
    Some(Numbered { time_ns: trace.events.time_of(event)?, number: trace.number(event) })
}

impl<'a> BlockRows<'a> {
    pub(super) fn new(trace: &'a Trace, identity: &'a Identity, ends: &'a LaterEnds) -> Self {
        let before = if trace.start.events == 0 { 0 } else { rows_before(trace) };
        Self { trace, identity, texts: Texts::default(), keys: HashMap::new(), before, ends }
    }

    fn id(&self, row: usize) -> BlockId {
        BlockId::from_index(self.before + row)
    }

    /// Returns the values of `key` for all blocks, and the value for the block of a row.
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

    /// Returns the event at which a block's free was requested; `None` if it was not requested within the recording.
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

pub(super) fn columns<'a>() -> Vec<super::column::Column<BlockRows<'a>>> {
    type Column<'a> = super::column::Column<BlockRows<'a>>;
    let mut columns = vec![
        Column::text("recording", "The file's name", |r, _| Some(r.identity.recording.clone())).always(),
        Column::running("block", "The index of the block in the recording, as in events", |r, row| Some(i64::from(r.trace.block_number(r.id(row)).0))).always(),
        Column::number("device", "The device", |r, row| Some(i64::from(r.block(row).device.0))).always(),
        Column::number("stream", "The stream for which the block was allocated", |r, row| r.key_number(GroupKey::Stream, row)),
        Column::number("address", "The address of the block's first byte", |r, row| number(r.block(row).address)),
        Column::number("requested_bytes", "Requested bytes", |r, row| number(r.block(row).requested)),
        Column::number("allocated_bytes", "Bytes after rounding", |r, row| number(r.block(row).allocated)),
        Column::text("category", "Category: parameter, gradient, activation …", |r, row| Some(r.texts.fixed(r.block(row).category.name()))).always(),
        Column::number("op_id", "The id of the forward operation that requested the block, in execution order", |r, row| {
                let op = r.block(row).op;
                op.is_some().then(|| i64::from(r.trace.op_number(op).0))
            }),
        Column::text("op", "The name of the operation, such as linear or layer_norm", |r, row| r.texts.op(r.trace, r.block(row).op)),
        Column::text("scope", "The module path in which the block was allocated: encoder.layers.3.mlp", |r, row| r.texts.scope(r.trace, r.block(row).scope)),
        Column::text("shape", "Shape and dtype of the block's tensor, if recorded: [4096, 4096] bfloat16", |r, row| r.trace.shape(r.id(row)).map(ByteArray::from)),
        Column::text("pool", "The allocator's pool", |r, row| Some(r.texts.fixed(r.block(row).pool.name()))).always(),
        Column::number("step", "The training step in which the block was allocated, from 0", |r, row| r.key_number(GroupKey::Step, row)),
        Column::text("phase", "The phase in which the block was allocated; before for blocks from before the recording, none in a recording without phases", |r, row| r.key_word(GroupKey::Phase, row)).always(),
        Column::text("lifetime", "phase: freed in the same phase; step: in the same step; steps: in a later step; kept: live at the end; before: \
             allocated before the recording, and freed in it; always: allocated before the recording, and live at its end", |r, row| r.key_word(GroupKey::Lifetime, row)).always(),
        Column::running("alloc_event", "The event that allocated the block; -1 for blocks from before the first event", |r, row| Some(event_number(r.alloc(row)).unwrap_or(-1))).always(),
        Column::running("free_event", "The event that requested the block's free, after which the block is not live; null while it is live", |r, row| match r.trace.was_waiting_at_start(r.id(row)) {
                // It was requested before the first event.
                true => Some(-1),
                false => event_number(r.free_requested(row)),
            }),
        Column::running("free_completed_event", "The event that completed the block's free, after which the block is not active", |r, row| {
                event_number(numbered(r.trace, r.block(row).free_completed).or(r.end(row).free_completed))
            }),
        Column::running("last_use_event", "The event of the block's last use, if the recording has uses", |r, row| event_number(r.end(row).last_use.or(numbered(r.trace, r.block(row).last_use)))),
        Column::running("alloc_time_ns", "The time of the block's allocation, in nanoseconds since 1970", |r, row| r.alloc(row).map(|event| r.time(event))),
        Column::running("free_time_ns", "The time at which the block's free was requested", |r, row| r.free_requested(row).map(|event| r.time(event))),
        Column::running("lifetime_ns", "The block's lifetime in nanoseconds, if both times are known", |r, row| {
                let (made, freed) = (r.time(r.alloc(row)?), r.time(r.free_requested(row)?));
                Some(freed.saturating_sub(made))
            }),
        Column::text("frame", "The innermost line of the block's stack that is in the program's own code: file:line function", |r, row| r.texts.frame(r.trace, r.block(row).stack)),
        Column::text("stack", "The stack that allocated the block: lines as function (file:line), outermost first, with ; between them", |r, row| r.texts.stack(r.trace, r.block(row).stack)),
    ];
    // The size is that of requested_bytes.
    for &key in GroupKey::ALL.iter().filter(|key| **key != GroupKey::Size) {
        if columns.iter().all(|column| column.name != key.name()) {
            columns.push(match key.has_numbers() {
                true => Column::number(key.name(), key.hint(), move |r, row| r.key_number(key, row)),
                false => Column::text(key.name(), key.hint(), move |r, row| r.key_word(key, row)),
            });
        }
    }
    columns
}
