//! One row for each range of device memory that was reserved, mapped or unmapped.

use crate::event::Range;
use crate::ids::{DeviceId, EventId, SegmentId};

/// The role of a row of [`Segments`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentRole {
    /// A whole segment, from its alloc to its free.
    Segment,
    /// Pages mapped into an expandable segment.
    Mapping,
    /// Pages unmapped from an expandable segment.
    Unmapping,
}

/// Segments as columns of equal length; position is [`SegmentId`].
#[derive(Clone, Debug, Default)]
pub struct Segments {
    /// The device.
    pub device: Vec<DeviceId>,
    /// Address, length, stream and pool.
    pub range: Vec<Range>,
    /// The role of the row.
    pub role: Vec<SegmentRole>,
    /// The event that reserved, mapped or unmapped it; none for the baseline.
    pub alloc: Vec<EventId>,
    /// The event that released the segment; none while it is reserved, and for mappings.
    pub free: Vec<EventId>,
}

/// The row of one segment: its values in all columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The device.
    pub device: DeviceId,
    /// Address, length, stream and pool.
    pub range: Range,
    /// The role of the row.
    pub role: SegmentRole,
    /// The event that reserved, mapped or unmapped it; none for the baseline.
    pub alloc: EventId,
    /// The event that released the segment; none while it is reserved, and for mappings.
    pub free: EventId,
}

impl Segments {
    /// Number of segments.
    pub fn len(&self) -> usize {
        self.device.len()
    }

    /// Returns whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.device.is_empty()
    }

    /// The ids, in order.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = SegmentId> + ExactSizeIterator {
        (0..self.len() as u32).map(SegmentId)
    }

    /// The row of `id`; panics if there is none.
    pub fn get(&self, id: SegmentId) -> Segment {
        let row = id.index().expect("a segment id names a segment");
        Segment {
            device: self.device[row],
            range: self.range[row],
            role: self.role[row],
            alloc: self.alloc[row],
            free: self.free[row],
        }
    }

    /// Appends a row.
    pub(crate) fn push(&mut self, device: DeviceId, range: Range, role: SegmentRole, event: EventId) -> SegmentId {
        let id = SegmentId::from_index(self.len());
        self.device.push(device);
        self.range.push(range);
        self.role.push(role);
        self.alloc.push(event);
        self.free.push(EventId::NONE);
        id
    }
}
