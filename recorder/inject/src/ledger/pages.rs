//! Physical memory that is allocated without addresses, and mapped and unmapped by separate calls.
//!
//! The memory is counted once, from its allocation until no handle and no mapping refers to it any more. Meanwhile, its
//! address is the first one at which all of it is mapped, or an artificial address if there is none.

use std::collections::BTreeMap;

use super::{Allocation, Change, Counters, Ledger, New, SendChange};

/// Physical memory (`cuMemCreate`), with its handles and mappings.
#[derive(Clone, Debug)]
struct Physical {
    allocation: Allocation,
    /// Number of times that a handle of this memory must still be released.
    handles: u32,
    /// Addresses and sizes in bytes of the mappings, oldest first.
    mapped: Vec<(u64, u64)>,
    /// Whether the recorded address is one of the program's.
    is_placed: bool,
}

/// The effect of a release, used to undo it.
#[derive(Debug)]
pub(crate) struct Released {
    handle: u64,
    piece: u64,
    /// The allocation, if the release removed the last reference.
    ended: Option<Physical>,
}

/// All physical memory of the program, by handle and by mapped address.
#[derive(Debug)]
pub(crate) struct Pages {
    /// The key is a separate id, because a handle may be reused while its previous memory is still mapped.
    pieces: BTreeMap<u64, Physical>,
    handles: BTreeMap<u64, u64>,
    mappings: BTreeMap<u64, u64>,
    next: u64,
}

impl Physical {
    /// Ends the block at its current address, and begins another at `place`; at an artificial address if `place` is
    /// `None`.
    fn move_to(&mut self, counters: &mut Counters, place: Option<u64>, send: SendChange<'_>) {
        send(Change::Ends(self.allocation));
        self.is_placed = place.is_some();
        let address = place.unwrap_or_else(|| counters.apart(self.allocation.bytes));
        self.allocation = Allocation { address, block: counters.block(), ..self.allocation };
        send(Change::Begins(self.allocation));
    }

    /// Returns an address at which all of the memory is mapped.
    fn whole(&self) -> Option<u64> {
        self.mapped.iter().find(|(_, bytes)| *bytes == self.allocation.bytes).map(|(address, _)| *address)
    }
}

impl Pages {
    pub(super) const fn new() -> Self {
        Self { pieces: BTreeMap::new(), handles: BTreeMap::new(), mappings: BTreeMap::new(), next: 0 }
    }

    fn end_if_unused(&mut self, piece: u64, send: SendChange<'_>) -> Option<Physical> {
        let is_unused = |physical: &Physical| physical.handles == 0 && physical.mapped.is_empty();
        self.pieces.get(&piece).filter(|physical| is_unused(physical))?;
        let physical = self.pieces.remove(&piece)?;
        send(Change::Ends(physical.allocation));
        Some(physical)
    }

    pub(super) fn allocations(&self) -> impl Iterator<Item = Allocation> {
        self.pieces.values().map(|physical| physical.allocation)
    }
}

impl Ledger {
    pub(crate) fn create(&mut self, handle: u64, new: New, send: SendChange<'_>) {
        let New { device, bytes, stream, scope, context } = new;
        let (address, block) = (self.counters.apart(bytes), self.counters.block());
        let allocation = Allocation { device, block, address, bytes, stream, scope, context, is_pages: true };
        self.pages.next += 1;
        self.pages.handles.insert(handle, self.pages.next);
        self.pages
            .pieces
            .insert(self.pages.next, Physical { allocation, handles: 1, mapped: Vec::new(), is_placed: false });
        send(Change::Begins(allocation));
    }

    pub(crate) fn release(&mut self, handle: u64, send: SendChange<'_>) -> Option<Released> {
        let piece = *self.pages.handles.get(&handle)?;
        let physical = self.pages.pieces.get_mut(&piece)?;
        physical.handles = physical.handles.saturating_sub(1);
        if physical.handles == 0 {
            self.pages.handles.retain(|_, other| *other != piece);
        }
        Some(Released { handle, piece, ended: self.pages.end_if_unused(piece, send) })
    }

    /// Restores a handle that the driver refused to release.
    pub(crate) fn undo_release(&mut self, released: Released, send: SendChange<'_>) {
        let Released { handle, piece, ended } = released;
        if let Some(mut physical) = ended {
            physical.allocation.block = self.counters.block();
            send(Change::Begins(physical.allocation));
            self.pages.pieces.insert(piece, physical);
        }
        if let Some(physical) = self.pages.pieces.get_mut(&piece) {
            physical.handles += 1;
            self.pages.handles.insert(handle, piece);
        }
    }

    /// Adds another handle of the memory mapped at an address.
    pub(crate) fn retain(&mut self, address: u64, handle: u64) {
        let Some((&start, &piece)) = self.pages.mappings.range(..=address).next_back() else { return };
        let Some(physical) = self.pages.pieces.get_mut(&piece) else { return };
        if physical.mapped.iter().any(|&(at, bytes)| at == start && address - start < bytes) {
            physical.handles += 1;
            self.pages.handles.insert(handle, piece);
        }
    }

    pub(crate) fn map(&mut self, address: u64, bytes: u64, handle: u64, send: SendChange<'_>) {
        // Memory from elsewhere, such as another process, is not counted.
        let Some(&piece) = self.pages.handles.get(&handle) else { return };
        let Some(physical) = self.pages.pieces.get_mut(&piece) else { return };
        physical.mapped.push((address, bytes));
        self.pages.mappings.insert(address, piece);
        if !physical.is_placed && bytes == physical.allocation.bytes {
            physical.move_to(&mut self.counters, Some(address), send);
        }
    }

    pub(crate) fn unmap(&mut self, address: u64, bytes: u64, send: SendChange<'_>) {
        let gone: Vec<(u64, u64)> = self
            .pages
            .mappings
            .range(address..address.saturating_add(bytes))
            .map(|(&at, &piece)| (at, piece))
            .collect();
        for (at, piece) in gone {
            self.pages.mappings.remove(&at);
            let Some(physical) = self.pages.pieces.get_mut(&piece) else { continue };
            physical.mapped.retain(|&(start, _)| start != at);
            let is_unused = physical.handles == 0 && physical.mapped.is_empty();
            if physical.is_placed && physical.allocation.address == at && !is_unused {
                let place = physical.whole();
                physical.move_to(&mut self.counters, place, send);
            }
            self.pages.end_if_unused(piece, send);
        }
    }
}
