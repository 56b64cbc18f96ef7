//! Memory of devices and of the host, with the allocated ranges and the number of free bytes of each device.

use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use crate::abi::{INVALID_VALUE, OUT_OF_MEMORY, Status};
use crate::addresses::{self, Addresses, PAGE_BYTES};
use crate::settings::{MAX_DEVICES, settings};

mod pages;
mod host;
mod blocks;
mod copies;

/// The kind of a range. The values are those of `cudaMemoryType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Pinned = 1,
    Device = 2,
    Managed = 3,
}

#[derive(Clone, Copy, Debug)]
struct Range {
    kind: Kind,
    start: usize,
    bytes: usize,
    device: usize,
}

struct Memory {
    addresses: Option<Addresses>,
    ranges: BTreeMap<usize, Range>,
    used_bytes: [u64; MAX_DEVICES],
}

static MEMORY: LazyLock<Mutex<Memory>> = LazyLock::new(|| {
    let addresses = addresses::reserve(settings().addresses);
    Mutex::new(Memory { addresses, ranges: BTreeMap::new(), used_bytes: [0; MAX_DEVICES] })
});

fn memory() -> MutexGuard<'static, Memory> {
    MEMORY.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Memory {
    fn free_bytes(&self, device: usize) -> u64 {
        settings().gpu.memory_bytes.saturating_sub(settings().reserved_bytes).saturating_sub(self.used_bytes[device])
    }

    /// Counts bytes of a device as used.
    fn take(&mut self, device: usize, bytes: usize) -> Result<(), Status> {
        if bytes as u64 > self.free_bytes(device) {
            return Err(OUT_OF_MEMORY);
        }
        self.used_bytes[device] += bytes as u64;
        Ok(())
    }

    fn give_back(&mut self, device: usize, bytes: usize) {
        self.used_bytes[device] = self.used_bytes[device].saturating_sub(bytes as u64);
    }

    /// Allocates an address range of a device without counting its bytes as used.
    fn add_device_range(&mut self, device: usize, bytes: usize, alignment: usize) -> Result<usize, Status> {
        let taken = self.addresses.as_mut().and_then(|addresses| addresses.take(bytes as u64, alignment as u64));
        let start = taken.ok_or(OUT_OF_MEMORY)? as usize;
        self.ranges.insert(start, Range { kind: Kind::Device, start, bytes, device });
        Ok(start)
    }

    fn remove_device_range(&mut self, start: usize) -> Result<Range, Status> {
        let range = self.remove(start, Kind::Device)?;
        if let Some(addresses) = &mut self.addresses {
            addresses.give_back(start as u64, range.bytes as u64);
        }
        Ok(range)
    }

    fn remove(&mut self, start: usize, kind: Kind) -> Result<Range, Status> {
        match self.ranges.get(&start) {
            Some(range) if range.kind == kind => Ok(self.ranges.remove(&start).expect("the address was not found")),
            _ => Err(INVALID_VALUE),
        }
    }

    fn range_of(&self, address: usize) -> Option<Range> {
        let (_, range) = self.ranges.range(..=address).next_back()?;
        (address - range.start < range.bytes).then_some(*range)
    }

    fn allocate(&mut self, device: usize, bytes: usize) -> Result<usize, Status> {
        let bytes = bytes.checked_next_multiple_of(PAGE_BYTES).ok_or(OUT_OF_MEMORY)?;
        self.take(device, bytes)?;
        self.add_device_range(device, bytes, PAGE_BYTES).inspect_err(|_| self.used_bytes[device] -= bytes as u64)
    }

    fn free(&mut self, start: usize) -> Result<Range, Status> {
        let range = self.remove_device_range(start)?;
        self.give_back(range.device, range.bytes);
        Ok(range)
    }
}

pub(crate) use blocks::{allocate, free};

fn is_on_device(address: usize) -> bool {
    memory().range_of(address).is_some_and(|range| range.kind == Kind::Device)
}
