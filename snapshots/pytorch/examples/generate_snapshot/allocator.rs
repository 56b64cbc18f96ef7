//! A caching allocator that splits and coalesces blocks by PyTorch's rules with its default settings.

use std::collections::{BTreeMap, BTreeSet};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Memory of one device.
#[derive(Debug, Default)]
pub(crate) struct Allocator {
    /// Free blocks by size and address: of segments for small requests, and of others.
    free: [BTreeSet<(u64, u64)>; 2],
    /// Every block by address.
    pub blocks: BTreeMap<u64, Block>,
    /// Every segment by address.
    pub segments: BTreeMap<u64, Segment>,
    /// The address of the next segment.
    next: u64,
}

/// A block, free or allocated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    pub size: u64,
    /// The size of the last request that it was allocated for.
    pub requested: u64,
    pub is_free: bool,
    /// The request that it was allocated for, with its stack.
    pub request: Request,
    segment: u64,
}

/// A segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub size: u64,
    pub is_small: bool,
    pub request: Request,
}

/// A call of malloc: its number, which identifies the captured stack, and the number of the stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Request {
    pub number: u64,
    pub stack: u64,
}

/// The result of malloc.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    pub address: u64,
    /// The segment that had to be reserved: address and size.
    pub segment: Option<(u64, u64)>,
}

impl Allocator {
    /// Memory that begins at `address`.
    pub(crate) fn new(address: u64) -> Self {
        Self { next: address, ..Self::default() }
    }

    /// Allocates a block.
    pub(crate) fn malloc(&mut self, requested: u64, request: Request) -> Placed {
        let size = requested.max(1).next_multiple_of(512);
        let is_small = size <= MIB;
        let fit = self.free[usize::from(is_small)].range((size, 0)..).next().copied();
        let (address, segment) = match fit {
            Some((_, address)) => (address, None),
            None => {
                let (address, size) = self.obtain(size, is_small, request);
                (address, Some((address, size)))
            }
        };
        let Some(block) = self.blocks.get_mut(&address) else { unreachable!("free blocks are blocks") };
        let (whole, from) = (block.size, block.segment);
        self.free[usize::from(is_small)].remove(&(whole, address));
        let left = whole - size;
        let is_split = if is_small { left >= 512 } else { left > MIB };
        let kept = if is_split { size } else { whole };
        *block = Block { size: kept, requested, is_free: false, request, segment: from };
        if is_split {
            self.add_free(address + size, left, from, is_small);
        }
        Placed { address, segment }
    }

    /// Frees a block.
    pub(crate) fn free(&mut self, address: u64) {
        let Some(block) = self.blocks.remove(&address) else { unreachable!("only what was handed out is freed") };
        let is_small = self.segments[&block.segment].is_small;
        let (mut start, mut size) = (address, block.size);
        let joins = |other: &Block| other.is_free && other.segment == block.segment;
        if let Some((&before, &other)) = self.blocks.range(..address).next_back().filter(|(_, other)| joins(other)) {
            self.free[usize::from(is_small)].remove(&(other.size, before));
            self.blocks.remove(&before);
            (start, size) = (before, size + other.size);
        }
        let after = address + block.size;
        if let Some(other) = self.blocks.get(&after).copied().filter(|other| joins(other)) {
            self.free[usize::from(is_small)].remove(&(other.size, after));
            self.blocks.remove(&after);
            size += other.size;
        }
        self.add_free(start, size, block.segment, is_small);
    }

    fn add_free(&mut self, address: u64, size: u64, segment: u64, is_small: bool) {
        let block = Block { size, requested: 0, is_free: true, request: Request::default(), segment };
        self.blocks.insert(address, block);
        self.free[usize::from(is_small)].insert((size, address));
    }

    fn obtain(&mut self, size: u64, is_small: bool, request: Request) -> (u64, u64) {
        let size = match size {
            _ if is_small => 2 * MIB,
            ..10_485_760 => 20 * MIB,
            _ => size.next_multiple_of(2 * MIB),
        };
        let address = self.next;
        self.next += size + 64 * KIB * 32;
        self.segments.insert(address, Segment { size, is_small, request });
        self.add_free(address, size, address, is_small);
        (address, size)
    }
}
