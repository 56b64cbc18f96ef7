//! The ledger of the program's live driver allocations, updated by each call. It is plain data that calls neither the
//! driver nor the recorder.

mod pages;
mod streams;

use std::collections::BTreeMap;

use highwater_recorder::snapshots::event::{Alloc, Range};
use highwater_recorder::snapshots::{StartingBlock, StartingState};
use highwater_recorder::{Category, DeviceId, OpId, Pool, ScopeId, StackId, StreamId};

use pages::Pages;
pub(crate) use streams::Streams;

/// Start of the artificial addresses of memory without an address, far from all addresses of the driver.
const NOWHERE: u64 = 1 << 62;
/// Alignment of artificial addresses.
const APART: u64 = 2 << 20;

/// The program's reference to its memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Name {
    /// Address of the first byte.
    Address(u64),
    /// Handle of an array or a mipmapped array.
    Array(u64),
}

/// A live allocation, which is a segment from the driver with a single block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allocation {
    pub(crate) device: DeviceId,
    pub(crate) block: u64,
    pub(crate) address: u64,
    pub(crate) bytes: u64,
    pub(crate) stream: StreamId,
    /// Scope of the call that made the allocation.
    pub(crate) scope: ScopeId,
    /// Context whose destruction frees the allocation; 0 if none.
    pub(crate) context: u64,
    /// Whether the allocation consists of mapped pages (`cuMemMap`) rather than of a segment.
    pub(crate) is_pages: bool,
}

impl Allocation {
    /// Returns the pool according to PyTorch's size rule, since driver allocations have none.
    pub(crate) fn pool(&self) -> Pool {
        if self.bytes > 1 << 20 { Pool::Large } else { Pool::Small }
    }

    pub(crate) fn range(&self) -> Range {
        Range { address: self.address, bytes: self.bytes, stream: self.stream, pool: self.pool() }
    }

    fn alloc(&self) -> Alloc {
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

/// A change of an allocation. Changes are reported in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    Begins(Allocation),
    Ends(Allocation),
}

pub(crate) type SendChange<'a> = &'a mut dyn FnMut(Change);

#[derive(Clone, Copy, Debug)]
pub(crate) struct New {
    pub(crate) device: DeviceId,
    pub(crate) bytes: u64,
    pub(crate) stream: StreamId,
    pub(crate) scope: ScopeId,
    pub(crate) context: u64,
}

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

    /// Returns an unused artificial address. 2^62 bytes of addresses are used before they repeat.
    fn apart(&mut self, bytes: u64) -> u64 {
        let address = NOWHERE + self.apart;
        self.apart = (self.apart + bytes.next_multiple_of(APART)) % NOWHERE;
        address
    }
}

#[derive(Debug)]
pub(crate) struct Ledger {
    counters: Counters,
    allocations: BTreeMap<Name, Allocation>,
    pages: Pages,
    pub(crate) streams: Streams,
}

impl Ledger {
    pub(crate) const fn new() -> Self {
        Self {
            counters: Counters { blocks: 0, apart: 0 },
            allocations: BTreeMap::new(),
            pages: Pages::new(),
            streams: Streams::new(),
        }
    }

    pub(crate) fn add(&mut self, name: Name, new: New, send: SendChange<'_>) {
        // An older entry was freed without being seen, since the driver has reused its address.
        self.take(name, send);
        let New { device, bytes, stream, scope, context } = new;
        let address = match name {
            Name::Address(address) => address,
            Name::Array(_) => self.counters.apart(bytes),
        };
        let block = self.counters.block();
        let allocation = Allocation { device, block, address, bytes, stream, scope, context, is_pages: false };
        self.allocations.insert(name, allocation);
        send(Change::Begins(allocation));
    }

    pub(crate) fn take(&mut self, name: Name, send: SendChange<'_>) -> Option<Allocation> {
        let allocation = self.allocations.remove(&name)?;
        send(Change::Ends(allocation));
        Some(allocation)
    }

    /// Restores an allocation that the driver refused to free.
    pub(crate) fn put_back(&mut self, name: Name, allocation: Allocation, send: SendChange<'_>) {
        let again = Allocation { block: self.counters.block(), ..allocation };
        self.allocations.insert(name, again);
        send(Change::Begins(again));
    }

    /// Removes all allocations of a destroyed context, oldest first.
    pub(crate) fn end_context(&mut self, context: u64, send: SendChange<'_>) {
        let of_context = |(name, allocation): (&Name, &Allocation)| {
            (allocation.context == context).then_some((allocation.block, *name))
        };
        let mut gone: Vec<(u64, Name)> = self.allocations.iter().filter_map(of_context).collect();
        gone.sort_unstable_by_key(|&(block, _)| block);
        for (_, name) in gone {
            self.take(name, send);
        }
    }

    /// Returns the live allocations of a device, sorted by block key.
    pub(crate) fn state(&self, device: DeviceId) -> StartingState {
        let mut all: Vec<Allocation> = self
            .allocations
            .values()
            .copied()
            .chain(self.pages.allocations())
            .filter(|allocation| allocation.device == device)
            .collect();
        all.sort_unstable_by_key(|allocation| allocation.block);
        let ranges = |is_pages: bool| {
            all.iter().filter(|allocation| allocation.is_pages == is_pages).map(Allocation::range).collect()
        };
        let block = |allocation: &Allocation| StartingBlock {
            alloc: allocation.alloc(),
            stack: StackId::NONE,
            free_requested: false,
        };
        let (segments, mappings) = (ranges(false), ranges(true));
        StartingState { device, segments, mappings, blocks: all.iter().map(block).collect() }
    }
}

#[cfg(test)]
mod tests;
