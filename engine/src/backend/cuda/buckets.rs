//! Workspace for sorting additions by their target; see buckets.cuh in the kernels crate.

use highwater_kernels::Grid;

use super::launch::blocks;
use crate::Device;

/// Bytes of the bucket index that is stored for each addition.
const BYTES_PER_ADDITION: u64 = 2;
/// Maximum number of buckets, enough blocks to keep any device busy.
const MAX_BUCKETS: u64 = 1024;
/// Average number of additions per bucket.
const ADDITIONS_PER_BUCKET: u64 = 4;

/// Maximum number of additions per pass if bucket indices are not written, so that indices of additions fit in 32 bits.
const MAX_UNSTORED_ADDITIONS: u64 = 1 << 31;

/// The memory for the bucket index of each addition, if the stream has a workspace.
pub(super) struct Buckets {
    address: u64,
    /// Maximum number of additions per pass.
    room: u64,
}

/// A range of consecutive additions, which are sorted together.
#[derive(Clone, Copy)]
pub(super) struct Part {
    pub(super) first: u64,
    pub(super) count: u64,
}

impl Buckets {
    pub(super) fn of(device: &Device) -> Self {
        let (address, bytes) = device.workspace();
        Self { address, room: if bytes == 0 { MAX_UNSTORED_ADDITIONS } else { bytes / BYTES_PER_ADDITION } }
    }

    #[cfg(test)]
    pub(super) fn small(device: &Device, room: u64) -> Self {
        Self { room, ..Self::of(device) }
    }

    /// Returns the address of the buckets, or 0 if bucket indices are not written.
    pub(super) fn address(&self) -> u64 {
        self.address
    }

    /// Splits the additions `0..things`, in order, into parts whose bucket indices fit into the memory.
    pub(super) fn parts(&self, things: u64) -> impl Iterator<Item = Part> + use<> {
        let room = self.room;
        (0..things.div_ceil(room)).map(move |part| {
            let first = part * room;
            Part { first, count: room.min(things - first) }
        })
    }
}

impl Part {
    /// Returns the number of buckets, which is a power of two.
    pub(super) fn buckets(&self) -> u64 {
        self.count.div_ceil(ADDITIONS_PER_BUCKET).next_power_of_two().min(MAX_BUCKETS)
    }

    pub(super) fn grid(&self) -> Grid {
        blocks(self.buckets(), 1)
    }
}
