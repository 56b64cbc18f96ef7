//! The interface between the allocator and a device; the CPU, CUDA and accounting devices differ only in their drivers.

use highwater_recorder::StreamId;
use highwater_recorder::snapshots::trace::PINNED_DRIVER;

/// The kind of memory that a driver reserves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DriverKind {
    /// Host memory.
    Cpu,
    /// Memory of a CUDA device.
    Cuda,
    /// Addresses without memory, which are counted but cannot be read.
    Accounting,
    /// Page-locked host memory, for direct copies from and to a device.
    Pinned,
}

impl DriverKind {
    /// Returns the name of the kind, also used in recordings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
            Self::Accounting => "accounting",
            Self::Pinned => PINNED_DRIVER,
        }
    }
}

/// Memory of the whole device in bytes, including other processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Total memory.
    pub total: u64,
    /// Free memory.
    pub free: u64,
}

/// An error from a driver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DriverError {
    /// The device does not have enough free memory. The allocator responds by releasing cached memory.
    #[error("the device does not have enough free memory")]
    OutOfMemory,
    /// Any other error. The request fails.
    #[error("{doing} failed: {message}")]
    Other {
        /// The failed operation, such as "reserve" or "record event".
        doing: &'static str,
        /// The driver's error message.
        message: String,
    },
}

/// A point in a stream's work that can be waited for. Once [`Driver::query`] returns true or [`Driver::wait`] returns,
/// the driver may reuse the event, and the allocator does not query it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DriverEvent(pub u64);

/// Memory, streams and events of one device.
///
/// Ranges passed to [`release`](Self::release) and [`release_addresses`](Self::release_addresses) are always exactly
/// those that were reserved. Ranges passed to [`map`](Self::map) and [`unmap`](Self::unmap) are whole pages within one
/// range of reserved addresses: each page is unmapped with the page size it was mapped with, though possibly together
/// with its neighbours.
///
/// An allocator does not release live memory when it is dropped. Dropping the driver releases everything that it
/// reserved.
pub trait Driver: Send + Sync {
    /// Returns the kind of memory that the driver reserves.
    fn kind(&self) -> DriverKind;

    /// Returns the device's name as given by its manufacturer, or a description of its memory.
    fn name(&self) -> String {
        let name = match self.kind() {
            DriverKind::Cpu => "host memory",
            DriverKind::Cuda => "CUDA device",
            DriverKind::Accounting => "accounting device",
            DriverKind::Pinned => "pinned host memory",
        };
        name.to_owned()
    }

    /// Returns facts about the driver for recordings, such as the versions of libraries, as pairs of name and value.
    fn facts(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Returns the total and free memory of the device.
    ///
    /// # Errors
    /// Returns an error if the driver call fails.
    fn capacity(&self) -> Result<Capacity, DriverError>;

    /// Reserves `bytes` of memory and returns the address of the first byte, aligned for any use (at least 512 bytes).
    ///
    /// # Errors
    /// Returns [`DriverError::OutOfMemory`] if there is not enough free memory, and other errors if the driver fails.
    fn reserve(&self, bytes: u64) -> Result<u64, DriverError>;

    /// Releases memory from [`reserve`](Self::reserve), after waiting for the work that still uses it.
    ///
    /// # Errors
    /// Returns an error if the driver call fails.
    fn release(&self, address: u64, bytes: u64) -> Result<(), DriverError>;

    /// Returns the granularity of reserved addresses, or `None` if the device has no virtual memory management. In that
    /// case, expandable segments are rejected and the four methods below are not called.
    fn page_bytes(&self) -> Option<u64> {
        None
    }

    /// Reserves `bytes` of addresses, a multiple of [`page_bytes`](Self::page_bytes), without memory.
    ///
    /// # Errors
    /// Returns an error if the device has no virtual memory management, or the driver call fails.
    fn reserve_addresses(&self, bytes: u64) -> Result<u64, DriverError> {
        let _ = bytes;
        Err(no_virtual_memory("reserve addresses"))
    }

    /// Maps memory at reserved addresses, in pages of `page` bytes (a multiple of [`page_bytes`](Self::page_bytes)). If
    /// it fails, nothing is mapped.
    ///
    /// # Errors
    /// Returns [`DriverError::OutOfMemory`] if there is not enough free memory, and other errors if the driver fails.
    fn map(&self, address: u64, bytes: u64, page: u64) -> Result<(), DriverError> {
        let _ = (address, bytes, page);
        Err(no_virtual_memory("map"))
    }

    /// Unmaps the memory at these addresses, which stay reserved. No work may still use the memory.
    ///
    /// # Errors
    /// Returns an error if the device has no virtual memory management, or the driver call fails.
    fn unmap(&self, address: u64, bytes: u64) -> Result<(), DriverError> {
        let _ = (address, bytes);
        Err(no_virtual_memory("unmap"))
    }

    /// Releases reserved addresses without mapped memory.
    ///
    /// # Errors
    /// Returns an error if the device has no virtual memory management, or the driver call fails.
    fn release_addresses(&self, address: u64, bytes: u64) -> Result<(), DriverError> {
        let _ = (address, bytes);
        Err(no_virtual_memory("release addresses"))
    }

    /// Records an event after all work submitted to `stream` so far.
    ///
    /// # Errors
    /// Returns an error if the driver call fails.
    fn record_event(&self, stream: StreamId) -> Result<DriverEvent, DriverError>;

    /// Returns whether the stream has reached the event, without waiting.
    ///
    /// # Errors
    /// Returns an error if the driver call fails.
    fn query(&self, event: DriverEvent) -> Result<bool, DriverError>;

    /// Waits until the stream has reached the event.
    ///
    /// # Errors
    /// Returns an error if the driver call fails.
    fn wait(&self, event: DriverEvent) -> Result<(), DriverError>;

    /// Waits until all work submitted to `stream` is complete.
    ///
    /// # Errors
    /// Returns an error if the driver call fails.
    fn synchronize(&self, stream: StreamId) -> Result<(), DriverError>;
}

fn no_virtual_memory(doing: &'static str) -> DriverError {
    DriverError::Other { doing, message: "this device has no virtual memory management".to_owned() }
}
