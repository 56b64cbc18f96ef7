//! The memory of each device, and the blocks allocated from it and from the host.

use std::collections::BTreeMap;

use crate::failure::{Code, Result, fail};
use crate::mapping::{ALIGNMENT, Fresh, Guarded};

/// Bytes of a device's memory that a context uses.
pub(crate) const CONTEXT_BYTES: u64 = 8 << 20;

/// The amount of each device's memory in use.
#[derive(Debug)]
pub(crate) struct Budget {
    total: u64,
    used: Vec<u64>,
}

impl Budget {
    /// Creates the accounts of `devices` devices, each with `total` bytes.
    pub(crate) fn new(devices: usize, total: u64) -> Self {
        Self { total, used: vec![0; devices] }
    }

    /// The memory of each device, in bytes.
    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// The free bytes of a device.
    pub(crate) fn free(&self, device: usize) -> u64 {
        self.total.saturating_sub(self.used.get(device).copied().unwrap_or(self.total))
    }

    /// Allocates bytes of a device. Fails if the device does not have enough.
    pub(crate) fn take(&mut self, device: usize, bytes: u64) -> Result<()> {
        let free = self.free(device);
        match self.used.get_mut(device).filter(|_| bytes <= free) {
            Some(used) => {
                *used += bytes;
                Ok(())
            }
            None => fail(Code::OutOfMemory, format!("{bytes} bytes of device {device}, which has {free}")),
        }
    }

    /// Frees bytes of a device.
    pub(crate) fn give_back(&mut self, device: usize, bytes: u64) {
        if let Some(used) = self.used.get_mut(device) {
            *used = used.saturating_sub(bytes);
        }
    }
}

#[derive(Debug)]
struct Block {
    device: usize,
    memory: Guarded,
    taken: u64,
}

/// Blocks of memory by address.
#[derive(Debug)]
pub(crate) struct Blocks {
    fresh: Fresh,
    by_address: BTreeMap<usize, Block>,
}

impl Blocks {
    /// Creates an empty set of blocks. `fresh` is the content of newly allocated memory.
    pub(crate) fn new(fresh: Fresh) -> Self {
        Self { fresh, by_address: BTreeMap::new() }
    }

    /// Allocates a block of a device's memory.
    pub(crate) fn reserve(&mut self, budget: &mut Budget, device: usize, bytes: usize) -> Result<usize> {
        let taken = (bytes as u64).checked_next_multiple_of(ALIGNMENT as u64).unwrap_or(u64::MAX);
        budget.take(device, taken)?;
        let made = self.add(device, bytes, taken);
        if made.is_err() {
            budget.give_back(device, taken);
        }
        made
    }

    /// Allocates a block of the host's memory.
    pub(crate) fn reserve_pinned(&mut self, device: usize, bytes: usize) -> Result<usize> {
        self.add(device, bytes, 0)
    }

    fn add(&mut self, device: usize, bytes: usize, taken: u64) -> Result<usize> {
        if bytes == 0 {
            return fail(Code::InvalidValue, "no bytes are asked for");
        }
        let memory = Guarded::new(bytes, ALIGNMENT, self.fresh)?;
        let address = memory.address;
        self.by_address.insert(address, Block { device, memory, taken });
        Ok(address)
    }

    /// The device of the block that begins at `address`.
    pub(crate) fn device_of(&self, address: usize) -> Result<usize> {
        match self.by_address.get(&address) {
            Some(block) => Ok(block.device),
            None => fail(Code::InvalidValue, format!("no block begins at {address:#x}")),
        }
    }

    /// Frees a block.
    pub(crate) fn release(&mut self, budget: &mut Budget, address: usize) {
        if let Some(block) = self.by_address.remove(&address) {
            budget.give_back(block.device, block.taken);
        }
    }

    /// Whether one block contains all these bytes.
    pub(crate) fn hold(&self, address: usize, bytes: usize) -> bool {
        let before = self.by_address.range(..=address).next_back();
        before.is_some_and(|(&start, block)| {
            address.checked_add(bytes).is_some_and(|end| end <= start + block.memory.bytes)
        })
    }

    /// Frees all blocks of a device.
    pub(crate) fn reset(&mut self, budget: &mut Budget, device: usize) {
        let gone: Vec<usize> =
            self.by_address.iter().filter(|(_, block)| block.device == device).map(|(&start, _)| start).collect();
        gone.into_iter().for_each(|address| self.release(budget, address));
    }
}
