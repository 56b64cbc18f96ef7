//! The table with a row for each event, and for each device a row for the state before the first event.

use std::ops::Range;

use highwater_analysis::Totals;
use highwater_analysis::replay::{baseline_effects, effects};
use highwater_snapshots::trace::Segment;
use highwater_snapshots::{BlockId, DeviceId, EventId, Subject, Trace};

use super::Rows;
use super::column::number;
use super::identity::Identity;
use super::texts::Texts;

pub(super) struct EventRows<'a> {
    trace: &'a Trace,
    identity: &'a Identity,
    texts: Texts,
    devices: Vec<DeviceId>,
    /// Number of rows before the first event: one for each device in the first window, 0 in later windows.
    before: usize,
    /// The totals of each device after the last prepared row.
    now: Vec<Totals>,
    /// The rows whose totals are in `totals`. Rows without a device have the total `None`.
    entered: Range<usize>,
    totals: Vec<Option<Totals>>,
    /// The index of the span that contains the last requested row.
    span: usize,
}

impl<'a> EventRows<'a> {
    pub(super) fn new(trace: &'a Trace, identity: &'a Identity) -> Self {
        let devices = trace.device_ids();
        let start = |&device: &DeviceId| {
            let mut totals = Totals::default();
            baseline_effects(trace, device, |effect| effect.apply(trace, &mut totals));
            totals
        };
        Self {
            trace,
            identity,
            texts: Texts::default(),
            now: devices.iter().map(start).collect(),
            before: if trace.start.events == 0 { devices.len() } else { 0 },
            devices,
            entered: 0..0,
            totals: Vec::new(),
            span: 0,
        }
    }

    /// Returns the event of a row; `None` for the state before the first event.
    fn event(&self, row: usize) -> Option<EventId> {
        row.checked_sub(self.before).map(EventId::from_index)
    }

    /// Returns the device of a row; `None` if the event concerns every device.
    fn device(&self, row: usize) -> Option<DeviceId> {
        match self.event(row) {
            None => self.devices.get(row).copied(),
            Some(event) if self.trace.is_everywhere(event) => None,
            Some(event) => Some(self.trace.events.device[event.0 as usize]),
        }
    }

    fn total(&self, row: usize) -> Option<&Totals> {
        self.totals[row - self.entered.start].as_ref()
    }

    fn block(&self, row: usize) -> Option<BlockId> {
        match self.trace.subject(self.event(row)?) {
            Subject::Block(block) | Subject::Tag(block, _) => block.is_some().then_some(block),
            _ => None,
        }
    }

    fn segment(&self, row: usize) -> Option<Segment> {
        match self.trace.subject(self.event(row)?) {
            Subject::Segment(segment) => Some(self.trace.segments.get(segment)),
            _ => None,
        }
    }

    /// Returns the step and phase of a row, if recorded; rows must be requested in order, column by column.
    fn span(&mut self, row: usize) -> Option<&'a highwater_snapshots::trace::Span> {
        let event = self.event(row)?;
        let rows = self.trace.spans.rows();
        let is_here = |span: &&highwater_snapshots::trace::Span| span.first <= event && event < span.end;
        if rows.get(self.span).filter(is_here).is_none() {
            self.span = rows.partition_point(|span| span.first <= event).saturating_sub(1);
        }
        rows.get(self.span).filter(is_here)
    }
}

impl Rows for EventRows<'_> {
    fn identity(&self) -> &Identity {
        self.identity
    }

    fn len(&self) -> usize {
        self.before + self.trace.events.len()
    }

    fn enter(&mut self, rows: Range<usize>) {
        self.texts.forget();
        self.totals.clear();
        for row in rows.clone() {
            let place = self.device(row).and_then(|device| self.devices.binary_search(&device).ok());
            if let Some(event) = self.event(row) {
                // An event that concerns every device changes no total.
                let device = self.trace.events.device[event.0 as usize];
                if let Ok(at) = self.devices.binary_search(&device) {
                    let now = &mut self.now[at];
                    effects(self.trace, event.0 as usize, |effect| effect.apply(self.trace, now));
                }
            }
            self.totals.push(place.map(|at| self.now[at]));
        }
        self.entered = rows;
    }
}

pub(super) fn columns<'a>() -> Vec<super::column::Column<EventRows<'a>>> {
    type Column<'a> = super::column::Column<EventRows<'a>>;
    vec![
        Column::text("recording", "The file's name", |r, _| Some(r.identity.recording.clone())).always(),
        Column::running(
            "event",
            "The index of the event; -1 for the state before the first event, with one row per device",
            |r, row| Some(r.event(row).map_or(-1, |event| r.trace.number(event) as i64)),
        )
        .always(),
        Column::running("time_ns", "Time, in nanoseconds since 1970", |r, row| {
            let time = r.event(row).and_then(|event| r.trace.events.time_of(event)).unwrap_or(0);
            Some(r.identity.unix_ns(time))
        })
        .always(),
        Column::text(
            "kind",
            "Event kind: alloc, free_requested, free_completed, segment_alloc …; start for the state before",
            |r, row| {
                let name = r.event(row).map_or("start", |event| r.trace.events.kind[event.0 as usize].name());
                Some(r.texts.fixed(name))
            },
        )
        .always(),
        Column::number("device", "The device; null for steps and phases, which concern every device", |r, row| {
            r.device(row).map(|device| i64::from(device.0))
        }),
        Column::number("stream", "The stream of the block or segment", |r, row| {
            let block = r.block(row).map(|block| r.trace.blocks.stream[block.0 as usize]);
            number(block.or_else(|| Some(r.segment(row)?.range.stream))?.0)
        }),
        Column::number("step", "The training step, from 0; null outside all steps", |r, row| {
            r.span(row)?.step.map(i64::from)
        }),
        Column::text("phase", "setup, forward, backward, optimizer, zero_grad, eval or other", |r, row| {
            let phase = r.span(row).map_or(highwater_snapshots::Phase::Setup, |span| span.phase);
            Some(r.texts.fixed(phase.name()))
        })
        .always(),
        Column::running(
            "block",
            "Index of the event's block, as in column block of the table blocks; null if there is none",
            |r, row| r.block(row).map(|block| i64::from(r.trace.block_number(block).0)),
        ),
        Column::number("address", "First byte of the block or segment", |r, row| {
            let block = r.block(row).map(|block| r.trace.blocks.address[block.0 as usize]);
            number(block.or_else(|| Some(r.segment(row)?.range.address))?)
        }),
        Column::number(
            "size_bytes",
            "Requested bytes of the block or failed request, size of the segment, or sample of device_used",
            |r, row| match r.trace.subject(r.event(row)?) {
                Subject::Segment(segment) => number(r.trace.segments.get(segment).range.bytes),
                Subject::Oom(at) => number(r.trace.ooms.get(at)?.requested),
                Subject::DeviceUsed(bytes) => number(bytes),
                _ => number(r.trace.blocks.requested[r.block(row)?.0 as usize]),
            },
        ),
        Column::number("rounded_bytes", "Bytes of the block after the allocator's rounding", |r, row| {
            number(r.trace.blocks.allocated[r.block(row)?.0 as usize])
        }),
        Column::text("category", "Category of the block: parameter, gradient, activation …", |r, row| {
            let category = r.trace.blocks.category[r.block(row)?.0 as usize];
            Some(r.texts.fixed(category.name()))
        }),
        Column::number(
            "op_id",
            "The id of the forward operation that requested the block, in execution order",
            |r, row| {
                let op = r.trace.blocks.op[r.block(row)?.0 as usize];
                op.is_some().then(|| i64::from(r.trace.op_number(op).0))
            },
        ),
        Column::text("op", "The name of the operation, such as linear or layer_norm", |r, row| {
            let op = r.trace.blocks.op[r.block(row)?.0 as usize];
            r.texts.op(r.trace, op)
        }),
        Column::text("scope", "The module path in which the block was allocated: encoder.layers.3.mlp", |r, row| {
            let scope = r.trace.blocks.scope[r.block(row)?.0 as usize];
            r.texts.scope(r.trace, scope)
        }),
        Column::text("pool", "The allocator's pool of the block or segment", |r, row| {
            let block = r.block(row).map(|block| r.trace.blocks.pool[block.0 as usize]);
            let pool = block.or_else(|| Some(r.segment(row)?.range.pool))?;
            Some(r.texts.fixed(pool.name()))
        }),
        Column::text(
            "frame",
            "The innermost line of the event's stack that is in the program's own code: file:line function",
            |r, row| {
                let stack = r.trace.events.stack[r.event(row)?.0 as usize];
                r.texts.frame(r.trace, stack)
            },
        ),
        Column::text(
            "stack",
            "The event's whole stack: lines as function (file:line), outermost first, with ; between them",
            |r, row| {
                let stack = r.trace.events.stack[r.event(row)?.0 as usize];
                r.texts.stack(r.trace, stack)
            },
        ),
        Column::text("mark", "Text of a mark of the program", |r, row| match r.trace.subject(r.event(row)?) {
            Subject::Mark(text) => Some(r.texts.string(r.trace, text)),
            _ => None,
        }),
        Column::running(
            "requested_bytes",
            "Total on the device after the event: requested by live blocks",
            |r, row| number(r.total(row)?.requested),
        ),
        Column::running("allocated_bytes", "Total after the event: the same blocks after rounding", |r, row| {
            number(r.total(row)?.allocated)
        }),
        Column::running("active_bytes", "Total after the event: plus blocks awaiting free", |r, row| {
            number(r.total(row)?.active)
        }),
        Column::running("reserved_bytes", "Total after the event: reserved from the driver", |r, row| {
            number(r.total(row)?.reserved)
        }),
        Column::running(
            "device_used_bytes",
            "In use on the whole device, by the last sample so far; 0 before the first sample",
            |r, row| number(r.total(row)?.device_used),
        ),
    ]
}
