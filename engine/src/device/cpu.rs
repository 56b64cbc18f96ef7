//! Driver for host memory. Every operation is complete when it returns, so streams never have pending work.
#![expect(unsafe_code, reason = "allocates and frees raw host memory")]

use std::alloc::Layout;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use highwater_recorder::StreamId;

use highwater_allocator::{Capacity, Driver, DriverError, DriverEvent, DriverKind};

/// Alignment of segments, a page, so that blocks are aligned for every vector instruction.
const ALIGNMENT: u64 = 4096;

/// Capacity if the operating system does not report the amount of memory, larger than any address space.
const NO_LIMIT: u64 = 1 << 56;

/// Driver for host memory.
///
/// New segments are zeroed, and the operating system commits their pages on first access. An address is the exposed
/// address of a live allocation, so `std::ptr::with_exposed_provenance_mut(address as usize)` gives access to it.
///
/// Expandable segments are unsupported, because there is no virtual memory management.
#[derive(Debug)]
pub struct CpuDriver {
    kind: DriverKind,
    total: u64,
    in_use: Mutex<InUse>,
}

#[derive(Debug, Default)]
struct InUse {
    bytes: u64,
    segments: HashMap<u64, Segment>,
}

/// An allocation of the host's allocator that contains a segment at an aligned address.
#[derive(Debug)]
struct Segment {
    bytes: u64,
    start: usize,
    layout: Layout,
}

impl CpuDriver {
    /// Creates a driver for all of the host's memory.
    pub fn new() -> Self {
        Self::with_capacity(NO_LIMIT)
    }

    /// Creates a driver for all of the host's memory, as the pinned memory of a device without a GPU.
    pub fn pinned() -> Self {
        Self::of_kind(DriverKind::Pinned, NO_LIMIT)
    }

    /// Creates a driver for at most `bytes` of the host's memory, to simulate a smaller machine.
    pub fn with_capacity(bytes: u64) -> Self {
        Self::of_kind(DriverKind::Cpu, bytes)
    }

    fn of_kind(kind: DriverKind, bytes: u64) -> Self {
        Self { kind, total: bytes.min(host_memory()), in_use: Mutex::default() }
    }

    fn in_use(&self) -> MutexGuard<'_, InUse> {
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for CpuDriver {
    fn default() -> Self {
        Self::new()
    }
}

impl Driver for CpuDriver {
    fn kind(&self) -> DriverKind {
        self.kind
    }

    /// Only memory reserved by this driver counts as used, not that of other processes or other parts of this process.
    fn capacity(&self) -> Result<Capacity, DriverError> {
        Ok(Capacity { total: self.total, free: self.total.saturating_sub(self.in_use().bytes) })
    }

    fn reserve(&self, bytes: u64) -> Result<u64, DriverError> {
        let mut in_use = self.in_use();
        if bytes > self.total.saturating_sub(in_use.bytes) {
            return Err(DriverError::OutOfMemory);
        }
        // The host's allocator gets zeroed memory for free only at small alignments, so the segment is aligned here.
        let size = usize::try_from(bytes + ALIGNMENT).map_err(|_| DriverError::OutOfMemory)?;
        let layout = Layout::from_size_align(size, 16).map_err(|_| DriverError::OutOfMemory)?;
        // SAFETY: the layout's size is not zero, since ALIGNMENT is not.
        let pointer = unsafe { std::alloc::alloc_zeroed(layout) };
        if pointer.is_null() {
            return Err(DriverError::OutOfMemory);
        }
        let start = pointer.expose_provenance();
        let address = (start as u64).next_multiple_of(ALIGNMENT);
        in_use.bytes += bytes;
        in_use.segments.insert(address, Segment { bytes, start, layout });
        Ok(address)
    }

    fn release(&self, address: u64, bytes: u64) -> Result<(), DriverError> {
        let mut in_use = self.in_use();
        let known = in_use.segments.get(&address).is_some_and(|segment| segment.bytes == bytes);
        let Some(segment) = known.then(|| in_use.segments.remove(&address)).flatten() else {
            let message = format!("no segment of {bytes} bytes is reserved at {address:#x}");
            return Err(DriverError::Other { doing: "release", message });
        };
        in_use.bytes -= bytes;
        give_back(&segment);
        Ok(())
    }

    fn record_event(&self, _stream: StreamId) -> Result<DriverEvent, DriverError> {
        Ok(DriverEvent(0))
    }

    fn query(&self, _event: DriverEvent) -> Result<bool, DriverError> {
        Ok(true)
    }

    fn wait(&self, _event: DriverEvent) -> Result<(), DriverError> {
        Ok(())
    }

    fn synchronize(&self, _stream: StreamId) -> Result<(), DriverError> {
        Ok(())
    }
}

impl Drop for CpuDriver {
    fn drop(&mut self) {
        self.in_use().segments.values().for_each(give_back);
    }
}

fn give_back(segment: &Segment) {
    let pointer = std::ptr::with_exposed_provenance_mut(segment.start);
    // SAFETY: `start` and `layout` come from a call of `alloc_zeroed`, whose pointer was exposed. The segment has just
    // been removed from the table of segments, or the table is being dropped, so it is deallocated only once.
    unsafe { std::alloc::dealloc(pointer, segment.layout) };
}

/// Returns the size of this machine's memory in bytes, or [`NO_LIMIT`] if it is unknown.
pub(super) fn host_memory() -> u64 {
    from_proc().unwrap_or(NO_LIMIT)
}

fn from_proc() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_aligned_zeroed_counted_and_given_back_once() {
        let driver = CpuDriver::with_capacity(4 << 20);
        let address = driver.reserve(2 << 20).expect("there is room");
        assert!(address.is_multiple_of(ALIGNMENT));
        let pointer: *mut u8 = std::ptr::with_exposed_provenance_mut(address as usize);
        // SAFETY: the segment is 2 MiB long, reserved, zeroed, and not shared.
        let bytes = unsafe { std::slice::from_raw_parts_mut(pointer, 2 << 20) };
        assert!(bytes.iter().all(|&byte| byte == 0));
        bytes.fill(7);
        assert_eq!(driver.capacity(), Ok(Capacity { total: 4 << 20, free: 2 << 20 }));
        assert_eq!(driver.reserve(3 << 20), Err(DriverError::OutOfMemory));
        assert!(driver.release(address, 1 << 20).is_err());
        assert_eq!(driver.release(address, 2 << 20), Ok(()));
        assert!(driver.release(address, 2 << 20).is_err());
        assert_eq!(driver.capacity(), Ok(Capacity { total: 4 << 20, free: 4 << 20 }));
    }
}
