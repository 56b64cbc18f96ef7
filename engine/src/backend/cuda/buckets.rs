//! Workspace for sorting additions by their target; see buckets.cuh in the kernels crate.

use highwater_kernels::Grid;

use super::launch::blocks;
use crate::device::Device;

/// Bytes that say which bucket a thing is in.
const BYTES_A_THING: u64 = 2;
/// The most buckets: blocks that keep any device busy.
const MOST: u64 = 1024;
/// Things that a bucket has on average before further buckets are worth it.
const THINGS_A_BUCKET: u64 = 4;

/// Things at a time where their buckets are not written: their numbers fit in 32 bits.
const UNWRITTEN: u64 = 1 << 31;

/// Where the buckets of things are written; on a stream without a workspace, nowhere.
pub(super) struct Buckets {
    address: u64,
    /// Things at a time.
    room: u64,
}

/// Some things, one after another.
#[derive(Clone, Copy)]
pub(super) struct Part {
    /// The first of them.
    pub(super) first: u64,
    /// How many there are.
    pub(super) count: u64,
}

impl Buckets {
    /// In the workspace of a CUDA device.
    pub(super) fn of(device: &Device) -> Self {
        let (address, bytes) = device.workspace();
        Self { address, room: if bytes == 0 { UNWRITTEN } else { bytes / BYTES_A_THING } }
    }

    /// Room for few things, in tests.
    #[cfg(test)]
    pub(super) fn small(device: &Device, room: u64) -> Self {
        Self { room, ..Self::of(device) }
    }

    /// Where they are written, or 0.
    pub(super) fn address(&self) -> u64 {
        self.address
    }

    /// So many things in their order, as many at a time as there is room for.
    pub(super) fn parts(&self, things: u64) -> impl Iterator<Item = Part> + use<> {
        let room = self.room;
        (0..things.div_ceil(room)).map(move |part| {
            let first = part * room;
            Part { first, count: room.min(things - first) }
        })
    }
}

impl Part {
    /// How many buckets there are: a power of two.
    pub(super) fn buckets(&self) -> u64 {
        self.count.div_ceil(THINGS_A_BUCKET).next_power_of_two().min(MOST)
    }

    /// A block for each bucket.
    pub(super) fn grid(&self) -> Grid {
        blocks(self.buckets(), 1)
    }
}
