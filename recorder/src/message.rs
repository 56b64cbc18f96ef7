//! The compact encoding of an event in a queue and in a ring, in a few 8-byte words.
//!
//! The first word contains kind, category and pool, device and stack, the second the sequence number, and the third the
//! time. The rest depends on the kind. A free has 32 bytes in total, and an allocation 72.

use highwater_snapshots::event::{Alloc, BlockKey, Event, EventKind, Oom, Range, What};
use highwater_snapshots::{Category, DeviceId, OpId, Phase, Pool, ScopeId, StackId, StreamId, StringId};

/// Length of the longest message, in words.
pub(crate) const MAX_WORDS: usize = 9;
const PLACE: usize = 1;
/// Index of the word with the time, in ticks in a queue and in nanoseconds in a ring.
pub(crate) const TIME: usize = 2;

/// A forward operation, with process-wide ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct NewOp {
    pub(crate) name: StringId,
    pub(crate) scope: ScopeId,
    pub(crate) stack: StackId,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Message {
    Event(What),
    /// A free that completes at once, which represents two events at the same time.
    Freed(BlockKey),
    /// Allocation of a block that is identified by its address and has no key yet.
    AllocAt(Alloc),
    /// Free of the block at this address, which completes at once.
    FreedAt(u64),
    TagAt(u64, Category),
    Op(OpId, NewOp),
}

impl Message {
    #[inline(always)]
    pub(crate) fn events(&self) -> u64 {
        match self {
            Self::Event(_) | Self::AllocAt(_) | Self::TagAt(..) => 1,
            Self::Freed(_) | Self::FreedAt(_) => 2,
            Self::Op(..) => 0,
        }
    }
}

/// Kinds of messages in addition to those of events.
const FREED: u8 = 200;
const ALLOC_AT: u8 = 201;
const FREED_AT: u8 = 202;
const OP: u8 = 203;
const TAG_AT: u8 = 204;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Words {
    pub(crate) words: [u64; MAX_WORDS],
    pub(crate) len: usize,
}

#[inline(always)]
fn small(category: Category, pool: Pool) -> u8 {
    category as u8 | (pool as u8) << 6
}

fn category(small: u8) -> Category {
    Category::from_code(small & 0x3f).unwrap_or(Category::Unknown)
}

fn pool(small: u8) -> Pool {
    Pool::from_code(small >> 6).unwrap_or(Pool::Large)
}

#[inline(always)]
fn two(high: u32, low: u32) -> u64 {
    u64::from(high) << 32 | u64::from(low)
}

#[inline(always)]
const fn len_of(kind: u8) -> usize {
    const ALLOC: u8 = EventKind::Alloc as u8;
    const OOM: u8 = EventKind::Oom as u8;
    match kind {
        ALLOC | ALLOC_AT => MAX_WORDS,
        0..=3 => 6,
        OOM => 7,
        OP => 5,
        _ => 4,
    }
}

impl Words {
    #[inline(always)]
    fn new(kind: u8, device: DeviceId, small: u8, stack: StackId) -> Self {
        let mut words = [0; MAX_WORDS];
        words[0] = u64::from(kind) | u64::from(small) << 8 | u64::from(device.0) << 16 | u64::from(stack.0) << 32;
        Self { words, len: len_of(kind) }
    }

    #[inline(always)]
    fn with<const N: usize>(mut self, rest: [u64; N]) -> Self {
        self.words[TIME + 1..TIME + 1 + N].copy_from_slice(&rest);
        self
    }

    /// Encodes a message, without sequence number and time.
    #[inline(always)]
    pub(crate) fn of(device: DeviceId, stack: StackId, message: &Message) -> Self {
        match *message {
            Message::Event(ref what) => Self::of_event(device, stack, what),
            Message::Freed(key) => Self::new(FREED, device, 0, stack).with([key]),
            Message::AllocAt(ref alloc) => Self::of_alloc(ALLOC_AT, device, stack, alloc),
            Message::FreedAt(address) => Self::new(FREED_AT, device, 0, stack).with([address]),
            Message::TagAt(address, category) => Self::new(TAG_AT, device, category as u8, stack).with([address]),
            Message::Op(id, op) => {
                Self::new(OP, device, 0, op.stack).with([two(id.0, op.name.0), u64::from(op.scope.0)])
            }
        }
    }

    #[inline(always)]
    fn of_alloc(kind: u8, device: DeviceId, stack: StackId, alloc: &Alloc) -> Self {
        let Alloc { block, address, requested, allocated, stream, op, scope, .. } = *alloc;
        let rest = [block, address, requested, allocated, two(op.0, scope.0), stream.0];
        Self::new(kind, device, small(alloc.category, alloc.pool), stack).with(rest)
    }

    #[inline(always)]
    fn of_event(device: DeviceId, stack: StackId, what: &What) -> Self {
        let new = |small| Self::new(what.kind() as u8, device, small, stack);
        match *what {
            What::Alloc(ref alloc) => Self::of_alloc(EventKind::Alloc as u8, device, stack, alloc),
            What::SegmentAlloc(range)
            | What::SegmentFree(range)
            | What::SegmentMap(range)
            | What::SegmentUnmap(range) => {
                new(small(Category::Unknown, range.pool)).with([range.address, range.bytes, range.stream.0])
            }
            What::Oom(oom) => {
                let stream = oom.stream.map_or(0, |stream| stream.0);
                new(u8::from(oom.stream.is_some())).with([
                    oom.requested,
                    oom.device_free,
                    two(oom.op.0, oom.scope.0),
                    stream,
                ])
            }
            What::FreeRequested(key) | What::FreeCompleted(key) | What::Used(key) => new(0).with([key]),
            What::Tag(key, category) => new(category as u8).with([key]),
            What::DeviceUsed(bytes) => new(0).with([bytes]),
            What::Step(number) => new(0).with([u64::from(number)]),
            What::Phase(phase) => new(0).with([phase as u64]),
            What::Mark(text) => new(0).with([u64::from(text.0)]),
        }
    }

    /// Encodes an event for a ring, with its time but without a sequence number.
    pub(crate) fn of_kept(event: &Event) -> Self {
        let mut words = Self::of_event(event.device, event.stack, &event.what);
        words.words[TIME] = event.time_ns;
        words
    }

    #[inline(always)]
    pub(crate) fn stamp(&mut self, place: u32, ticks: u64) {
        self.words[PLACE] = u64::from(place);
        self.words[TIME] = ticks;
    }
}

/// Returns the length, in words, of the message whose first word is `first`.
#[inline(always)]
pub(crate) fn len(first: u64) -> usize {
    len_of(first as u8)
}

#[inline(always)]
pub(crate) fn sequence_number(words: &[u64]) -> u32 {
    words[PLACE] as u32
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Read {
    pub(crate) time: u64,
    pub(crate) device: DeviceId,
    pub(crate) stack: StackId,
    pub(crate) message: Message,
}

pub(crate) fn read(words: &[u64]) -> Read {
    let at = |position: usize| words.get(TIME + 1 + position).copied().unwrap_or(0);
    let halves = |position: usize| ((at(position) >> 32) as u32, at(position) as u32);
    let first = words[0];
    let (kind, fields) = (first as u8, (first >> 8) as u8);
    let stack = StackId((first >> 32) as u32);
    let alloc = || {
        let (op, scope) = halves(4);
        Alloc {
            block: at(0),
            address: at(1),
            requested: at(2),
            allocated: at(3),
            stream: StreamId(at(5)),
            pool: pool(fields),
            category: category(fields),
            op: OpId(op),
            scope: ScopeId(scope),
        }
    };
    let range = || Range { address: at(0), bytes: at(1), stream: StreamId(at(2)), pool: pool(fields) };
    let message = match EventKind::from_code(kind) {
        Some(kind) => Message::Event(match kind {
            EventKind::SegmentAlloc => What::SegmentAlloc(range()),
            EventKind::SegmentFree => What::SegmentFree(range()),
            EventKind::SegmentMap => What::SegmentMap(range()),
            EventKind::SegmentUnmap => What::SegmentUnmap(range()),
            EventKind::Alloc => What::Alloc(alloc()),
            EventKind::FreeRequested => What::FreeRequested(at(0)),
            EventKind::FreeCompleted => What::FreeCompleted(at(0)),
            EventKind::Tag => What::Tag(at(0), category(fields)),
            EventKind::Oom => {
                let (op, scope) = halves(2);
                let stream = (fields > 0).then(|| StreamId(at(3)));
                What::Oom(Oom { requested: at(0), device_free: at(1), stream, op: OpId(op), scope: ScopeId(scope) })
            }
            EventKind::DeviceUsed => What::DeviceUsed(at(0)),
            EventKind::Step => What::Step(at(0) as u32),
            EventKind::Phase => What::Phase(Phase::from_code(at(0) as u8).unwrap_or(Phase::Other)),
            EventKind::Mark => What::Mark(StringId(at(0) as u32)),
            EventKind::Used => What::Used(at(0)),
        }),
        None if kind == ALLOC_AT => Message::AllocAt(alloc()),
        None if kind == FREED => Message::Freed(at(0)),
        None if kind == FREED_AT => Message::FreedAt(at(0)),
        None if kind == TAG_AT => Message::TagAt(at(0), category(fields)),
        None => {
            let (id, name) = halves(0);
            Message::Op(OpId(id), NewOp { name: StringId(name), scope: ScopeId(at(1) as u32), stack })
        }
    };
    Read { time: words[TIME], device: DeviceId((first >> 16) as u16), stack, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_message_is_read_as_it_was_sent_and_none_is_longer_than_its_kind() {
        let alloc = Alloc {
            block: u64::MAX,
            address: 0x7f00_0000_0000,
            requested: 1,
            allocated: 512,
            stream: StreamId(u64::MAX - 1),
            pool: Pool::Large,
            category: Category::Workspace,
            op: OpId(7),
            scope: ScopeId::NONE,
        };
        let range = Range { address: 1 << 40, bytes: 1 << 21, stream: StreamId(3), pool: Pool::Large };
        let oom = Oom {
            requested: 1 << 40,
            device_free: 5,
            stream: Some(StreamId(u64::MAX)),
            op: OpId::NONE,
            scope: ScopeId(9),
        };
        let op = NewOp { name: StringId(4), scope: ScopeId(5), stack: StackId(6) };
        let mut messages = vec![
            Message::Freed(3),
            Message::AllocAt(alloc),
            Message::FreedAt(u64::MAX),
            Message::TagAt(u64::MAX, Category::Gradient),
            Message::Op(OpId(1), op),
        ];
        let events = [
            What::SegmentAlloc(range),
            What::SegmentFree(range),
            What::SegmentMap(range),
            What::SegmentUnmap(range),
            What::Alloc(alloc),
            What::FreeRequested(1),
            What::FreeCompleted(2),
            What::Tag(3, Category::OptimizerState),
            What::Oom(oom),
            What::Oom(Oom { stream: None, ..oom }),
            What::DeviceUsed(u64::MAX),
            What::Step(u32::MAX),
            What::Phase(Phase::Backward),
            What::Mark(StringId(8)),
            What::Used(11),
        ];
        assert_eq!(events.len(), EventKind::ALL.len() + 1, "failed requests with and without a stream");
        messages.extend(events.map(Message::Event));
        for message in messages {
            let stack = StackId(6);
            let mut words = Words::of(DeviceId(u16::MAX), stack, &message);
            words.stamp(77, 1234);
            let used = &words.words[..words.len];
            assert_eq!(len(used[0]), words.len);
            assert!(words.words[words.len..].iter().all(|word| *word == 0), "{message:?} is longer than its kind");
            assert_eq!(read(used), Read { time: 1234, device: DeviceId(u16::MAX), stack, message });
            assert_eq!(sequence_number(used), 77);
        }
    }
}
