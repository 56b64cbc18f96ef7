//! Autopsy: why a request could not be met, and what would have made it fit.

use serde::Serialize;

use super::extents::{AddressIndex, Home};
use super::map::{AddressMap, Content, HeldSegment};
use super::release::{Release, release};
use super::relief::{Relief, relief};
use crate::alloc_rules::AllocRules;
use crate::analysis::live::LiveIndex;
use crate::analysis::series::Series;
use crate::category::Pool;
use crate::event::EventKind;
use crate::ids::{BlockId, EventId, StreamId};
use crate::trace::Trace;
use crate::units::format_bytes;

/// Holes that are told one by one.
const SHOWN_HOLES: usize = 8;
/// Events looked at to find the stream that was current.
const FAR_BACK: usize = 65_536;

/// Why a request could not be met.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Even all free bytes together would not do.
    Capacity,
    /// Free bytes of the right pool, with the driver's, would do, but no free range is long enough.
    Fragmentation,
    /// It would fit once blocks that wait for a stream are returned.
    Waiting,
    /// Another pool or another stream holds what it needs.
    Elsewhere,
    /// The driver had the memory: a limit of the process or of the settings stands in the way.
    Limit,
    /// A free range would hold it: the same request would probably succeed now.
    Transient,
}

impl Verdict {
    /// In a word or two.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Capacity => "capacity",
            Self::Fragmentation => "fragmentation",
            Self::Waiting => "waiting for a stream",
            Self::Elsewhere => "held by another pool or stream",
            Self::Limit => "a limit, not the device",
            Self::Transient => "it would fit now",
        }
    }
}

/// A free range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Hole {
    /// Its first byte.
    pub address: u64,
    /// Its length.
    pub bytes: u64,
    /// Whose requests it serves.
    pub home: Home,
}

/// An out-of-memory, taken apart. All sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Autopsy {
    /// The event.
    pub event: EventId,
    /// Its time, in nanoseconds since the recording's origin.
    pub time_ns: Option<u64>,
    /// The operation that asked; empty if unknown.
    pub op: String,
    /// The module in which that was; empty if unknown.
    pub scope: String,
    /// What the program asked for.
    pub requested: u64,
    /// The same, rounded as the allocator does.
    pub rounded: u64,
    /// The pool that serves such requests.
    pub pool: Pool,
    /// The stream of the last allocation before it: recordings do not say whose request failed. None if there was none.
    pub likely_stream: Option<StreamId>,
    /// What the driver was asked for.
    pub from_driver: u64,
    /// What the driver said was free.
    pub device_free: u64,
    /// The device's memory; none if unknown.
    pub capacity: Option<u64>,
    /// Held by others on the device, or by the driver itself; none if the capacity is unknown.
    pub outside: Option<u64>,
    /// Held from the driver.
    pub reserved: u64,
    /// In live blocks.
    pub allocated: u64,
    /// In blocks that wait for a stream.
    pub waiting: u64,
    /// Free in segments of the pool that the request belongs to, of the likely stream.
    pub free_in_pool: u64,
    /// Free in all other segments.
    pub free_elsewhere: u64,
    /// The largest free ranges of that pool, of all streams, largest first.
    pub holes: Vec<Hole>,
    /// Why.
    pub verdict: Verdict,
    /// The same in plain words, the verdict first.
    pub reasons: Vec<String>,
    /// The fewest bytes of neighbouring live blocks whose absence would make it fit into one segment of its pool; none
    /// where no segment is long enough, or nothing needs to go.
    pub relief: Option<Relief>,
    /// The fewest bytes of live blocks without which segments could be given back whole, so that the driver has what the
    /// request needs; none where that is no way, or nothing needs to go.
    pub release: Option<Release>,
}

impl Autopsy {
    /// Takes the failed request `event` apart; none if that is no out-of-memory of the device of `index`.
    pub fn of(trace: &Trace, index: &AddressIndex, live: &LiveIndex, series: &Series, event: EventId) -> Option<Self> {
        let row = event.index().filter(|row| *row < trace.events.len())?;
        if trace.events.kind[row] != EventKind::Oom || trace.events.device[row] != index.device() {
            return None;
        }
        let oom = *trace.ooms.get(trace.events.subject[row] as usize)?;
        let facts = trace.device_facts(index.device());
        let rules = AllocRules::of(facts);
        let map = AddressMap::at(trace, index, live, series, row);
        let rounded = rules.round(oom.requested);
        let pool = rules.pool(rounded);
        let likely_stream = stream_before(trace, index, row);
        let is_home = |home: &Home| {
            home.private.is_none() && home.pool == pool && likely_stream.is_none_or(|stream| home.stream == stream)
        };
        let free_in_pool = map.segments.iter().filter(|segment| is_home(&segment.home)).map(|own| own.usage.free).sum();
        let mut holes: Vec<Hole> = holes(&map).filter(|hole| hole.home.pool == pool).collect();
        holes.sort_by_key(|hole| (std::cmp::Reverse(hole.bytes), hole.address));
        let capacity = facts.map(|facts| facts.capacity_bytes).filter(|bytes| *bytes > 0);
        let totals = map.totals;
        let outside = capacity.map(|all| all.saturating_sub(oom.device_free).saturating_sub(totals.reserved));
        let mut autopsy = Self {
            event,
            time_ns: trace.events.time_of(event),
            op: trace.tables.op_name(oom.op).to_owned(),
            scope: trace.tables.scope_path(oom.scope),
            requested: oom.requested,
            rounded,
            pool,
            likely_stream,
            from_driver: rules.from_driver(rounded),
            device_free: oom.device_free,
            capacity,
            outside,
            reserved: totals.reserved,
            allocated: totals.allocated,
            waiting: totals.active.saturating_sub(totals.allocated),
            free_in_pool,
            free_elsewhere: map.usage.free - free_in_pool,
            holes,
            verdict: Verdict::Capacity,
            reasons: Vec::new(),
            relief: None,
            release: None,
        };
        autopsy.judge(trace, &map, &rules, is_home);
        autopsy.holes.truncate(SHOWN_HOLES);
        Some(autopsy)
    }

    /// Where the request would have stood in the largest free range: bytes that it lacks there.
    pub fn lacking(&self) -> u64 {
        self.rounded.saturating_sub(self.holes.first().map_or(0, |hole| hole.bytes))
    }

    fn judge(&mut self, trace: &Trace, map: &AddressMap, rules: &AllocRules, is_home: impl Fn(&Home) -> bool) {
        let needed = self.rounded;
        let holds = |hole: &&Hole| hole.bytes >= needed;
        let own = self.holes.iter().filter(holds).find(|hole| is_home(&hole.home)).copied();
        let other = self.holes.iter().find(holds).copied();
        // The stream that asked is not recorded: where others hold the same pool, a hole may be no good to the request.
        let others = map.segments.iter().any(|segment| segment.home.pool == self.pool && !is_home(&segment.home));
        // Within a segment, returned blocks and free ranges beside them become one free range.
        let longest_after_waiting = map.segments.iter().filter(|segment| is_home(&segment.home));
        let after_waiting = longest_after_waiting.map(|segment| longest_idle(map, segment)).max().unwrap_or(0);
        let in_pool = self.free_in_pool.saturating_add(self.device_free);
        let idle = in_pool.saturating_add(self.free_elsewhere);
        let tail =
            if rules.is_expandable { self.device_free / rules.page(self.pool) * rules.page(self.pool) } else { 0 };
        let largest_own = self.holes.iter().find(|hole| is_home(&hole.home)).map_or(0, |hole| hole.bytes);
        let bytes = format_bytes;
        let pool = self.pool;
        let (verdict, why) = if self.capacity.is_some_and(|all| needed > all) {
            (Verdict::Capacity, format!("the request of {} alone is larger than the device", bytes(self.requested)))
        } else if self.from_driver <= self.device_free {
            let free = bytes(self.device_free);
            let why = format!(
                "the driver had {free} free, and {} were needed: a limit such as per_process_memory_fraction, or other \
                 memory that the driver cannot give in one piece, stands in the way",
                bytes(self.from_driver)
            );
            (Verdict::Limit, why)
        } else if let Some(hole) = own.filter(|hole| rules.may_take(hole.bytes, needed) && !others) {
            let why = format!(
                "a free range of {} at {:#x} would hold it: the allocator does not look again after it has waited for \
                 streams, so that the same request would probably succeed now",
                bytes(hole.bytes),
                hole.address
            );
            (Verdict::Transient, why)
        } else if let Some(hole) = own.filter(|hole| !rules.may_take(hole.bytes, needed)) {
            let why = format!(
                "a free range of {} would hold it, but max_split_size keeps such ranges for larger requests",
                bytes(hole.bytes)
            );
            (Verdict::Fragmentation, why)
        } else if let Some(hole) = own {
            let why = format!(
                "a free range of {} would hold it and serves the {}: the request must have come from another stream \
                 or pool, which the recording does not say",
                bytes(hole.bytes),
                hole.home.text()
            );
            (Verdict::Elsewhere, why)
        } else if let Some(hole) = other {
            let why = format!(
                "a free range of {} would hold it, but serves the {} alone, not this request",
                bytes(hole.bytes),
                hole.home.text()
            );
            (Verdict::Elsewhere, why)
        } else if after_waiting >= needed {
            let why = format!(
                "{} wait for another stream; when they are returned, a range of {} is free and the request fits",
                bytes(self.waiting),
                bytes(after_waiting)
            );
            (Verdict::Waiting, why)
        } else if in_pool >= needed {
            let why = format!(
                "{} are free in the {pool} pool and {} on the device, which together would do, but the largest free \
                 range is {}",
                bytes(self.free_in_pool),
                bytes(self.device_free),
                bytes(largest_own)
            );
            (Verdict::Fragmentation, why)
        } else if idle >= needed {
            let why = format!(
                "{} are free in segments of other pools or streams, which may not serve it; its own pool has {} free",
                bytes(self.free_elsewhere),
                bytes(self.free_in_pool)
            );
            (Verdict::Elsewhere, why)
        } else if idle.saturating_add(self.waiting) >= needed {
            let why = format!(
                "with the {} that wait for another stream there would be enough, though not in one piece",
                bytes(self.waiting)
            );
            (Verdict::Waiting, why)
        } else {
            let why = format!(
                "even all that is free would not do: {} in segments and {} on the device, for a request of {}",
                bytes(self.free_in_pool.saturating_add(self.free_elsewhere)),
                bytes(self.device_free),
                bytes(needed)
            );
            (Verdict::Capacity, why)
        };
        self.verdict = verdict;
        self.reasons.push(why);
        self.add_reasons(map, rules);
        if matches!(verdict, Verdict::Limit | Verdict::Transient) {
            return;
        }
        let own = map.segments.iter().filter(|segment| is_home(&segment.home));
        let short = self.from_driver.saturating_sub(self.device_free);
        match relief(trace, map, own, needed, tail) {
            Some(found) if found.blocks.is_empty() => return,
            Some(found) => {
                let neighbours = match found.blocks.len() {
                    1 => "one live block".to_owned(),
                    count => format!("{count} neighbouring live blocks"),
                };
                self.reasons.push(format!("without {neighbours} of {} it would fit", bytes(found.bytes)));
                self.relief = Some(found);
            }
            None => {
                let why = format!(
                    "no segment of its pool is long enough: the driver would have to give {} more",
                    bytes(short)
                );
                self.reasons.push(why);
            }
        }
        if self.capacity.is_none_or(|all| needed <= all) {
            self.release = release(trace, map, rules, short).filter(|found| !found.blocks.is_empty());
        }
        self.reasons.extend(self.release.as_ref().filter(|_| self.is_release_cheaper()).map(release_text));
    }

    /// Whether fewer bytes would have to go if segments were given back whole than to make room within one.
    pub fn is_release_cheaper(&self) -> bool {
        let bytes = self.relief.as_ref().map_or(u64::MAX, |relief| relief.bytes);
        self.release.as_ref().is_some_and(|release| release.bytes < bytes)
    }

    /// What else there is to know, whatever the verdict.
    fn add_reasons(&mut self, map: &AddressMap, rules: &AllocRules) {
        let bytes = format_bytes;
        if let (Some(outside), Some(capacity)) = (self.outside, self.capacity)
            && outside >= self.rounded
        {
            let why = format!("{} of the device's {} are held outside this allocator", bytes(outside), bytes(capacity));
            self.reasons.push(why);
        }
        if self.verdict == Verdict::Fragmentation && !rules.is_expandable {
            self.reasons
                .push("with expandable_segments:True free ranges could grow, instead of staying too short".into());
        }
        let (live, waiting) = map.stray_bytes();
        if live + waiting > 0 {
            let why = format!("{} of blocks lie in no segment that the recording knows", bytes(live + waiting));
            self.reasons.push(why);
        }
    }
}

fn release_text(release: &Release) -> String {
    let count = |count: u64, noun: &str| match count {
        1 => format!("one {noun}"),
        count => format!("{count} {noun}s"),
    };
    let what = match (release.segments, release.pages) {
        (segments, 0) => count(segments, "segment"),
        (0, pages) => count(pages, "page"),
        (segments, pages) => format!("{} and {}", count(segments, "segment"), count(pages, "page")),
    };
    format!(
        "without {} of {}, {what} of {} could go back to the driver, which would then have enough",
        count(release.blocks.len() as u64, "live block"),
        format_bytes(release.bytes),
        format_bytes(release.returned)
    )
}

/// All holes of a map.
pub fn holes(map: &AddressMap) -> impl Iterator<Item = Hole> {
    map.segments.iter().flat_map(|segment| {
        let free = map.pieces_of(segment).iter().filter(|piece| piece.content == Content::Hole);
        free.map(|piece| Hole { address: piece.addresses.start, bytes: piece.bytes(), home: segment.home })
    })
}

/// The longest run of holes and waiting blocks.
fn longest_idle(map: &AddressMap, segment: &HeldSegment) -> u64 {
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

/// The stream of the last allocation on the device before event `row`.
fn stream_before(trace: &Trace, index: &AddressIndex, row: usize) -> Option<StreamId> {
    let is_alloc =
        |row: &usize| trace.events.kind[*row] == EventKind::Alloc && trace.events.device[*row] == index.device();
    let last = (row.saturating_sub(FAR_BACK)..row).rev().find(is_alloc)?;
    let block = BlockId(trace.events.subject[last]).index()?;
    trace.blocks.stream.get(block).copied()
}
