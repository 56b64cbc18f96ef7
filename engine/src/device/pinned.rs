//! Pinned host memory, which a device copies from and to asynchronously.
#![expect(unsafe_code, reason = "frees host memory through the device's driver, and clears it")]

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use highwater_kernels::{Error, Gpu};
use highwater_recorder::snapshots::trace::PINNED_DEVICE;
use highwater_recorder::{DeviceId, StreamId};

use super::cpu::host_memory;
use highwater_allocator::{Capacity, Driver, DriverError, DriverEvent, DriverKind};

/// Returns the preferred device id in recordings for the pinned memory of device `owner`. These ids count down from
/// [`PINNED_DEVICE`].
pub(super) fn number_of(owner: DeviceId) -> DeviceId {
    DeviceId(PINNED_DEVICE.0.saturating_sub(owner.0))
}

/// Returns the id in the pinned pool for stream `stream` of its device. Id 0 is the host, for which blocks are
/// allocated.
pub(super) fn stream_of(stream: StreamId) -> StreamId {
    StreamId(stream.0 + 1)
}

/// Driver for the pinned host memory of one CUDA device. Stream 0 is the host's. The device's streams have their ids
/// plus 1.
pub struct PinnedDriver {
    gpu: Arc<Gpu>,
    total: u64,
    in_use: Mutex<InUse>,
}

#[derive(Debug, Default)]
struct InUse {
    bytes: u64,
    segments: HashMap<u64, u64>,
}

impl PinnedDriver {
    /// Creates a driver for memory that `gpu` copies from and to.
    pub fn new(gpu: Arc<Gpu>) -> Self {
        Self { gpu, total: host_memory(), in_use: Mutex::default() }
    }

    fn in_use(&self) -> MutexGuard<'_, InUse> {
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn context(doing: &'static str) -> impl Fn(Error) -> DriverError {
    move |error| match error {
        Error::OutOfMemory { .. } => DriverError::OutOfMemory,
        other => DriverError::Other { doing, message: other.to_string() },
    }
}

/// Returns the device's id of a stream, or `None` for the host's stream.
fn of_device(stream: StreamId) -> Option<u64> {
    stream.0.checked_sub(1)
}

/// Represents all events of the host's stream, which are always complete. The events of the device count from 1.
const REACHED: DriverEvent = DriverEvent(0);

impl Driver for PinnedDriver {
    fn kind(&self) -> DriverKind {
        DriverKind::Pinned
    }

    /// Counts only memory reserved by this driver as used.
    fn capacity(&self) -> Result<Capacity, DriverError> {
        Ok(Capacity { total: self.total, free: self.total.saturating_sub(self.in_use().bytes) })
    }

    /// Returns zeroed memory.
    fn reserve(&self, bytes: u64) -> Result<u64, DriverError> {
        let address = self.gpu.reserve_pinned(bytes).map_err(context("reserve"))?;
        // SAFETY: the memory is new, `bytes` long, and writable by the host; its address was exposed.
        unsafe {
            std::ptr::write_bytes(std::ptr::with_exposed_provenance_mut::<u8>(address as usize), 0, bytes as usize);
        };
        let mut in_use = self.in_use();
        in_use.bytes += bytes;
        in_use.segments.insert(address, bytes);
        Ok(address)
    }

    fn release(&self, address: u64, bytes: u64) -> Result<(), DriverError> {
        let mut in_use = self.in_use();
        if in_use.segments.get(&address) != Some(&bytes) {
            let message = format!("no segment of {bytes} bytes is reserved at {address:#x}");
            return Err(DriverError::Other { doing: "release", message });
        }
        // SAFETY: reserved by `reserve`. The allocator releases only memory that no block uses, and a block is in use
        // until the streams that copy from it have finished.
        unsafe { self.gpu.release_pinned(address) }.map_err(context("release"))?;
        in_use.segments.remove(&address);
        in_use.bytes -= bytes;
        Ok(())
    }

    fn record_event(&self, stream: StreamId) -> Result<DriverEvent, DriverError> {
        let Some(stream) = of_device(stream) else { return Ok(REACHED) };
        self.gpu.record_event(stream).map(DriverEvent).map_err(context("record event"))
    }

    fn query(&self, event: DriverEvent) -> Result<bool, DriverError> {
        Ok(event == REACHED || self.gpu.query(event.0).map_err(context("query event"))?)
    }

    fn wait(&self, event: DriverEvent) -> Result<(), DriverError> {
        if event == REACHED { Ok(()) } else { self.gpu.wait(event.0).map_err(context("wait for event")) }
    }

    fn synchronize(&self, stream: StreamId) -> Result<(), DriverError> {
        of_device(stream).map_or(Ok(()), |stream| self.gpu.synchronize(stream).map_err(context("synchronize")))
    }
}

impl Drop for PinnedDriver {
    /// Releases all memory, once no copy is in progress.
    fn drop(&mut self) {
        drop(self.gpu.synchronize_all());
        for &address in self.in_use.get_mut().unwrap_or_else(PoisonError::into_inner).segments.keys() {
            // SAFETY: reserved by `reserve`; the allocator and all its blocks are gone, and the device is idle.
            drop(unsafe { self.gpu.release_pinned(address) });
        }
    }
}
