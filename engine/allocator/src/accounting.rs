//! A driver that reserves addresses without memory, and counts every byte against a capacity.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use highwater_recorder::StreamId;

use crate::{Capacity, Driver, DriverError, DriverEvent, DriverKind};

/// The first address, far from null and easy to distinguish from host addresses.
const FIRST_ADDRESS: u64 = 0x10_0000_0000;
/// The end of the address range, low enough that an address plus a length cannot overflow.
const LAST_ADDRESS: u64 = 1 << 63;
/// Alignment of segments, as in CUDA.
const GRANULARITY: u64 = 2 << 20;

/// A device with addresses and a capacity, but without memory. Addresses are deterministic: always the lowest that fit.
///
/// Clones share the device, so that a test can keep one while the allocator owns another. Events are complete at once,
/// unless [`hold_events`](Self::hold_events) was called.
#[derive(Clone, Debug)]
pub struct AccountingDriver {
    kind: DriverKind,
    books: Arc<Mutex<Books>>,
}

#[derive(Debug, Default)]
struct Books {
    total: u64,
    outside: u64,
    segments: BTreeMap<u64, u64>,
    addresses: BTreeMap<u64, u64>,
    pages: BTreeMap<u64, u64>,
    used: u64,
    holds_events: bool,
    next_event: u64,
    outstanding: BTreeSet<(StreamId, u64)>,
}

impl AccountingDriver {
    /// Creates a device of `total` bytes.
    pub fn new(total: u64) -> Self {
        Self::of_kind(DriverKind::Accounting, total)
    }

    /// Creates a device with `total` bytes of memory that recordings show as `kind`, such as pinned memory.
    pub fn of_kind(kind: DriverKind, total: u64) -> Self {
        Self { kind, books: Arc::new(Mutex::new(Books { total, ..Books::default() })) }
    }

    /// Changes the size of the device. Reserved memory stays reserved, even if it exceeds the new size.
    pub fn set_capacity(&self, total: u64) {
        self.books().total = total;
    }

    /// Sets the bytes of the device that are used outside this driver.
    pub fn set_outside(&self, bytes: u64) {
        self.books().outside = bytes;
    }

    /// Returns the reserved bytes of segments and mapped pages.
    pub fn used(&self) -> u64 {
        self.books().used
    }

    /// Returns the bytes of addresses reserved for expandable segments, mapped or not.
    pub fn reserved_addresses(&self) -> u64 {
        self.books().addresses.values().sum()
    }

    /// Makes events complete only when [`complete_events`](Self::complete_events) is called or the caller waits for
    /// them.
    pub fn hold_events(&self) {
        self.books().holds_events = true;
    }

    /// Completes all events recorded on `stream`. Returns the number of events that were outstanding.
    pub fn complete_events(&self, stream: StreamId) -> usize {
        self.books().reach(stream, u64::MAX)
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Books {
    fn free(&self) -> u64 {
        self.total.saturating_sub(self.outside).saturating_sub(self.used)
    }

    fn take(&mut self, bytes: u64) -> Result<(), DriverError> {
        if bytes > self.free() {
            return Err(DriverError::OutOfMemory);
        }
        self.used += bytes;
        Ok(())
    }

    /// Returns the lowest address with `bytes` of free address space, if any. Scans all reserved ranges, which are few;
    /// the allocator rarely calls this function.
    fn free_address(&self, bytes: u64) -> Result<u64, DriverError> {
        let (mut segments, mut addresses) = (self.segments.iter().peekable(), self.addresses.iter().peekable());
        let mut at = FIRST_ADDRESS;
        loop {
            let next = match (segments.peek(), addresses.peek()) {
                (Some((a, _)), Some((b, _))) if a < b => segments.next(),
                (Some(_), None) => segments.next(),
                _ => addresses.next(),
            };
            match next {
                Some((&start, &length)) if start - at < bytes => {
                    at = (start + length).next_multiple_of(GRANULARITY);
                }
                _ if bytes > LAST_ADDRESS - at => return Err(DriverError::OutOfMemory),
                _ => return Ok(at),
            }
        }
    }

    fn check_reserved(&self, doing: &'static str, address: u64, bytes: u64) -> Result<(), DriverError> {
        let inside = self.addresses.range(..=address).next_back();
        let inside = inside.is_some_and(|(start, length)| bytes <= (start + length).saturating_sub(address));
        inside
            .then_some(())
            .ok_or_else(|| misuse(doing, address, bytes, "is not within one range of reserved addresses"))
    }

    fn reach(&mut self, stream: StreamId, event: u64) -> usize {
        let reached: Vec<_> = self.outstanding.range((stream, 0)..=(stream, event)).copied().collect();
        for entry in &reached {
            self.outstanding.remove(entry);
        }
        reached.len()
    }
}

fn misuse(doing: &'static str, address: u64, bytes: u64, what: &str) -> DriverError {
    DriverError::Other { doing, message: format!("the range of {bytes} bytes at {address:#x} {what}") }
}

impl Driver for AccountingDriver {
    fn kind(&self) -> DriverKind {
        self.kind
    }

    fn capacity(&self) -> Result<Capacity, DriverError> {
        let books = self.books();
        Ok(Capacity { total: books.total, free: books.free() })
    }

    fn reserve(&self, bytes: u64) -> Result<u64, DriverError> {
        let mut books = self.books();
        let address = books.free_address(bytes)?;
        books.take(bytes)?;
        books.segments.insert(address, bytes);
        Ok(address)
    }

    fn release(&self, address: u64, bytes: u64) -> Result<(), DriverError> {
        let mut books = self.books();
        if books.segments.get(&address) != Some(&bytes) {
            return Err(misuse("release", address, bytes, "is not a reserved segment"));
        }
        books.segments.remove(&address);
        books.used -= bytes;
        Ok(())
    }

    fn page_bytes(&self) -> Option<u64> {
        Some(GRANULARITY)
    }

    fn reserve_addresses(&self, bytes: u64) -> Result<u64, DriverError> {
        let mut books = self.books();
        let address = books.free_address(bytes)?;
        books.addresses.insert(address, bytes);
        Ok(address)
    }

    fn map(&self, address: u64, bytes: u64, page: u64) -> Result<(), DriverError> {
        let mut books = self.books();
        books.check_reserved("map", address, bytes)?;
        if page == 0 || !page.is_multiple_of(GRANULARITY) || !bytes.is_multiple_of(page) {
            return Err(misuse("map", address, bytes, &format!("does not consist of pages of {page} bytes")));
        }
        let mapped_before = books.pages.range(..address + bytes).next_back();
        if mapped_before.is_some_and(|(start, length)| start + length > address) {
            return Err(misuse("map", address, bytes, "already contains mapped pages"));
        }
        books.take(bytes)?;
        books.pages.extend((address..address + bytes).step_by(page as usize).map(|start| (start, page)));
        Ok(())
    }

    fn unmap(&self, address: u64, bytes: u64) -> Result<(), DriverError> {
        let mut books = self.books();
        let end = address.saturating_add(bytes);
        let pages: Vec<(u64, u64)> = books.pages.range(address..end).map(|(&start, &length)| (start, length)).collect();
        let last_end = pages.last().map_or(address, |(start, length)| start + length);
        if pages.iter().map(|(_, length)| length).sum::<u64>() != bytes || last_end != end {
            return Err(misuse("unmap", address, bytes, "is not made up of whole mapped pages"));
        }
        for (start, _) in pages {
            books.pages.remove(&start);
        }
        books.used -= bytes;
        Ok(())
    }

    fn release_addresses(&self, address: u64, bytes: u64) -> Result<(), DriverError> {
        let mut books = self.books();
        if books.addresses.get(&address) != Some(&bytes) {
            return Err(misuse("release addresses", address, bytes, "is not a reserved address range"));
        }
        if books.pages.range(address..address + bytes).next().is_some() {
            return Err(misuse("release addresses", address, bytes, "still contains mapped pages"));
        }
        books.addresses.remove(&address);
        Ok(())
    }

    fn record_event(&self, stream: StreamId) -> Result<DriverEvent, DriverError> {
        let mut books = self.books();
        let event = books.next_event;
        books.next_event += 1;
        if books.holds_events {
            books.outstanding.insert((stream, event));
        }
        Ok(DriverEvent(event))
    }

    fn query(&self, event: DriverEvent) -> Result<bool, DriverError> {
        Ok(!self.books().outstanding.iter().any(|(_, outstanding)| *outstanding == event.0))
    }

    fn wait(&self, event: DriverEvent) -> Result<(), DriverError> {
        let mut books = self.books();
        let stream =
            books.outstanding.iter().find(|(_, outstanding)| *outstanding == event.0).map(|(stream, _)| *stream);
        if let Some(stream) = stream {
            books.reach(stream, event.0);
        }
        Ok(())
    }

    fn synchronize(&self, stream: StreamId) -> Result<(), DriverError> {
        self.complete_events(stream);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn the_lowest_addresses_that_fit_are_handed_out_and_reused() {
        let driver = AccountingDriver::new(100 * MIB);
        let [a, b, c] = [20, 30, 2].map(|size| driver.reserve(size * MIB).expect("there is room"));
        assert_eq!([a, b, c], [FIRST_ADDRESS, FIRST_ADDRESS + 20 * MIB, FIRST_ADDRESS + 50 * MIB]);
        assert_eq!(driver.release(b, 30 * MIB), Ok(()));
        assert_eq!(driver.reserve_addresses(40 * MIB), Ok(c + 2 * MIB));
        assert_eq!(driver.reserve(30 * MIB), Ok(b), "between what is held");
        assert_eq!(driver.used(), 52 * MIB, "reserved addresses hold no memory");
        assert_eq!(driver.reserve(50 * MIB), Err(DriverError::OutOfMemory));
    }

    #[test]
    fn misuse_is_refused_and_changes_nothing() {
        let driver = AccountingDriver::new(100 * MIB);
        let segment = driver.reserve(4 * MIB).expect("there is room");
        let base = driver.reserve_addresses(40 * MIB).expect("addresses are plenty");
        assert_eq!(driver.map(base, 40 * MIB, 20 * MIB), Ok(()));
        let refused = [
            driver.release(segment, 2 * MIB),
            driver.release(base, 40 * MIB),
            driver.map(base + 20 * MIB, 20 * MIB, 20 * MIB),
            driver.map(base + 40 * MIB, 20 * MIB, 20 * MIB),
            driver.map(base, 3 * MIB, 2 * MIB),
            driver.unmap(base + 10 * MIB, 20 * MIB),
            driver.unmap(base, 10 * MIB),
            driver.release_addresses(base, 40 * MIB),
            driver.release_addresses(base, 20 * MIB),
        ];
        for (position, result) in refused.into_iter().enumerate() {
            assert!(matches!(result, Err(DriverError::Other { .. })), "{position}: {result:?}");
        }
        assert_eq!(driver.used(), 44 * MIB);
        assert_eq!(driver.unmap(base + 20 * MIB, 20 * MIB), Ok(()));
        assert_eq!(driver.unmap(base, 20 * MIB), Ok(()));
        assert_eq!(driver.release_addresses(base, 40 * MIB), Ok(()));
        assert_eq!((driver.used(), driver.reserved_addresses()), (4 * MIB, 0));
    }

    #[test]
    fn held_events_pass_by_hand_or_when_waited_for_in_their_streams_order() {
        let driver = AccountingDriver::new(MIB);
        let ready = driver.record_event(StreamId(1)).expect("events are plenty");
        assert_eq!(driver.query(ready), Ok(true));
        driver.hold_events();
        let [a, b, c] = [1, 1, 2].map(|stream| driver.record_event(StreamId(stream)).expect("events are plenty"));
        assert_eq!([a, b, c].map(|event| driver.query(event)), [Ok(false), Ok(false), Ok(false)]);
        assert_eq!(driver.wait(a), Ok(()));
        assert_eq!([a, b, c].map(|event| driver.query(event)), [Ok(true), Ok(false), Ok(false)]);
        assert_eq!(driver.complete_events(StreamId(2)), 1);
        assert_eq!([b, c].map(|event| driver.query(event)), [Ok(false), Ok(true)]);
    }
}
