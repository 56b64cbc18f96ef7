//! Encodes a chunk of events into the columns of a section. [`events_decode`](super::events_decode) is the inverse:
//! both track the same state and must change together.

use super::columns::{Column, ColumnBytes};
use super::varint::{put, put_signed, zigzag};
use crate::event::{Alloc, Event, Range, What};
use crate::ids::{DeviceId, StackId};

/// The previous value of each field stored as a difference. All values are zero at the start of a chunk.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Former {
    pub(super) time: u64,
    pub(super) stack: u32,
    pub(super) next_block: u64,
    pub(super) address: u64,
    pub(super) stream: u64,
    pub(super) op: u32,
    pub(super) scope: u32,
    pub(super) freed: u64,
    pub(super) tagged: u64,
    pub(super) used: u64,
}

#[derive(Debug, Default)]
pub(super) struct EventEncoder {
    columns: ColumnBytes,
    former: Former,
    address_shift: u32,
}

impl EventEncoder {
    /// Replaces the content of `out` by the encoded `events`.
    pub(super) fn encode(&mut self, events: &[Event], out: &mut Vec<u8>) {
        self.columns.clear();
        self.former = Former::default();
        let facts = ChunkFacts::of(events);
        self.address_shift = facts.address_shift();
        for event in events {
            self.columns.get(Column::Kind).push(event.what.kind() as u8);
            put_signed(self.columns.get(Column::Time), event.time_ns.wrapping_sub(self.former.time) as i64);
            self.former.time = event.time_ns;
            if facts.has_devices {
                put(self.columns.get(Column::Device), u64::from(event.device.0));
            }
            if facts.has_stacks {
                put_handle(self.columns.get(Column::Stack), &mut self.former.stack, event.stack.0);
            }
            self.put_what(&event.what);
        }
        if !facts.has_streams {
            self.columns.get(Column::Stream).clear();
        }
        if !facts.has_oom_streams {
            self.columns.get(Column::OomStream).clear();
        }
        self.columns.write_payload(out);
    }

    fn put_what(&mut self, what: &What) {
        match *what {
            What::Alloc(alloc) => self.put_alloc(&alloc),
            What::FreeRequested(key) | What::FreeCompleted(key) => {
                put_signed(self.columns.get(Column::Freed), key.wrapping_sub(self.former.freed) as i64);
                self.former.freed = key;
            }
            What::Tag(key, category) => {
                put_signed(self.columns.get(Column::Tagged), key.wrapping_sub(self.former.tagged) as i64);
                self.former.tagged = key;
                self.columns.get(Column::TagCategory).push(category as u8);
            }
            What::SegmentAlloc(range)
            | What::SegmentFree(range)
            | What::SegmentMap(range)
            | What::SegmentUnmap(range) => {
                self.put_rare(&range_facts(range));
            }
            What::Oom(oom) => {
                self.put_rare(&[oom.requested, oom.device_free, u64::from(oom.op.0), u64::from(oom.scope.0)]);
                let stream = oom.stream.map_or(0, |stream| stream.0.wrapping_add(1));
                put(self.columns.get(Column::OomStream), stream);
            }
            What::DeviceUsed(bytes) => self.put_rare(&[bytes]),
            What::Step(step) => self.put_rare(&[u64::from(step)]),
            What::Phase(phase) => self.put_rare(&[u64::from(phase as u8)]),
            What::Mark(text) => self.put_rare(&[u64::from(text.0)]),
            What::Used(key) => {
                put_signed(self.columns.get(Column::Used), key.wrapping_sub(self.former.used) as i64);
                self.former.used = key;
            }
        }
    }

    fn put_alloc(&mut self, alloc: &Alloc) {
        let (columns, former) = (&mut self.columns, &mut self.former);
        put_signed(columns.get(Column::Block), alloc.block.wrapping_sub(former.next_block) as i64);
        former.next_block = alloc.block.wrapping_add(1);
        let addresses = columns.get(Column::Address);
        if addresses.is_empty() {
            addresses.push(self.address_shift as u8);
        }
        put_signed(addresses, alloc.address.wrapping_sub(former.address) as i64 >> self.address_shift);
        former.address = alloc.address;
        put(columns.get(Column::Requested), alloc.requested);
        put_signed(columns.get(Column::Rounding), alloc.allocated.wrapping_sub(alloc.requested) as i64);
        put_signed(columns.get(Column::Stream), alloc.stream.0.wrapping_sub(former.stream) as i64);
        former.stream = alloc.stream.0;
        columns.get(Column::Pool).push(alloc.pool as u8);
        columns.get(Column::Category).push(alloc.category as u8);
        put_handle(columns.get(Column::Op), &mut former.op, alloc.op.0);
        put_handle(columns.get(Column::Scope), &mut former.scope, alloc.scope.0);
    }

    fn put_rare(&mut self, facts: &[u64]) {
        let column = self.columns.get(Column::Rare);
        facts.iter().for_each(|fact| put(column, *fact));
    }
}

fn range_facts(range: Range) -> [u64; 4] {
    [range.address, range.bytes, range.stream.0, u64::from(range.pool as u8)]
}

/// Appends a handle: 0 for `NONE`, or one more than the zig-zag code of the difference from the previous handle.
fn put_handle(out: &mut Vec<u8>, former: &mut u32, handle: u32) {
    if handle == u32::MAX {
        out.push(0);
    } else {
        put(out, 1 + zigzag(i64::from(handle) - i64::from(*former)));
        *former = handle;
    }
}

/// Properties of a chunk that determine its encoding, computed in one pass.
#[derive(Clone, Copy, Debug, Default)]
struct ChunkFacts {
    has_devices: bool,
    has_stacks: bool,
    has_streams: bool,
    has_oom_streams: bool,
    /// The bitwise OR of the addresses of all allocs.
    addresses: u64,
}

impl ChunkFacts {
    fn of(events: &[Event]) -> Self {
        let mut facts = Self::default();
        for event in events {
            facts.has_devices |= event.device != DeviceId(0);
            facts.has_stacks |= event.stack != StackId::NONE;
            match event.what {
                What::Alloc(alloc) => {
                    facts.has_streams |= alloc.stream.0 != 0;
                    facts.addresses |= alloc.address;
                }
                What::Oom(oom) => facts.has_oom_streams |= oom.stream.is_some(),
                _ => {}
            }
        }
        facts
    }

    /// The binary logarithm of the largest power of two that divides all addresses.
    fn address_shift(&self) -> u32 {
        self.addresses.trailing_zeros().min(63)
    }
}
