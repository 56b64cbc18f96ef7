//! Driver: the device of a replay: it answers as the recording says that the real one did, or as one of a given size
//! would.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use highwater_recorder::StreamId;

use crate::{Capacity, Driver, DriverError, DriverEvent, DriverKind};

/// Pages are a multiple of this, as on every CUDA device.
const GRANULARITY: u64 = 2 << 20;
/// The size of a device of which nobody says how large it is: more than any has.
pub(super) const BOUNDLESS: u64 = 1 << 43;

/// Addresses that are made up end here, so that no sum of one and a length overflows.
const LAST_ADDRESS: u64 = 1 << 63;

/// Whether `bytes` from a recorded address on lie where addresses can be reckoned with in pages of `page` bytes.
pub(super) fn has_room(address: u64, bytes: u64, page: u64) -> bool {
    let margin = BOUNDLESS.max(page).saturating_mul(2);
    address.checked_add(bytes).is_some_and(|end| end.checked_add(margin).is_some())
}

/// What an allocator asked of its device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// A segment was obtained.
    Reserve { address: u64, bytes: u64 },
    /// A segment was given back.
    Release { address: u64, bytes: u64 },
    /// Pages were mapped.
    Map { address: u64, bytes: u64 },
    /// Pages were unmapped.
    Unmap { address: u64, bytes: u64 },
    /// A block that waited for another stream waits no longer.
    Completed { block: u32 },
}

impl Call {
    pub(super) fn obtains(self) -> bool {
        matches!(self, Self::Reserve { .. } | Self::Map { .. })
    }
}

/// How the calls of a replay differ from those of the recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Misfit {
    /// The replay obtained memory where the recording has something else, or nothing.
    Obtained { bytes: u64, recorded: Option<Call> },
    /// The replay gave memory back that the recording keeps.
    GaveBack { bytes: u64 },
    /// The recording has a call that the replay did not make.
    LeftOut(Call),
}

/// A device for a replay. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct ReplayDriver {
    books: Arc<Mutex<Books>>,
    /// Bytes of the largest pages.
    page: u64,
}

#[derive(Debug)]
struct Books {
    /// The size of the device, as it says.
    total: u64,
    /// So much of it can be had.
    bound: u64,
    used: u64,
    /// Whether calls are answered as the recording has them.
    follows: bool,
    /// What the recording has for the request that is being served.
    expected: VecDeque<Call>,
    /// The recorded request failed: whatever else it asks for is refused.
    refuses: bool,
    log: Vec<Call>,
    misfit: Option<Misfit>,
    /// The bytes of segments and pages held, by address.
    held: HashMap<u64, u64>,
    /// Where addresses begin that no recording has.
    next_address: u64,
    next_event: u64,
    /// The block that is being freed.
    freeing: u32,
    /// Blocks that wait, by the event that they wait for, and the other way round.
    waiting: HashMap<u64, u32>,
    event_of: HashMap<u32, u64>,
    /// Events that have come, and whose blocks are not yet told.
    come: HashMap<u64, u32>,
}

impl ReplayDriver {
    /// A device that answers as recorded.
    pub(super) fn following(total: Option<u64>, addresses_from: u64, page: u64) -> Self {
        Self { page, ..Self::new(None, total, addresses_from, true) }
    }

    /// A device of `total` bytes, of which `bound` can be had, or without a bound.
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
            held: HashMap::new(),
            next_address: addresses_from.next_multiple_of(GRANULARITY),
            next_event: 0,
            freeing: u32::MAX,
            waiting: HashMap::new(),
            event_of: HashMap::new(),
            come: HashMap::new(),
        };
        Self { books: Arc::new(Mutex::new(books)), page: 0 }
    }

    /// Counts memory that was held before the replay began.
    pub(super) fn hold(&self, address: u64, bytes: u64) {
        self.books().hold(address, bytes);
    }

    /// What the recording has for the next request; with `refuses`, the request failed in the end.
    pub(super) fn expect(&self, calls: impl Iterator<Item = Call>, refuses: bool) {
        let mut books = self.books();
        books.expected.clear();
        books.expected.extend(calls);
        books.refuses = refuses;
    }

    /// Ends a request: the first difference to what was expected.
    pub(super) fn end_expecting(&self) -> Option<Misfit> {
        let mut books = self.books();
        books.refuses = false;
        let left_out = books.expected.pop_front().map(Misfit::LeftOut);
        books.expected.clear();
        books.misfit.take().or(left_out)
    }

    /// What was asked since this was last taken.
    pub(super) fn take_log(&self, into: &mut Vec<Call>) {
        into.clear();
        let mut books = self.books();
        if !books.log.is_empty() {
            into.append(&mut books.log);
        }
    }

    /// Says which block the next event is for.
    pub(super) fn freeing(&self, block: u32) {
        self.books().freeing = block;
    }

    /// Lets the event come that `block` waits for, if it waits.
    pub(super) fn complete(&self, block: u32) -> bool {
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
        let address = self.next_address;
        let next = address.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(GRANULARITY));
        self.next_address = next.filter(|next| *next < LAST_ADDRESS).ok_or(DriverError::OutOfMemory)?;
        Ok(address)
    }

    /// Whether memory is given out for a call that the recording answers with `matching`. The address that it has then.
    fn grant(&mut self, bytes: u64, matching: impl Fn(Call) -> Option<u64>) -> Result<Option<u64>, DriverError> {
        // A recording that is followed may hold more than any device, but no more than can be summed.
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
                self.note(Misfit::Obtained { bytes, recorded });
                if recorded.is_some() {
                    self.expected.pop_front();
                }
                Ok(None)
            }
        }
    }

    /// Takes a call that gives memory back out of what is expected. Calls next to each other may come in any order.
    fn expect_gift(&mut self, call: Call, bytes: u64) {
        if !self.follows {
            return;
        }
        let run = self.expected.iter().take_while(|call| !call.obtains());
        match run.clone().position(|expected| *expected == call) {
            Some(place) => {
                self.expected.remove(place);
            }
            None => self.note(Misfit::GaveBack { bytes }),
        }
    }

    fn hold(&mut self, address: u64, bytes: u64) {
        self.used += bytes;
        self.held.insert(address, bytes);
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
        // An address that the recording has given back, and this replay has not, is not given out twice.
        let recorded =
            recorded.filter(|address| !books.held.contains_key(address) && has_room(*address, bytes, self.page));
        let address = recorded.map_or_else(|| books.fresh_addresses(bytes), Ok)?;
        books.hold(address, bytes);
        books.log.push(Call::Reserve { address, bytes });
        Ok(address)
    }

    fn release(&self, address: u64, bytes: u64) -> Result<(), DriverError> {
        let mut books = self.books();
        books.expect_gift(Call::Release { address, bytes }, bytes);
        books.held.remove(&address);
        books.used = books.used.saturating_sub(bytes);
        books.log.push(Call::Release { address, bytes });
        Ok(())
    }

    fn page_bytes(&self) -> Option<u64> {
        Some(GRANULARITY)
    }

    fn reserve_addresses(&self, bytes: u64) -> Result<u64, DriverError> {
        let mut books = self.books();
        // The first pages that are mapped lie at the beginning of the addresses.
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
        books.expect_gift(Call::Unmap { address, bytes }, bytes);
        books.used = books.used.saturating_sub(bytes);
        books.log.push(Call::Unmap { address, bytes });
        Ok(())
    }

    fn release_addresses(&self, _address: u64, _bytes: u64) -> Result<(), DriverError> {
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
