//! Describes an out-of-memory error: its sizes, the suspected cause, and the smallest set of live blocks to free.

use std::collections::BTreeSet;

use super::eviction_window::{EvictionSet, eviction_window, is_kept};
use super::extents::{AddressIndex, PoolAndStream};
use super::map::{AddressMap, Content, ReservedSegment};
use super::release::release;
use crate::index::capacity::{Capacity, is_limited, obtained};
use crate::index::live::LiveIndex;
use crate::index::series::Series;
use crate::metric::Metric;
use highwater_snapshots::alloc_rules::AllocRules;
use highwater_snapshots::category::Pool;
use highwater_snapshots::event::EventKind;
use highwater_snapshots::ids::{BlockId, EventId, StreamId};
use highwater_snapshots::trace::{Allocator, Trace};
use highwater_snapshots::units::{format_bytes, format_bytes_apart};

const SHOWN_HOLES: usize = 8;
/// Maximum number of events that are searched backwards for the stream of the last allocation.
const FAR_BACK: usize = 65_536;

highwater_snapshots::vocabulary!(
    /// The cause of an out-of-memory error. [`FailedRequest`] suspects a cause from sizes; only a replay can prove it.
    #[derive(serde::Serialize)]
    #[serde(rename_all = "snake_case")]
    Verdict {
        /// The device has too little memory for the live blocks.
        Capacity = "capacity",
        /// Enough bytes are free for the request, but not in one range.
        Fragmentation = "fragmentation",
        /// Freed blocks are awaiting free, because another stream still uses their memory.
        Waiting = "freed blocks that wait for another stream",
        /// A free range of another pool or stream is large enough.
        Elsewhere = "free memory held by another pool or stream",
        /// The driver had enough free memory, so a limit applied, or the free memory was not contiguous.
        Limit = "a memory limit below the device's capacity",
        /// A free range is large enough, so that the same request would probably succeed now.
        Transient = "a transient failure (a retry would succeed)",
        /// The settings round requests up too much.
        Rounding = "rounding by roundup_power2_divisions",
    }
);

/// A free range of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Hole {
    /// Address of its first byte.
    pub address: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// The pool and stream to which the range belongs.
    pub home: PoolAndStream,
}

/// An out-of-memory event and the sizes involved, in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedRequest {
    /// The event of the request.
    pub event: EventId,
    /// The time, in nanoseconds since the recording's origin; `None` if the recording has no times.
    pub time_ns: Option<u64>,
    /// The operation that made the request; empty if unknown.
    pub op: String,
    /// The module that made the request; empty if unknown.
    pub scope: String,
    /// Requested size.
    pub requested: u64,
    /// Requested size after the allocator's rounding.
    pub rounded: u64,
    /// The pool that serves requests of this size.
    pub pool: Pool,
    /// The stream of the request. If it was not recorded, the stream of the last allocation with the same call stack,
    /// or otherwise of the last allocation before the request, as a guess. `None` if there was no allocation before.
    pub stream: Option<StreamId>,
    /// Whether the stream is a guess.
    pub stream_is_guessed: bool,
    /// Size that was requested from the driver.
    pub from_driver: u64,
    /// Free memory as reported by the driver.
    pub device_free: u64,
    /// The device's memory; `None` if unknown.
    pub capacity: Option<u64>,
    /// Memory used on the device by other processes or by the driver; `None` if the capacity is unknown.
    pub outside: Option<u64>,
    /// The maximum of reserved memory, if a limit below the device's memory caused the failure; the limit is at least
    /// this. `None` otherwise.
    pub limit: Option<u64>,
    /// The allocator that failed to serve the request.
    pub allocator: Allocator,
    /// Bytes that the allocator had reserved on the device. For an allocator without segments, the bytes of its blocks.
    pub obtained: u64,
    /// Bytes reserved from the driver.
    pub reserved: u64,
    /// Bytes of live blocks, after rounding.
    pub allocated: u64,
    /// Bytes of freed blocks awaiting free.
    pub waiting: u64,
    /// Free bytes in segments of the request's pool and stream.
    pub free_in_pool: u64,
    /// Free bytes in all other segments.
    pub free_elsewhere: u64,
    /// The pools and streams that have segments, in order.
    pub homes: Vec<PoolAndStream>,
    /// The largest free ranges of the request's pool, on any stream, largest first.
    pub holes: Vec<Hole>,
    /// The cause suggested by the sizes; not proven.
    pub suspected: Verdict,
    /// The reason for suspecting this cause, as a clause without a full stop.
    pub reason: String,
    /// Other facts that may matter, one clause each.
    pub notes: Vec<String>,
    /// The adjacent dispensable blocks with the fewest bytes whose frees would let the request fit into one segment of
    /// its pool. `None` if there are none, if no block needs to be freed, or if the suspected cause is a limit or
    /// transient.
    pub eviction_window: Option<EvictionSet>,
    /// The dispensable blocks with the fewest bytes whose frees would let the allocator release enough whole segments or
    /// pages to the driver for the request. `None` if that is impossible, and in the other cases of `eviction_window`.
    pub release: Option<EvictionSet>,
}

impl FailedRequest {
    /// Describes the failed request `event`; `None` if it is not an out-of-memory event on the device of `index`.
    pub fn of(trace: &Trace, index: &AddressIndex, live: &LiveIndex, series: &Series, event: EventId) -> Option<Self> {
        let row = event.index().filter(|row| *row < trace.events.len())?;
        if trace.events.kind[row] != EventKind::Oom || trace.events.device[row] != index.device() {
            return None;
        }
        let oom = *trace.ooms.get(trace.events.subject[row] as usize)?;
        let facts = trace.device_facts(index.device());
        let rules = AllocRules::of(facts);
        let map = AddressMap::at(trace, index, live, series, row);
        let allocator = trace.allocator(index.device());
        let is_caching = allocator.has_settings();
        let rounded = if is_caching { rules.round(oom.requested) } else { oom.requested };
        let pool = rules.pool(rounded);
        let stream = oom.stream.or_else(|| stream_before(trace, index, row));
        let homes: BTreeSet<PoolAndStream> = map.segments.iter().map(|segment| segment.home).collect();
        let mut holes: Vec<Hole> = holes(&map).filter(|hole| hole.home.pool == pool).collect();
        holes.sort_by_key(|hole| (std::cmp::Reverse(hole.bytes), hole.address));
        let capacity = facts.map(|facts| facts.capacity_bytes).filter(|bytes| *bytes > 0);
        let totals = map.totals;
        let had = obtained(totals);
        let outside = capacity.map(|all| all.saturating_sub(oom.device_free).saturating_sub(had));
        let mut failed = Self {
            event,
            time_ns: trace.time_of(event),
            op: trace.tables.op_name(oom.op).to_owned(),
            scope: trace.tables.scope_path(oom.scope),
            requested: oom.requested,
            rounded,
            pool,
            stream,
            stream_is_guessed: oom.stream.is_none(),
            from_driver: if is_caching { rules.from_driver(rounded) } else { rounded },
            device_free: oom.device_free,
            capacity,
            outside,
            limit: is_limited(trace, index.device(), &oom).then(|| series.peak(trace, Metric::Reserved).0),
            obtained: had,
            allocator,
            reserved: totals.reserved,
            allocated: totals.allocated,
            waiting: totals.active.saturating_sub(totals.allocated),
            free_in_pool: 0,
            free_elsewhere: 0,
            homes: homes.into_iter().collect(),
            holes,
            suspected: Verdict::Capacity,
            reason: String::new(),
            notes: Vec::new(),
            eviction_window: None,
            release: None,
        };
        let own = map.segments.iter().filter(|segment| failed.is_home(&segment.home));
        failed.free_in_pool = own.map(|segment| segment.usage.free).sum();
        failed.free_elsewhere = map.usage.free - failed.free_in_pool;
        (failed.suspected, failed.reason) = failed.suspect(&map, &rules);
        failed.add_notes(&map);
        failed.find_ways_out(trace, &map, &rules);
        failed.holes.truncate(SHOWN_HOLES);
        Some(failed)
    }

    /// Returns the capacity of the device, as recorded or inferred from this failure. If a limit applied, the inferred
    /// capacity is at most this limit.
    pub fn device_memory(&self) -> Capacity {
        match (self.capacity, self.limit) {
            (Some(bytes), _) => Capacity { bytes, is_inferred: false },
            (None, Some(bytes)) => Capacity { bytes, is_inferred: true },
            (None, None) => Capacity::at_failure(self.obtained, self.device_free),
        }
    }

    /// Returns the number of bytes that the largest free range lacks for the request.
    pub fn lacking(&self) -> u64 {
        self.rounded.saturating_sub(self.holes.first().map_or(0, |hole| hole.bytes))
    }

    /// The smaller of the two sets of live blocks to free; `None` if neither exists.
    pub fn smallest_eviction(&self) -> Option<&EvictionSet> {
        self.eviction_window.iter().chain(&self.release).min_by_key(|set| set.bytes)
    }

    fn is_home(&self, home: &PoolAndStream) -> bool {
        let is_stream = self.stream.is_none_or(|stream| home.stream == stream);
        home.private.is_none() && home.pool == self.pool && is_stream
    }

    fn suspect(&self, map: &AddressMap, rules: &AllocRules) -> (Verdict, String) {
        let needed = self.rounded;
        let bytes = format_bytes;
        let [from_driver, device_free] = format_bytes_apart([self.from_driver, self.device_free]);
        let mut fitting = self.holes.iter().filter(|hole| hole.bytes >= needed);
        let other = fitting.clone().next();
        let own = fitting.find(|hole| self.is_home(&hole.home));
        // The stream of the request may be a guess: if others have segments in the same pool, a hole may not serve it.
        let others = self.homes.iter().any(|home| home.pool == self.pool && !self.is_home(home));
        // Within a segment, waiting blocks and adjacent free ranges merge into one free range.
        let homely = map.segments.iter().filter(|segment| self.is_home(&segment.home));
        let after_waiting = homely.map(|segment| longest_idle(map, segment)).max().unwrap_or(0);
        let in_pool = self.free_in_pool.saturating_add(self.device_free);
        let idle = in_pool.saturating_add(self.free_elsewhere);
        let largest_own = self.holes.iter().find(|hole| self.is_home(&hole.home)).map_or(0, |hole| hole.bytes);
        if self.capacity.is_some_and(|all| needed > all) {
            let why = format!("the request of {} alone is larger than the device", bytes(self.requested));
            return (Verdict::Capacity, why);
        }
        if self.from_driver <= self.device_free {
            let (had, cause) = match self.allocator {
                Allocator::Caching => (
                    "the driver had",
                    "a limit such as per_process_memory_fraction, or memory that the driver cannot provide in one \
                     piece",
                ),
                Allocator::Driver => {
                    ("the driver had", "memory that it cannot provide in one piece, or a limit of the process")
                }
                Allocator::Other => {
                    ("the allocator had", "memory that it cannot provide in one piece, or a limit of its own")
                }
            };
            let why =
                format!("{had} {} free, and {} were needed: {cause}", device_free.clone(), bytes(self.from_driver));
            return (Verdict::Limit, why);
        }
        if let Some(hole) = own {
            let range = format!("a free range of {}", bytes(hole.bytes));
            return if !rules.may_take(hole.bytes, needed) {
                let why = format!("{range} is large enough, but max_split_size keeps such ranges for larger requests");
                (Verdict::Fragmentation, why)
            } else if others && self.stream_is_guessed {
                let why = format!(
                    "{range} of the {} is large enough, so the request probably came from another stream or pool, \
                     which is not recorded",
                    hole.home.text()
                );
                (Verdict::Elsewhere, why)
            } else {
                let why = format!(
                    "{range} at {:#x} is large enough: PyTorch does not search its cache again after waiting for \
                     streams",
                    hole.address
                );
                (Verdict::Transient, why)
            };
        }
        if let Some(hole) = other {
            let why = format!(
                "a free range of {} is large enough, but belongs to the {}",
                bytes(hole.bytes),
                hole.home.text()
            );
            return (Verdict::Elsewhere, why);
        }
        if after_waiting >= needed {
            let why = format!(
                "{} wait for another stream; once they are free, a range of {} is large enough",
                bytes(self.waiting),
                bytes(after_waiting)
            );
            return (Verdict::Waiting, why);
        }
        if in_pool >= needed && self.free_in_pool > 0 {
            let why = format!(
                "{} are free in the {} pool, but in ranges of at most {}, and the device has {} free of the \
                 {from_driver} needed",
                bytes(self.free_in_pool),
                self.pool,
                bytes(largest_own),
                device_free.clone()
            );
            return (Verdict::Fragmentation, why);
        }
        // Memory that is free elsewhere would not make room for the segment either.
        if in_pool >= needed && self.device_free.saturating_add(self.free_elsewhere) < self.from_driver {
            let why = format!(
                "nothing is free in the {} pool, and a segment for the request needs {from_driver}, but the device \
                 has {} free",
                self.pool, device_free
            );
            return (Verdict::Capacity, why);
        }
        if idle >= needed {
            let why = format!(
                "{} are free in segments of other pools or streams, which cannot serve it; its own pool has {} free",
                bytes(self.free_elsewhere),
                bytes(self.free_in_pool)
            );
            return (Verdict::Elsewhere, why);
        }
        let free = match self.allocator {
            Allocator::Caching => {
                format!(
                    "{} are free in segments and {} on the device",
                    bytes(idle - self.device_free),
                    device_free.clone()
                )
            }
            Allocator::Driver | Allocator::Other => format!("{} are free", device_free.clone()),
        };
        if idle.saturating_add(self.waiting) >= needed {
            let why =
                format!("{free}; with the {} waiting for another stream, that would be enough", bytes(self.waiting));
            return (Verdict::Waiting, why);
        }
        (Verdict::Capacity, format!("only {free}, for a request of {}", bytes(needed)))
    }

    fn add_notes(&mut self, map: &AddressMap) {
        let bytes = format_bytes;
        if let (Some(outside), Some(capacity)) = (self.outside, self.capacity)
            && outside >= self.rounded
        {
            let note =
                format!("{} of the device's {} are in use outside this allocator", bytes(outside), bytes(capacity));
            self.notes.push(note);
        }
        let (live, waiting) = map.stray_bytes();
        if live + waiting > 0 {
            let note = format!("{} of blocks are outside all recorded segments", bytes(live + waiting));
            self.notes.extend((self.allocator != Allocator::Other).then_some(note));
        }
    }

    fn find_ways_out(&mut self, trace: &Trace, map: &AddressMap, rules: &AllocRules) {
        if matches!(self.suspected, Verdict::Limit | Verdict::Transient) {
            return;
        }
        let tail =
            if rules.is_expandable { self.device_free / rules.page(self.pool) * rules.page(self.pool) } else { 0 };
        let own = map.segments.iter().filter(|segment| self.is_home(&segment.home));
        self.eviction_window = eviction_window(trace, map, own, self.rounded, tail);
        if self.eviction_window.as_ref().is_some_and(|found| found.blocks.is_empty()) {
            self.eviction_window = None;
            return;
        }
        if self.capacity.is_none_or(|all| self.rounded <= all) {
            let short = self.from_driver.saturating_sub(self.device_free);
            self.release = release(trace, map, rules, short).filter(|found| !found.blocks.is_empty());
            if self.smallest_eviction().is_none() && map.pieces.iter().any(|piece| is_kept(trace, piece)) {
                let note = "no blocks to free were found, with parameters, buffers, inputs and optimizer state kept";
                self.notes.push(note.to_owned());
            }
        }
    }
}

/// All holes of a map.
pub fn holes(map: &AddressMap) -> impl Iterator<Item = Hole> {
    map.segments.iter().flat_map(|segment| {
        let free = map.pieces_of(segment).iter().filter(|piece| piece.content == Content::Hole);
        free.map(|piece| Hole { address: piece.addresses.start, bytes: piece.bytes(), home: segment.home })
    })
}

/// Returns the length of the longest run of holes and blocks awaiting free.
fn longest_idle(map: &AddressMap, segment: &ReservedSegment) -> u64 {
    let (mut longest, mut run) = (0_u64, 0_u64);
    for piece in map.pieces_of(segment) {
        run = match piece.content {
            Content::Hole | Content::Waiting(_) => run + piece.bytes(),
            _ => 0,
        };
        longest = longest.max(run);
    }
    longest
}

/// Returns the stream that probably made the request at event `row`: that of the last allocation on the device with the
/// same call stack, or otherwise of the last allocation.
fn stream_before(trace: &Trace, index: &AddressIndex, row: usize) -> Option<StreamId> {
    let events = &trace.events;
    let is_alloc = |row: &usize| events.kind[*row] == EventKind::Alloc && events.device[*row] == index.device();
    let stream = |row: usize| trace.blocks.stream.get(BlockId(events.subject[row]).index()?).copied();
    let mut before = (row.saturating_sub(FAR_BACK)..row).rev().filter(is_alloc);
    let alike = before.clone().find(|at| events.stack[row].is_some() && events.stack[*at] == events.stack[row]);
    alike.or_else(|| before.next()).and_then(stream)
}
