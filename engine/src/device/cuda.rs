//! Driver for the memory of a CUDA device.
#![expect(unsafe_code, reason = "frees memory of the device")]

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use highwater_kernels::library::Versions;
use highwater_kernels::{Error, Gpu};
use highwater_recorder::StreamId;

use highwater_allocator::{Capacity, Driver, DriverError, DriverEvent, DriverKind};

/// Driver for the memory of a CUDA device. Counts the reserved memory.
#[derive(Debug)]
pub struct CudaDriver {
    gpu: Arc<Gpu>,
    /// Maximum number of bytes reserved.
    limit: u64,
    in_use: Mutex<InUse>,
}

#[derive(Debug, Default)]
struct InUse {
    bytes: u64,
    segments: HashMap<u64, u64>,
    addresses: HashMap<u64, u64>,
}

impl CudaDriver {
    /// Creates a driver for all of the device's memory, or for at most `limit` bytes of it.
    pub fn new(gpu: Arc<Gpu>, limit: Option<u64>) -> Self {
        Self { gpu, limit: limit.unwrap_or(u64::MAX), in_use: Mutex::default() }
    }

    fn in_use(&self) -> MutexGuard<'_, InUse> {
        self.in_use.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn room(&self, in_use: &InUse, bytes: u64) -> Result<(), DriverError> {
        if bytes > self.limit.saturating_sub(in_use.bytes) { Err(DriverError::OutOfMemory) } else { Ok(()) }
    }
}

fn context(doing: &'static str) -> impl Fn(Error) -> DriverError {
    move |error| match error {
        Error::OutOfMemory { .. } => DriverError::OutOfMemory,
        other => DriverError::Other { doing, message: other.to_string() },
    }
}

impl Driver for CudaDriver {
    fn kind(&self) -> DriverKind {
        DriverKind::Cuda
    }

    fn name(&self) -> String {
        self.gpu.name().to_owned()
    }

    fn facts(&self) -> Vec<(String, String)> {
        let Versions { driver, compiler, products } = self.gpu.versions();
        let text = |(major, minor): (u32, u32)| format!("{major}.{minor}");
        [("cuda_driver", driver), ("nvrtc", compiler), ("cublaslt", products)]
            .map(|(name, version)| (name.to_owned(), text(version)))
            .into()
    }

    /// Counts all used memory, including that of other processes.
    fn capacity(&self) -> Result<Capacity, DriverError> {
        let memory = self.gpu.memory().map_err(context("capacity"))?;
        let room = self.limit.saturating_sub(self.in_use().bytes);
        Ok(Capacity { total: memory.total_bytes.min(self.limit), free: memory.free_bytes.min(room) })
    }

    fn reserve(&self, bytes: u64) -> Result<u64, DriverError> {
        let mut in_use = self.in_use();
        self.room(&in_use, bytes)?;
        let address = self.gpu.reserve(bytes).map_err(context("reserve"))?;
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
        // SAFETY: reserved by `reserve`; the allocator releases only memory that no block uses. The driver waits for
        // pending work.
        unsafe { self.gpu.release(address) }.map_err(context("release"))?;
        in_use.segments.remove(&address);
        in_use.bytes -= bytes;
        Ok(())
    }

    fn page_bytes(&self) -> Option<u64> {
        self.gpu.page_bytes()
    }

    fn reserve_addresses(&self, bytes: u64) -> Result<u64, DriverError> {
        let address = self.gpu.reserve_addresses(bytes).map_err(context("reserve addresses"))?;
        self.in_use().addresses.insert(address, bytes);
        Ok(address)
    }

    fn map(&self, address: u64, bytes: u64, page: u64) -> Result<(), DriverError> {
        let mut in_use = self.in_use();
        self.room(&in_use, bytes)?;
        // SAFETY: the allocator maps whole pages of its own addresses, where nothing is mapped.
        unsafe { self.gpu.map(address, bytes, page) }.map_err(context("map"))?;
        in_use.bytes += bytes;
        Ok(())
    }

    fn unmap(&self, address: u64, bytes: u64) -> Result<(), DriverError> {
        let mut in_use = self.in_use();
        // Unlike releasing a segment, unmapping does not wait for work submitted before the memory was freed.
        self.gpu.synchronize_all().map_err(context("unmap"))?;
        // SAFETY: the allocator unmaps whole pages that it mapped and that no block uses; the device is idle.
        unsafe { self.gpu.unmap(address, bytes) }.map_err(context("unmap"))?;
        in_use.bytes -= bytes;
        Ok(())
    }

    fn release_addresses(&self, address: u64, bytes: u64) -> Result<(), DriverError> {
        // SAFETY: reserved by `reserve_addresses`; the allocator has unmapped all of it.
        unsafe { self.gpu.release_addresses(address, bytes) }.map_err(context("release addresses"))?;
        self.in_use().addresses.remove(&address);
        Ok(())
    }

    fn record_event(&self, stream: StreamId) -> Result<DriverEvent, DriverError> {
        self.gpu.record_event(stream.0).map(DriverEvent).map_err(context("record event"))
    }

    fn query(&self, event: DriverEvent) -> Result<bool, DriverError> {
        self.gpu.query(event.0).map_err(context("query event"))
    }

    fn wait(&self, event: DriverEvent) -> Result<(), DriverError> {
        self.gpu.wait(event.0).map_err(context("wait for event"))
    }

    fn synchronize(&self, stream: StreamId) -> Result<(), DriverError> {
        self.gpu.synchronize(stream.0).map_err(context("synchronize"))
    }
}

impl Drop for CudaDriver {
    /// Releases all memory. Errors are ignored here, since the next use of the device reports them again.
    fn drop(&mut self) {
        drop(self.gpu.synchronize_all());
        let in_use = self.in_use.get_mut().unwrap_or_else(PoisonError::into_inner);
        for &address in in_use.segments.keys() {
            // SAFETY: reserved by `reserve`; the allocator and all its blocks are gone.
            drop(unsafe { self.gpu.release(address) });
        }
        for (&address, &bytes) in &in_use.addresses {
            // SAFETY: the range belongs to the allocator, which is gone; the device is idle.
            drop(unsafe { self.gpu.unmap(address, bytes) });
            // SAFETY: reserved by `reserve_addresses`, and nothing is mapped there any more.
            drop(unsafe { self.gpu.release_addresses(address, bytes) });
        }
    }
}
