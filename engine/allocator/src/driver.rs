//! Driver: what the allocator asks of a device. The cpu, cuda and accounting devices differ in this and in nothing else.

use highwater_recorder::StreamId;
use highwater_recorder::snapshots::trace::PINNED_DRIVER;

/// Which kind of memory a driver hands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DriverKind {
    /// Host memory.
    Cpu,
    /// Memory of a CUDA device.
    Cuda,
    /// Addresses without memory: everything is counted, nothing can be read.
    Accounting,
    /// Host memory that a device copies from and to by itself.
    Pinned,
}

impl DriverKind {
    /// The one spelling, in recordings too.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cuda => "cuda",
            Self::Accounting => "accounting",
            Self::Pinned => PINNED_DRIVER,
        }
    }
}

/// Bytes of the whole device, whoever uses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// All of them.
    pub total: u64,
    /// Those that nobody uses.
    pub free: u64,
}

/// Why a driver refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DriverError {
    /// There is not enough free memory. The allocator answers by giving back what it caches.
    #[error("the device has not enough free memory")]
    OutOfMemory,
    /// Anything else; the request fails with it.
    #[error("{doing} failed: {message}")]
    Other {
        /// What was asked of the driver: "reserve", "record event" …
        doing: &'static str,
        /// The driver's own words.
        message: String,
    },
}

/// A point in a stream's work that can be waited for. Spent once [`Driver::query`] answered yes or [`Driver::wait`]
/// returned: the driver may then reuse it, and it is not asked about again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DriverEvent(pub u64);

/// Memory, streams and events of one device.
///
/// Ranges given to [`release`](Self::release) and [`release_addresses`](Self::release_addresses) are always whole:
/// exactly as they were obtained. Ranges given to [`map`](Self::map) and [`unmap`](Self::unmap) lie within one range of
/// reserved addresses and are whole pages: each page is of the size with which it was mapped, and unmapped as it was
/// mapped, though perhaps together with its neighbours.
///
/// An allocator does not give back what it holds when it ends: dropping the driver does, for everything it handed out.
pub trait Driver: Send + Sync {
    /// Which kind of memory this is.
    fn kind(&self) -> DriverKind;

    /// The device's name, as its maker gives it.
    fn name(&self) -> String;

    /// The size of the device and what is free of it.
    fn capacity(&self) -> Result<Capacity, DriverError>;

    /// Obtains `bytes` of memory and gives the address of the first one, aligned for any use (at least 512).
    fn reserve(&self, bytes: u64) -> Result<u64, DriverError>;

    /// Gives back what [`reserve`](Self::reserve) gave. Work that still uses it is waited for.
    fn release(&self, address: u64, bytes: u64) -> Result<(), DriverError>;

    /// The granularity of addresses without memory, or `None` where the device has no virtual memory management; then
    /// expandable segments are refused and the four methods below are not called.
    fn page_bytes(&self) -> Option<u64> {
        None
    }

    /// Obtains `bytes` of addresses, a multiple of [`page_bytes`](Self::page_bytes), without memory behind them.
    fn reserve_addresses(&self, bytes: u64) -> Result<u64, DriverError> {
        let _ = bytes;
        Err(no_virtual_memory("reserve addresses"))
    }

    /// Puts memory behind addresses, in pages of `page` bytes (a multiple of [`page_bytes`](Self::page_bytes)); all or,
    /// on error, nothing.
    fn map(&self, address: u64, bytes: u64, page: u64) -> Result<(), DriverError> {
        let _ = (address, bytes, page);
        Err(no_virtual_memory("map"))
    }

    /// Takes the memory from behind addresses; the addresses stay reserved. Nothing uses the memory any more.
    fn unmap(&self, address: u64, bytes: u64) -> Result<(), DriverError> {
        let _ = (address, bytes);
        Err(no_virtual_memory("unmap"))
    }

    /// Gives back addresses behind which no memory is left.
    fn release_addresses(&self, address: u64, bytes: u64) -> Result<(), DriverError> {
        let _ = (address, bytes);
        Err(no_virtual_memory("release addresses"))
    }

    /// Marks the point behind all work that `stream` has been given so far.
    fn record_event(&self, stream: StreamId) -> Result<DriverEvent, DriverError>;

    /// Whether the stream has reached the event. Never waits.
    fn query(&self, event: DriverEvent) -> Result<bool, DriverError>;

    /// Waits until the stream has reached the event.
    fn wait(&self, event: DriverEvent) -> Result<(), DriverError>;

    /// Waits until all work that `stream` has been given is done.
    fn synchronize(&self, stream: StreamId) -> Result<(), DriverError>;
}

fn no_virtual_memory(doing: &'static str) -> DriverError {
    DriverError::Other { doing, message: "this device has no virtual memory management".to_owned() }
}
