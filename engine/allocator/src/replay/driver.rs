//! The device of a replay. Responds like the recorded device, or like a device of a given size.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use highwater_recorder::StreamId;
use highwater_recorder::snapshots::alloc_rules::{AddressOrder, Addresses};

use crate::{Capacity, Driver, DriverError, DriverEvent, DriverKind};

/// Granularity of pages, as on every CUDA device.
const GRANULARITY: u64 = 2 << 20;
/// The capacity assumed if the size of the device is unknown, larger than that of any device.
pub(super) const BOUNDLESS: u64 = 1 << 43;

/// The size of the address space in which a driver's order of addresses is followed, larger than any device needs.
const ADDRESS_SPACE: u64 = 1 << 46;

/// The end of artificial addresses, low enough that an address plus a length cannot overflow.
const LAST_ADDRESS: u64 = 1 << 63;

/// Returns whether `bytes` at a recorded address leave enough room for address arithmetic in pages of `page` bytes.
pub(super) fn has_room(address: u64, bytes: u64, page: u64) -> bool {
    let margin = BOUNDLESS.max(page).saturating_mul(2);
    address.checked_add(bytes).is_some_and(|end| end.checked_add(margin).is_some())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// A segment was reserved.
    Reserve { address: u64, bytes: u64 },
    /// A segment was released.
    Release { address: u64, bytes: u64 },
    /// Pages were mapped.
    Map { address: u64, bytes: u64 },
    /// Pages were unmapped.
    Unmap { address: u64, bytes: u64 },
    /// A block awaiting free is no longer used by another stream.
    Completed { block: u64 },
}

impl Call {
    pub(super) fn obtains(self) -> bool {
        matches!(self, Self::Reserve { .. } | Self::Map { .. })
    }
}

/// A difference between the calls of a replay and those of the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Misfit {
    /// The replay reserved memory; the recording has another call at this point, or none.
    UnexpectedReservation { bytes: u64, recorded: Option<Call> },
    /// The replay released memory that the recording does not release.
    UnexpectedRelease { bytes: u64 },
    /// The recording has a call that the replay did not make.
    LeftOut(Call),
}

/// The device of a replay. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct ReplayDriver {
    books: Arc<Mutex<Books>>,
    /// The page size of the large pool in bytes; 0 unless calls are handled as recorded.
    page: u64,
}

/// Addresses for reservations that are not in the recording.
#[derive(Debug)]
enum FreshAddresses {
    /// Ascending addresses starting at this one, each used only once.
    Upward(u64),
    /// Addresses as a real driver would return them.
    Space(Addresses),
}

#[derive(Debug)]
struct Books {
    /// The reported size of the device.
    total: u64,
    /// The bytes of `total` that can be reserved.
    bound: u64,
    used: u64,
    /// Whether calls are handled as recorded.
    follows: bool,
    expected: VecDeque<Call>,
    /// Whether the recorded request failed, which means that any further reservation is rejected.
    refuses: bool,
    log: Vec<Call>,
    misfit: Option<Misfit>,
    /// Bytes of the reserved segments and the initially mapped pages, by address.
    bytes_at: HashMap<u64, u64>,
    fresh: FreshAddresses,
    next_event: u64,
    freeing: u64,
    /// Blocks awaiting free by their event, and vice versa.
    waiting: HashMap<u64, u64>,
    event_of: HashMap<u64, u64>,
    /// Completed events whose blocks have not been added to the output yet.
    come: HashMap<u64, u64>,
}

impl ReplayDriver {
    pub(super) fn following(total: Option<u64>, addresses_from: u64, page: u64) -> Self {
        Self { page, ..Self::new(None, total, addresses_from, true) }
    }

    /// Creates a device of `total` bytes, of which the allocator can reserve `bound`. `None` means unlimited.
    pub(super) fn of_size(bound: Option<u64>, total: Option<u64>, addresses_from: u64) -> Self {
        Self::new(bound, total, addresses_from, false)
    }

    fn new(bound: Option<u64>, total: Option<u64>, addresses_from: u64, follows: bool) -> Self {
        let bound = bound.unwrap_or(BOUNDLESS).min(BOUNDLESS);
        let books = Books {
            total: total.unwrap_or(bound).min(BOUNDLESS),
            bound,
            used: 0,
            follows,
            expected: VecDeque::new(),
            refuses: false,
            log: Vec::new(),
            misfit: None,
            bytes_at: HashMap::new(),
            fresh: FreshAddresses::Upward(addresses_from.next_multiple_of(GRANULARITY)),
            next_event: 0,
            freeing: u64::MAX,
            waiting: HashMap::new(),
            event_of: HashMap::new(),
            come: HashMap::new(),
        };
        Self { books: Arc::new(Mutex::new(books)), page: 0 }
    }

    /// Makes the device return addresses in this order from now on.
    pub(super) fn in_order(self, order: AddressOrder) -> Self {
        {
            let mut books = self.books();
            if let FreshAddresses::Upward(from) = books.fresh {
                books.fresh = FreshAddresses::Space(Addresses::within(order, from, from + ADDRESS_SPACE));
            }
        }
        self
    }

    /// Counts memory that was reserved before the replay starts.
    pub(super) fn hold(&self, address: u64, bytes: u64) {
        self.books().hold(address, bytes);
    }

    /// Sets the recorded calls for the next request; `refuses` means that the request failed in the end.
    pub(super) fn expect(&self, calls: impl Iterator<Item = Call>, refuses: bool) {
        let mut books = self.books();
        books.expected.clear();
        books.expected.extend(calls);
        books.refuses = refuses;
    }

    /// Ends a request, and returns the first difference from the expected calls, if any.
    pub(super) fn end_expecting(&self) -> Option<Misfit> {
        let mut books = self.books();
        books.refuses = false;
        let left_out = books.expected.pop_front().map(Misfit::LeftOut);
        books.expected.clear();
        books.misfit.take().or(left_out)
    }

    /// Takes the calls made since the last call of this function.
    pub(super) fn take_log(&self, into: &mut Vec<Call>) {
        into.clear();
        let mut books = self.books();
        if !books.log.is_empty() {
            into.append(&mut books.log);
        }
    }

    /// Sets the block that the next event belongs to.
    pub(super) fn freeing(&self, block: u64) {
        self.books().freeing = block;
    }

    /// Completes the event of `block`; returns whether the block awaits one.
    pub(super) fn complete(&self, block: u64) -> bool {
        let mut books = self.books();
        let Some(event) = books.event_of.remove(&block) else {
            return false;
        };
        books.waiting.remove(&event);
        books.come.insert(event, block);
        true
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Books {
    fn note(&mut self, misfit: Misfit) {
        if self.misfit.is_none() {
            self.misfit = Some(misfit);
        }
    }

    fn fresh_addresses(&mut self, bytes: u64) -> Result<u64, DriverError> {
        match &mut self.fresh {
            FreshAddresses::Upward(next) => {
                let address = *next;
                let end = address.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(GRANULARITY));
                *next = end.filter(|end| *end < LAST_ADDRESS).ok_or(DriverError::OutOfMemory)?;
                Ok(address)
            }
            FreshAddresses::Space(space) => {
                let bytes = bytes.checked_next_multiple_of(GRANULARITY).ok_or(DriverError::OutOfMemory)?;
                space.take(bytes, GRANULARITY).ok_or(DriverError::OutOfMemory)
            }
        }
    }

    fn give_back_addresses(&mut self, address: u64, bytes: u64) {
        if let FreshAddresses::Space(space) = &mut self.fresh {
            space.give_back(address, bytes.next_multiple_of(GRANULARITY));
        }
    }

    /// Decides whether a call reserves memory, and returns the address of the recorded call accepted by `matching`.
    fn grant(&mut self, bytes: u64, matching: impl Fn(Call) -> Option<u64>) -> Result<Option<u64>, DriverError> {
        // When following a recording, more may be reserved than any device has, but no more than can be added up.
        let most = if self.follows { LAST_ADDRESS / 2 } else { self.bound };
        if self.used.saturating_add(bytes) > most {
            return Err(DriverError::OutOfMemory);
        }
        if !self.follows {
            return Ok(None);
        }
        let front = self.expected.front().copied();
        match front {
            Some(call) if matching(call).is_some() => {
                self.expected.pop_front();
                Ok(matching(call))
            }
            Some(call) if !call.obtains() => Err(DriverError::OutOfMemory),
            None if self.refuses => Err(DriverError::OutOfMemory),
            recorded => {
                self.note(Misfit::UnexpectedReservation { bytes, recorded });
                if recorded.is_some() {
                    self.expected.pop_front();
                }
                Ok(None)
            }
        }
    }

    /// Removes a call that releases memory from the expected calls. Adjacent calls may come in any order.
    fn expect_release(&mut self, call: Call, bytes: u64) {
        if !self.follows {
            return;
        }
        let run = self.expected.iter().take_while(|call| !call.obtains());
        match run.clone().position(|expected| *expected == call) {
            Some(place) => {
                self.expected.remove(place);
            }
            None => self.note(Misfit::UnexpectedRelease { bytes }),
        }
    }

    fn hold(&mut self, address: u64, bytes: u64) {
        self.used += bytes;
        self.bytes_at.insert(address, bytes);
    }

    fn come(&mut self, event: DriverEvent) {
        let block = self.waiting.remove(&event.0).or_else(|| self.come.remove(&event.0));
        if let Some(block) = block {
            self.event_of.remove(&block);
            self.log.push(Call::Completed { block });
        }
    }
}

impl Driver for ReplayDriver {
    fn kind(&self) -> DriverKind {
        DriverKind::Accounting
    }

    fn name(&self) -> String {
        "replayed device".to_owned()
    }

    fn capacity(&self) -> Result<Capacity, DriverError> {
        let books = self.books();
        Ok(Capacity { total: books.total, free: books.bound.saturating_sub(books.used) })
    }

    fn reserve(&self, bytes: u64) -> Result<u64, DriverError> {
        let mut books = self.books();
        let recorded = books.grant(bytes, |call| match call {
            Call::Reserve { address, bytes: recorded } if recorded == bytes => Some(address),
            _ => None,
        })?;
        // An address that the recording has released, but this replay has not, must not be used twice.
        let recorded =
            recorded.filter(|address| !books.bytes_at.contains_key(address) && has_room(*address, bytes, self.page));
        let address = recorded.map_or_else(|| books.fresh_addresses(bytes), Ok)?;
        books.hold(address, bytes);
        books.log.push(Call::Reserve { address, bytes });
        Ok(address)
    }

    fn release(&self, address: u64, bytes: u64) -> Result<(), DriverError> {
        let mut books = self.books();
        books.expect_release(Call::Release { address, bytes }, bytes);
        books.bytes_at.remove(&address);
        books.give_back_addresses(address, bytes);
        books.used = books.used.saturating_sub(bytes);
        books.log.push(Call::Release { address, bytes });
        Ok(())
    }

    fn page_bytes(&self) -> Option<u64> {
        Some(GRANULARITY)
    }

    fn reserve_addresses(&self, bytes: u64) -> Result<u64, DriverError> {
        let mut books = self.books();
        // The first pages mapped are at the start of the addresses.
        let recorded = books.expected.iter().find_map(|call| match call {
            Call::Map { address, .. } => Some(*address),
            _ => None,
        });
        recorded.filter(|address| has_room(*address, bytes, self.page)).map_or_else(|| books.fresh_addresses(bytes), Ok)
    }

    fn map(&self, address: u64, bytes: u64, _page: u64) -> Result<(), DriverError> {
        let mut books = self.books();
        books.grant(bytes, |call| match call {
            Call::Map { address: at, bytes: recorded } if (at, recorded) == (address, bytes) => Some(at),
            _ => None,
        })?;
        books.used += bytes;
        books.log.push(Call::Map { address, bytes });
        Ok(())
    }

    fn unmap(&self, address: u64, bytes: u64) -> Result<(), DriverError> {
        let mut books = self.books();
        books.expect_release(Call::Unmap { address, bytes }, bytes);
        books.used = books.used.saturating_sub(bytes);
        books.log.push(Call::Unmap { address, bytes });
        Ok(())
    }

    fn release_addresses(&self, address: u64, bytes: u64) -> Result<(), DriverError> {
        self.books().give_back_addresses(address, bytes);
        Ok(())
    }

    fn record_event(&self, _stream: StreamId) -> Result<DriverEvent, DriverError> {
        let mut books = self.books();
        let event = books.next_event;
        books.next_event += 1;
        let block = books.freeing;
        books.waiting.insert(event, block);
        books.event_of.insert(block, event);
        Ok(DriverEvent(event))
    }

    fn query(&self, event: DriverEvent) -> Result<bool, DriverError> {
        let mut books = self.books();
        if books.waiting.contains_key(&event.0) {
            return Ok(false);
        }
        books.come(event);
        Ok(true)
    }

    fn wait(&self, event: DriverEvent) -> Result<(), DriverError> {
        self.books().come(event);
        Ok(())
    }

    fn synchronize(&self, _stream: StreamId) -> Result<(), DriverError> {
        Ok(())
    }
}
