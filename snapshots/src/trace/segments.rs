//! One row for each range of device memory that was reserved, mapped or unmapped.

use crate::event::Range;
use crate::ids::{DeviceId, EventId, SegmentId};

use super::columns::columns;

/// The meaning of a row of [`Segments`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentRole {
    /// A whole segment, from its reservation to its release.
    Segment,
    /// Pages mapped into an expandable segment.
    Mapping,
    /// Pages unmapped from an expandable segment, or a released segment whose reservation was not recorded.
    Unmapping,
}

columns!(
    /// Segments as columns of equal length, indexed by [`SegmentId`].
    Segments by SegmentId,
    /// The row of one segment: its values in all columns.
    Segment {
        /// The device on which the segment was reserved.
        device: DeviceId,
        /// Address, length, stream and pool.
        range: Range,
        /// The meaning of the row.
        role: SegmentRole,
        /// The event that reserved, mapped or unmapped the range; [`EventId::NONE`] for the baseline.
        alloc: EventId,
        /// The event that released the segment; [`EventId::NONE`] if it is still reserved, and for pages that were
        /// mapped or unmapped.
        free: EventId,
    }
    beside {}
);

impl Segments {
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
