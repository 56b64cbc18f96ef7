//! A driver that records its calls with names in place of addresses, shared by the script tests and the PyTorch
//! fixtures.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use highwater_allocator::AccountingDriver;
use highwater_allocator::{Capacity, Driver, DriverError, DriverEvent, DriverKind};
use highwater_recorder::StreamId;

/// An accounting driver that writes down every range it gives and takes, in the words of PyTorch's recorder:
/// `segment_map 3 20971520 2097152` is a mapping of 2 MiB, 20 MiB into the fourth segment or reservation.
#[derive(Clone)]
pub(crate) struct NotingDriver {
    pub(crate) device: AccountingDriver,
    notes: Arc<Mutex<Notes>>,
}

#[derive(Default)]
struct Notes {
    lines: Vec<String>,
    places: Places,
}

/// Segments and reservations, numbered in the order in which they were obtained.
#[derive(Default)]
struct Places {
    count: usize,
    ranges: BTreeMap<u64, (usize, u64)>,
}

impl Places {
    fn enter(&mut self, address: u64, bytes: u64) {
        self.ranges.insert(address, (self.count, bytes));
        self.count += 1;
    }

    fn text(&self, address: u64) -> String {
        let (start, (number, bytes)) = self.ranges.range(..=address).next_back().expect("the address was obtained");
        assert!(address < start + bytes, "the address is within a segment");
        format!("{number} {}", address - start)
    }
}

impl NotingDriver {
    pub(crate) fn new(total: u64) -> Self {
        Self { device: AccountingDriver::new(total), notes: Arc::default() }
    }

    /// The lines since the last call.
    pub(crate) fn take_lines(&self) -> Vec<String> {
        std::mem::take(&mut self.notes().lines)
    }

    /// The number of the segment or reservation, and the offset in it.
    pub(crate) fn place(&self, address: u64) -> String {
        self.notes().places.text(address)
    }

    fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self, what: &str, address: u64, bytes: u64) {
        let mut notes = self.notes();
        let line = format!("{what} {} {bytes}", notes.places.text(address));
        notes.lines.push(line);
    }
}

impl Driver for NotingDriver {
    fn kind(&self) -> DriverKind {
        self.device.kind()
    }

    fn name(&self) -> String {
        self.device.name()
    }

    fn capacity(&self) -> Result<Capacity, DriverError> {
        self.device.capacity()
    }

    fn reserve(&self, bytes: u64) -> Result<u64, DriverError> {
        let address = self.device.reserve(bytes)?;
        self.notes().places.enter(address, bytes);
        self.note("segment_alloc", address, bytes);
        Ok(address)
    }

    fn release(&self, address: u64, bytes: u64) -> Result<(), DriverError> {
        self.device.release(address, bytes)?;
        self.note("segment_free", address, bytes);
        self.notes().places.ranges.remove(&address);
        Ok(())
    }

    fn page_bytes(&self) -> Option<u64> {
        self.device.page_bytes()
    }

    fn reserve_addresses(&self, bytes: u64) -> Result<u64, DriverError> {
        let address = self.device.reserve_addresses(bytes)?;
        self.notes().places.enter(address, bytes);
        Ok(address)
    }

    fn map(&self, address: u64, bytes: u64, page: u64) -> Result<(), DriverError> {
        self.device.map(address, bytes, page)?;
        self.note("segment_map", address, bytes);
        Ok(())
    }

    fn unmap(&self, address: u64, bytes: u64) -> Result<(), DriverError> {
        self.device.unmap(address, bytes)?;
        self.note("segment_unmap", address, bytes);
        Ok(())
    }

    fn release_addresses(&self, address: u64, bytes: u64) -> Result<(), DriverError> {
        self.device.release_addresses(address, bytes)?;
        self.notes().places.ranges.remove(&address);
        Ok(())
    }

    fn record_event(&self, stream: StreamId) -> Result<DriverEvent, DriverError> {
        self.device.record_event(stream)
    }

    fn query(&self, event: DriverEvent) -> Result<bool, DriverError> {
        self.device.query(event)
    }

    fn wait(&self, event: DriverEvent) -> Result<(), DriverError> {
        self.device.wait(event)
    }

    fn synchronize(&self, stream: StreamId) -> Result<(), DriverError> {
        self.device.synchronize(stream)
    }
}
