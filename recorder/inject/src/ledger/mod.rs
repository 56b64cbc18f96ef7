//! Ledger: what the program holds of the driver, and what each of its calls changes of that. Plain data: it neither calls
//! the driver nor tells the recorder.

mod pages;
mod streams;

use std::collections::BTreeMap;

use highwater_recorder::snapshots::event::{Alloc, Range};
use highwater_recorder::snapshots::{StartingBlock, StartingState};
use highwater_recorder::{Category, DeviceId, OpId, Pool, ScopeId, StackId, StreamId};

pub(crate) use pages::{Pages, Released};
pub(crate) use streams::Streams;

/// Where memory stands that has no address of the program's: far from all that the driver hands out.
const NOWHERE: u64 = 1 << 62;
/// What lies there begins at multiples of this.
const APART: u64 = 2 << 20;

/// What the program knows its memory by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Name {
    /// Its first byte.
    Address(u64),
    /// An array, or one in several sizes.
    Array(u64),
}

/// Memory that the program holds: at once a segment, which the driver gave, and the one block in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) device: DeviceId,
    /// The block's number.
    pub(crate) block: u64,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) stream: StreamId,
    /// The call that obtained it.
    pub(crate) scope: ScopeId,
    /// The context that it goes with; 0 for none.
    pub(crate) context: u64,
    /// Whether it is pages that are mapped, and not a segment.
    pub(crate) is_pages: bool,
}

impl Held {
    /// The pool that PyTorch's rule would give it: it has none of its own.
    fn pool(&self) -> Pool {
        if self.bytes > 1 << 20 { Pool::Large } else { Pool::Small }
    }

    pub(crate) fn range(&self) -> Range {
        Range { address: self.address, bytes: self.bytes, stream: self.stream, pool: self.pool() }
    }

    pub(crate) fn alloc(&self) -> Alloc {
        Alloc {
            block: self.block,
            address: self.address,
            requested: self.bytes,
            allocated: self.bytes,
            stream: self.stream,
            pool: self.pool(),
            category: Category::Unknown,
            op: OpId::NONE,
            scope: self.scope,
        }
    }
}

/// What happened to memory, in the order in which it is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Begins(Held),
    Ends(Held),
}

/// Who is told of changes.
pub(crate) type Tell<'a> = &'a mut dyn FnMut(Change);

/// Memory as it is obtained.
#[derive(Clone, Copy, Debug)]
pub(crate) struct New {
    pub(crate) device: DeviceId,
    pub(crate) bytes: u64,
    pub(crate) stream: StreamId,
    pub(crate) scope: ScopeId,
    pub(crate) context: u64,
}

/// Numbers of blocks, and addresses for what has none.
#[derive(Debug)]
pub(crate) struct Counters {
    blocks: u64,
    apart: u64,
}

impl Counters {
    fn block(&mut self) -> u64 {
        self.blocks += 1;
        self.blocks - 1
    }

    /// Addresses of nobody, never given twice: there are enough for two million million mebibytes.
    fn apart(&mut self, bytes: u64) -> u64 {
        let address = NOWHERE + self.apart;
        self.apart = (self.apart + bytes.next_multiple_of(APART)) % NOWHERE;
        address
    }
}

/// All that the program holds.
#[derive(Debug)]
pub(crate) struct Ledger {
    counters: Counters,
    held: BTreeMap<Name, Held>,
    pages: Pages,
    pub(crate) streams: Streams,
}

impl Ledger {
    /// Nothing is held.
    pub(crate) const fn new() -> Self {
        Self {
            counters: Counters { blocks: 0, apart: 0 },
            held: BTreeMap::new(),
            pages: Pages::new(),
            streams: Streams::new(),
        }
    }

    /// The driver gave memory.
    pub(crate) fn add(&mut self, name: Name, new: New, tell: Tell<'_>) {
        // What went without being seen to go is gone, since the driver hands its address out again.
        self.take(name, tell);
        let New { device, bytes, stream, scope, context } = new;
        let address = match name {
            Name::Address(address) => address,
            Name::Array(_) => self.counters.apart(bytes),
        };
        let block = self.counters.block();
        let held = Held { device, block, address, bytes, stream, scope, context, is_pages: false };
        self.held.insert(name, held);
        tell(Change::Begins(held));
    }

    /// Memory goes back to the driver; none if the ledger does not know of it.
    pub(crate) fn take(&mut self, name: Name, tell: Tell<'_>) -> Option<Held> {
        let held = self.held.remove(&name)?;
        tell(Change::Ends(held));
        Some(held)
    }

    /// It did not: the driver refused.
    pub(crate) fn put_back(&mut self, name: Name, held: Held, tell: Tell<'_>) {
        let again = Held { block: self.counters.block(), ..held };
        self.held.insert(name, again);
        tell(Change::Begins(again));
    }

    /// A context is gone, and with it all that was obtained in it, oldest first.
    pub(crate) fn end_context(&mut self, context: u64, tell: Tell<'_>) {
        let of_context = |(name, held): (&Name, &Held)| (held.context == context).then_some((held.block, *name));
        let mut gone: Vec<(u64, Name)> = self.held.iter().filter_map(of_context).collect();
        gone.sort_unstable_by_key(|&(block, _)| block);
        for (_, name) in gone {
            self.take(name, tell);
        }
    }

    /// Memory without addresses was obtained.
    pub(crate) fn create(&mut self, handle: u64, new: New, tell: Tell<'_>) {
        self.pages.create(&mut self.counters, handle, new, tell);
    }

    /// A handle is about to be given back.
    pub(crate) fn release(&mut self, handle: u64, tell: Tell<'_>) -> Option<Released> {
        self.pages.release(handle, tell)
    }

    /// It was not: the driver refused.
    pub(crate) fn undo_release(&mut self, released: Released, tell: Tell<'_>) {
        self.pages.undo_release(&mut self.counters, released, tell);
    }

    /// The program was given another handle of the memory behind an address.
    pub(crate) fn retain(&mut self, address: u64, handle: u64) {
        self.pages.retain(address, handle);
    }

    /// Memory was put behind addresses.
    pub(crate) fn map(&mut self, address: u64, bytes: u64, handle: u64, tell: Tell<'_>) {
        self.pages.map(&mut self.counters, address, bytes, handle, tell);
    }

    /// It was taken away from there.
    pub(crate) fn unmap(&mut self, address: u64, bytes: u64, tell: Tell<'_>) {
        self.pages.unmap(&mut self.counters, address, bytes, tell);
    }

    /// What is held of a device, in the order of its blocks.
    pub(crate) fn state(&self, device: DeviceId) -> StartingState {
        let mut all: Vec<Held> =
            self.held.values().copied().chain(self.pages.held()).filter(|held| held.device == device).collect();
        all.sort_unstable_by_key(|held| held.block);
        let ranges = |is_pages: bool| all.iter().filter(|held| held.is_pages == is_pages).map(Held::range).collect();
        let block = |held: &Held| StartingBlock { alloc: held.alloc(), stack: StackId::NONE, free_requested: false };
        let (segments, mappings) = (ranges(false), ranges(true));
        StartingState { device, segments, mappings, blocks: all.iter().map(block).collect() }
    }
}

#[cfg(test)]
mod tests;
