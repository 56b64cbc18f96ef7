//! The ranges of addresses that were reserved from the driver over time.

use std::collections::HashMap;
use std::ops::Range;

use highwater_snapshots::category::Pool;
use highwater_snapshots::ids::{DeviceId, EventId, SegmentId, StreamId};
use highwater_snapshots::ranges::Ranges;
use highwater_snapshots::trace::{Owner, SegmentRole, Trace};

/// A range that was reserved without a change for some time: a whole segment, or part of a mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The address range.
    pub addresses: Range<u64>,
    /// The moments at which the range is reserved; up to `usize::MAX` if it is still reserved at the end.
    pub moments: Range<usize>,
    /// The pool and stream that the range serves.
    pub home: PoolAndStream,
    /// The row, in the trace's table, of the segment that reserved the range.
    pub row: SegmentId,
    /// The expandable segment that contains the range as a mapped part, as an index into [`AddressIndex::growing`].
    pub growing: Option<u32>,
}

impl Extent {
    pub(crate) fn is_reserved(&self, moment: usize) -> bool {
        self.moments.contains(&moment)
    }
}

/// The pool and stream that a segment serves. Private pools are ordered after shared ones, as in displays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub struct PoolAndStream {
    /// The private pool (of a CUDA graph or `torch.cuda.MemPool`), by PyTorch's id; `None` for the shared pools.
    pub private: Option<(u64, u64)>,
    /// The pool for small or large requests.
    pub pool: Pool,
    /// The stream whose blocks the segment contains.
    pub stream: StreamId,
}

impl PoolAndStream {
    /// Formats the pool and stream, such as `large pool, stream 0` or `small pool 0.1, stream 7`.
    pub fn text(&self) -> String {
        format!("{}, stream {}", self.pool_text(), self.stream.0)
    }

    /// Formats the pool, such as `large pool` or `private small pool 0.1`.
    pub fn pool_text(&self) -> String {
        match self.private {
            Some((first, second)) => format!("private {} pool {first}.{second}", self.pool),
            None => format!("{} pool", self.pool),
        }
    }
}

/// An expandable segment: all adjacent ranges ever mapped for one pool and stream. Unmapped parts are reserved address
/// space without memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Growing {
    /// The range of all addresses that were ever mapped.
    pub addresses: Range<u64>,
    /// The moments at which any part of the range was mapped.
    pub moments: Vec<Range<usize>>,
}

/// The ranges reserved on one device over time, derived only from its segments.
#[derive(Clone, Debug)]
pub struct AddressIndex {
    device: DeviceId,
    extents: Vec<Extent>,
    growing: Vec<Growing>,
    ooms: Vec<EventId>,
}

impl AddressIndex {
    /// Builds the index from the segments of `device`, which are few, and collects its failed requests.
    pub fn build(trace: &Trace, device: DeviceId) -> Self {
        let mut extents = extents_of(changes(trace, device));
        let growing = growing_of(&mut extents);
        extents.sort_by_key(|extent| (extent.moments.start, extent.addresses.start));
        Self { device, extents, growing, ooms: trace.failed_requests_on(device).collect() }
    }

    /// The device whose reserved ranges are indexed.
    pub fn device(&self) -> DeviceId {
        self.device
    }

    /// Returns all ranges that were ever reserved, in order of reservation.
    pub(crate) fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// The expandable segments.
    pub fn growing(&self) -> &[Growing] {
        &self.growing
    }

    /// Returns whether the recording has no segments, as from a recorder that only records blocks.
    pub fn is_empty(&self) -> bool {
        self.extents.is_empty()
    }

    /// The device's failed requests, in order.
    pub fn ooms(&self) -> &[EventId] {
        &self.ooms
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Change {
    /// The first moment after the change.
    pub(crate) moment: usize,
    pub(crate) addresses: Range<u64>,
    /// The range that was reserved; `None` if a range was released.
    pub(crate) obtained: Option<ReservedRange>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReservedRange {
    pub(crate) home: PoolAndStream,
    pub(crate) row: SegmentId,
    /// Whether the range is mapped into an expandable segment.
    pub(crate) is_mapping: bool,
}

/// The changes of segments of a trace, in order.
pub(crate) fn changes(trace: &Trace, device: DeviceId) -> Vec<Change> {
    let segments = &trace.segments;
    let mut changes = Vec::new();
    for id in segments.ids() {
        let row = id.0 as usize;
        if segments.device[row] != device {
            continue;
        }
        let moment = segments.alloc[row].index().map_or(0, |event| event + 1);
        let (range, role) = (segments.range[row], segments.role[row]);
        let obtained = || {
            let home = PoolAndStream { private: private_pool(trace, id), pool: range.pool, stream: range.stream };
            ReservedRange { home, row: id, is_mapping: role == SegmentRole::Mapping }
        };
        let addresses = range.address..range.address.saturating_add(range.bytes);
        let obtained = (role != SegmentRole::Unmapping).then(obtained);
        changes.push(Change { moment, addresses: addresses.clone(), obtained });
        if let Some(event) = segments.free[row].index() {
            changes.push(Change { moment: event + 1, addresses, obtained: None });
        }
    }
    changes.sort_by_key(|change| change.moment);
    changes
}

/// The ranges reserved over time according to `changes`, which must be in order.
pub(crate) fn extents_of(changes: Vec<Change>) -> Vec<Extent> {
    // The reserved ranges, each with its first moment.
    let mut live: Ranges<(usize, ReservedRange)> = Ranges::default();
    let extent = |start, end, (since, of): (usize, ReservedRange), until| {
        let ReservedRange { home, row, is_mapping } = of;
        // The expandable segment is determined once all mappings are known.
        let growing = is_mapping.then_some(u32::MAX);
        Extent { addresses: start..end, moments: since..until, home, row, growing }
    };
    let mut extents = Vec::new();
    for Change { moment, addresses: Range { start, end }, obtained } in changes {
        // A range that is reserved again must have been released, with the release missing. The remainder of the old
        // range is the same memory: it continues in parts, each of which existed from the start.
        live.take(start, end, |start, end, of| {
            if of.0 < moment {
                extents.push(extent(start, end, of, moment));
            }
        });
        if let Some(obtained) = obtained {
            live.insert(start, end, (moment, obtained));
        }
    }
    extents.extend(live.iter().map(|(start, end, of)| extent(start, end, of, usize::MAX)));
    extents
}

/// Merges mapped ranges of one pool and stream that adjoin, even if not mapped at the same time, into expandable
/// segments.
fn growing_of(extents: &mut [Extent]) -> Vec<Growing> {
    let mut homes: HashMap<PoolAndStream, Vec<usize>> = HashMap::new();
    for (row, extent) in extents.iter().enumerate().filter(|(_, extent)| extent.growing.is_some()) {
        homes.entry(extent.home).or_default().push(row);
    }
    let mut homes: Vec<(PoolAndStream, Vec<usize>)> = homes.into_iter().collect();
    homes.sort_by_key(|(home, _)| *home);
    let mut growing: Vec<Growing> = Vec::new();
    for (_, mut rows) in homes {
        rows.sort_by_key(|row| extents[*row].addresses.start);
        let first = growing.len();
        for row in rows {
            let Range { start, end } = extents[row].addresses.clone();
            match growing[first..].last_mut().filter(|last| last.addresses.end >= start) {
                Some(last) => last.addresses.end = last.addresses.end.max(end),
                None => growing.push(Growing { addresses: start..end, moments: Vec::new() }),
            }
            extents[row].growing = Some(growing.len() as u32 - 1);
        }
    }
    let mut order: Vec<&Extent> = extents.iter().filter(|extent| extent.growing.is_some()).collect();
    order.sort_by_key(|extent| extent.moments.start);
    for extent in order {
        let Some(whole) = extent.growing.and_then(|row| growing.get_mut(row as usize)) else { continue };
        match whole.moments.last_mut().filter(|last| last.end >= extent.moments.start) {
            Some(last) => last.end = last.end.max(extent.moments.end),
            None => whole.moments.push(extent.moments.clone()),
        }
    }
    growing
}

fn private_pool(trace: &Trace, row: SegmentId) -> Option<(u64, u64)> {
    let event = trace.segments.alloc[row.0 as usize];
    trace.private_pool(if event.is_some() { Owner::Event(event) } else { Owner::Segment(row) })
}
