//! Pinned host memory, which a device copies from and to asynchronously.
#![expect(unsafe_code, reason = "frees host memory through the device's driver, and clears it")]

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use highwater_kernels::{Error, Gpu};
use highwater_recorder::snapshots::trace::PINNED_DEVICE;
use highwater_recorder::{DeviceId, StreamId};

use super::cpu::host_memory;
use highwater_allocator::{Capacity, Driver, DriverError, DriverEvent, DriverKind};

/// Returns the preferred device id in recordings of the pinned memory of device `owner`: ids count down from
/// [`PINNED_DEVICE`].
pub(super) fn number_of(owner: DeviceId) -> DeviceId {
    DeviceId(PINNED_DEVICE.0.saturating_sub(owner.0))
}

/// Returns the pool's id of stream `stream` of its device. Id 0 is the host, for whose work blocks are allocated.
pub(super) fn stream_of(stream: StreamId) -> StreamId {
    StreamId(stream.0 + 1)
}

/// Driver for the pinned host memory of one device. Stream 0 is the host's; the device's streams have their ids plus 1.
pub struct PinnedDriver {
    memory: Memory,
}

enum Memory {
    /// Pinned for a CUDA device.
    Locked { gpu: Arc<Gpu>, total: u64, in_use: Mutex<InUse> },
    /// Ordinary memory of another driver, for a device that has no GPU and needs no pinned memory.
    Plain(Box<dyn Driver>),
}

#[derive(Debug, Default)]
struct InUse {
    bytes: u64,
    segments: HashMap<u64, u64>,
}

impl PinnedDriver {
    /// Creates a driver for memory that `gpu` copies from and to.
    pub fn of_gpu(gpu: Arc<Gpu>) -> Self {
        Self { memory: Memory::Locked { gpu, total: host_memory(), in_use: Mutex::default() } }
    }

    /// Wraps `driver`, for a device without a GPU.
    pub fn plain(driver: Box<dyn Driver>) -> Self {
        Self { memory: Memory::Plain(driver) }
    }
}

fn lock(in_use: &Mutex<InUse>) -> MutexGuard<'_, InUse> {
    in_use.lock().unwrap_or_else(PoisonError::into_inner)
}

fn context(doing: &'static str) -> impl Fn(Error) -> DriverError {
    move |error| match error {
        Error::OutOfMemory { .. } => DriverError::OutOfMemory,
        other => DriverError::Other { doing, message: other.to_string() },
    }
}

/// Returns the device's id of a stream, or `None` for the host's.
fn of_device(stream: StreamId) -> Option<u64> {
    stream.0.checked_sub(1)
}

/// Represents all events of the host's stream, whose work is complete when it is queried. The device's events count
/// from 1.
const REACHED: DriverEvent = DriverEvent(0);

impl Driver for PinnedDriver {
    fn kind(&self) -> DriverKind {
        DriverKind::Pinned
    }

    fn name(&self) -> String {
        "pinned host memory".to_owned()
    }

    /// Counts only memory reserved by this driver as used.
    fn capacity(&self) -> Result<Capacity, DriverError> {
        match &self.memory {
            Memory::Locked { total, in_use, .. } => {
                Ok(Capacity { total: *total, free: total.saturating_sub(lock(in_use).bytes) })
            }
            Memory::Plain(driver) => driver.capacity(),
        }
    }

    /// The memory is zeroed.
    fn reserve(&self, bytes: u64) -> Result<u64, DriverError> {
        let (gpu, in_use) = match &self.memory {
            Memory::Locked { gpu, in_use, .. } => (gpu, in_use),
            Memory::Plain(driver) => return driver.reserve(bytes),
        };
        let address = gpu.reserve_pinned(bytes).map_err(context("reserve"))?;
        // SAFETY: the memory is new, `bytes` long, and writable by the host; its address was exposed.
        unsafe {
            std::ptr::write_bytes(std::ptr::with_exposed_provenance_mut::<u8>(address as usize), 0, bytes as usize);
        };
        let mut in_use = lock(in_use);
        in_use.bytes += bytes;
        in_use.segments.insert(address, bytes);
        Ok(address)
    }

    fn release(&self, address: u64, bytes: u64) -> Result<(), DriverError> {
        let (gpu, in_use) = match &self.memory {
            Memory::Locked { gpu, in_use, .. } => (gpu, in_use),
            Memory::Plain(driver) => return driver.release(address, bytes),
        };
        let mut in_use = lock(in_use);
        if in_use.segments.get(&address) != Some(&bytes) {
            let message = format!("no segment of {bytes} bytes is reserved at {address:#x}");
            return Err(DriverError::Other { doing: "release", message });
        }
        // SAFETY: reserved by `reserve`. The allocator releases only memory that no block uses, and a block is in use
        // until the streams that copy from it have finished.
        unsafe { gpu.release_pinned(address) }.map_err(context("release"))?;
        in_use.segments.remove(&address);
        in_use.bytes -= bytes;
        Ok(())
    }

    fn record_event(&self, stream: StreamId) -> Result<DriverEvent, DriverError> {
        match (&self.memory, of_device(stream)) {
            (Memory::Locked { gpu, .. }, Some(stream)) => {
                gpu.record_event(stream).map(DriverEvent).map_err(context("record event"))
            }
            (Memory::Locked { .. }, None) => Ok(REACHED),
            (Memory::Plain(driver), _) => driver.record_event(stream),
        }
    }

    fn query(&self, event: DriverEvent) -> Result<bool, DriverError> {
        match &self.memory {
            Memory::Locked { .. } if event == REACHED => Ok(true),
            Memory::Locked { gpu, .. } => gpu.query(event.0).map_err(context("query event")),
            Memory::Plain(driver) => driver.query(event),
        }
    }

    fn wait(&self, event: DriverEvent) -> Result<(), DriverError> {
        match &self.memory {
            Memory::Locked { .. } if event == REACHED => Ok(()),
            Memory::Locked { gpu, .. } => gpu.wait(event.0).map_err(context("wait for event")),
            Memory::Plain(driver) => driver.wait(event),
        }
    }

    fn synchronize(&self, stream: StreamId) -> Result<(), DriverError> {
        match (&self.memory, of_device(stream)) {
            (Memory::Locked { gpu, .. }, Some(stream)) => gpu.synchronize(stream).map_err(context("synchronize")),
            (Memory::Locked { .. }, None) => Ok(()),
            (Memory::Plain(driver), _) => driver.synchronize(stream),
        }
    }
}

impl Drop for PinnedDriver {
    /// Releases all memory, once no copy is in progress.
    fn drop(&mut self) {
        let Memory::Locked { gpu, in_use, .. } = &mut self.memory else { return };
        drop(gpu.synchronize_all());
        for &address in in_use.get_mut().unwrap_or_else(PoisonError::into_inner).segments.keys() {
            // SAFETY: reserved by `reserve`; the allocator and all its blocks are gone, and the device is idle.
            drop(unsafe { gpu.release_pinned(address) });
        }
    }
}
