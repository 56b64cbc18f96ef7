//! Events as rows of a table.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};

use highwater_snapshots::trace::Owner;
use highwater_snapshots::{BlockId, Category, EventId, OpId, ScopeId, SegmentId, StackId, StringId, Subject, Trace};

use super::moment::micros_since_1970;
use crate::report::{Column, Rows, Table, Value};

/// Maximum number of stacks whose values are cached; many events share few stacks.
const STACKS_KEPT: usize = 10_000;

/// Returns the attributes of an event by name; the last one if a name occurs twice.
pub fn attributes_of(trace: &Trace, id: EventId) -> BTreeMap<&str, &str> {
    let attributes = trace.attributes_of(Owner::Event(id)).iter();
    attributes.map(|fact| (trace.tables.string(fact.name), trace.tables.string(fact.value))).collect()
}

/// The facts of an event; `None` if they do not apply to its kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct EventFacts {
    /// The block, as its row in the trace.
    pub block: Option<BlockId>,
    /// The segment or mapping.
    pub segment: Option<SegmentId>,
    /// The address of the block or segment.
    pub address: Option<u64>,
    /// The size in bytes of the block, segment or failed request, or the bytes in use on the device.
    pub size: Option<u64>,
    allocated: Option<u64>,
    stream: Option<u64>,
    pool: Option<&'static str>,
    /// The category of the block.
    pub category: Option<Category>,
    /// The operation that requested the block.
    pub op: OpId,
    /// The module that requested the block.
    pub scope: ScopeId,
    text: StringId,
}

impl EventFacts {
    /// The facts of event `id`; `None` if there is no such event.
    pub(crate) fn of(trace: &Trace, id: EventId) -> Option<Self> {
        trace.events.kind.get(id.index()?)?;
        let of_block = |id: BlockId| {
            if id.index().is_none_or(|row| row >= trace.blocks.len()) {
                return Self::default();
            }
            let block = trace.blocks.get(id);
            Self {
                block: Some(id),
                address: Some(block.address),
                size: Some(block.requested),
                allocated: Some(block.allocated),
                stream: Some(block.stream.0),
                pool: Some(block.pool.name()),
                category: Some(block.category),
                op: block.op,
                scope: block.scope,
                ..Self::default()
            }
        };
        Some(match trace.subject(id) {
            Subject::Block(block) => of_block(block),
            Subject::Tag(block, category) => Self { category: Some(category), ..of_block(block) },
            Subject::Segment(segment) => {
                let range = trace.segments.get(segment).range;
                let (address, size) = (Some(range.address), Some(range.bytes));
                let (stream, pool) = (Some(range.stream.0), Some(range.pool.name()));
                Self { segment: Some(segment), address, size, stream, pool, ..Self::default() }
            }
            Subject::Oom(row) => trace.ooms.get(row).map_or_else(Self::default, |oom| Self {
                size: Some(oom.requested),
                op: oom.op,
                scope: oom.scope,
                ..Self::default()
            }),
            Subject::DeviceUsed(bytes) => Self { size: Some(bytes), ..Self::default() },
            Subject::Mark(text) => Self { text, ..Self::default() },
            Subject::Step(_) | Subject::Phase(_) | Subject::Unmatched => Self::default(),
        })
    }
}

/// Returns a table of some events of a window. Tables of the same recording share `stacks`.
pub fn events_table<'t>(
    trace: &'t Trace,
    ids: &'t [EventId],
    stacks: &'t RefCell<HashMap<StackId, Value>>,
) -> Table<'t> {
    let values: Rows<EventFacts> = ids.iter().filter_map(|id| EventFacts::of(trace, *id)).collect();
    let at = move |row: usize| ids[row].0 as usize;
    let span = move |row: usize| trace.spans.at(ids[row]);
    let attributes = move |row: usize| {
        let attributes = attributes_of(trace, ids[row]);
        Value::or_absent((!attributes.is_empty()).then(|| Value::of(attributes)))
    };
    let stack = move |row: usize| {
        let stack = trace.events.stack[at(row)];
        let mut stacks = stacks.borrow_mut();
        if stacks.len() >= STACKS_KEPT {
            stacks.clear();
        }
        stacks.entry(stack).or_insert_with(|| trace.tables.stack_text(stack).into()).clone()
    };
    let columns = [
        Column::number("index", "event", move |row| trace.number(ids[row])),
        Column::text("kind", "kind", move |row| trace.events.kind[at(row)].name()),
        Column::number("time_us", "time", move |row| micros_since_1970(&trace.header, trace.events.time_ns[at(row)])),
        Column::number("device", "device", move |row| trace.events.device[at(row)].0),
        Column::number("block", "block", values.of(|event| event.block.map(|block| trace.block_number(block).0))),
        Column::number("address", "address", values.of(|event| event.address)),
        Column::bytes("size", "size", values.of(|event| event.size)),
        Column::bytes("allocated", "allocated", values.of(|event| event.allocated)),
        Column::number("stream", "stream", values.of(|event| event.stream)),
        Column::text("pool", "pool", values.of(|event| event.pool)),
        Column::text("category", "category", values.of(|event| event.category.map(Category::name))),
        Column::text(
            "op",
            "op",
            values.of(|event| Some(trace.tables.op_name(event.op)).filter(|name| !name.is_empty())),
        ),
        Column::number(
            "op_id",
            "op number",
            values.of(|event| event.op.is_some().then(|| trace.op_number(event.op).0)),
        ),
        Column::text(
            "scope",
            "scope",
            values.of(|event| event.scope.is_some().then(|| trace.tables.scope_path(event.scope))),
        ),
        Column::text("phase", "phase", move |row| span(row).map(|span| span.phase.name())),
        Column::number("step", "step", move |row| span(row).and_then(|span| span.step)),
        Column::text("text", "text", values.of(|event| event.text.is_some().then(|| trace.tables.string(event.text)))),
        Column::nested("attributes", attributes),
        // Innermost first; empty if none was recorded.
        Column::text("stack", "stack", stack),
    ];
    Table::new(ids.len(), columns)
}
