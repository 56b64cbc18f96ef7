//! Arranges the segments in the map, in rows from left to right.

use std::ops::Range;

use highwater_analysis::AddressMap;

/// A part of a segment in one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Strip {
    /// Index of the segment in the map.
    pub(super) segment: usize,
    pub(super) row: usize,
    /// The left end, in bytes from the start of the row.
    pub(super) start: u64,
    pub(super) addresses: Range<u64>,
    /// Number of bytes that the full width of the row represents.
    pub(super) row_bytes: u64,
}

impl Strip {
    /// Returns the horizontal range of the strip, as fractions of the row's width.
    pub(super) fn across(&self) -> Range<f64> {
        let bytes = self.addresses.end - self.addresses.start;
        let all = self.row_bytes.max(1) as f64;
        self.start as f64 / all..(self.start + bytes) as f64 / all
    }

    pub(super) fn pixels(&self, width: usize) -> Range<usize> {
        let across = self.across();
        let first = (across.start * width as f64) as usize;
        let last = (across.end * width as f64).ceil() as usize;
        first.min(width)..last.min(width).max(first.min(width))
    }

    /// Returns the address at a fraction of the row's width; `None` outside the strip.
    pub(super) fn address_at(&self, share: f64) -> Option<u64> {
        let at = (share * self.row_bytes as f64).max(0.0) as u64;
        let offset = at.checked_sub(self.start)?;
        (offset < self.addresses.end - self.addresses.start).then(|| self.addresses.start + offset)
    }

    /// The fraction of the row's width at an address, or at the nearer end of the strip if the address is outside.
    pub(super) fn share_of(&self, address: u64) -> f64 {
        let within = address.clamp(self.addresses.start, self.addresses.end) - self.addresses.start;
        (self.start + within) as f64 / self.row_bytes.max(1) as f64
    }
}

/// All strips in row order, and the number of rows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) strips: Vec<Strip>,
    pub(super) rows: usize,
}

pub(super) const MAX_ZOOM: u32 = 12;

impl Layout {
    /// Gives each segment a row at full width.
    pub(super) fn one_each(map: &AddressMap, order: &[usize]) -> Self {
        let strip = |(row, &segment): (usize, &usize)| {
            let addresses = map.segments[segment].addresses.clone();
            Strip { segment, row, start: 0, row_bytes: addresses.end - addresses.start, addresses }
        };
        Self { strips: order.iter().enumerate().map(strip).collect(), rows: order.len() }
    }

    /// Arranges all segments to a common scale, so that they fit into `rows` rows, multiplied by 2^`zoom`.
    pub(super) fn to_scale(map: &AddressMap, order: &[usize], rows: usize, zoom: u32) -> Self {
        let span = |segment: usize| {
            let addresses = &map.segments[segment].addresses;
            addresses.end - addresses.start
        };
        let all: u64 = order.iter().map(|segment| span(*segment)).fold(0, u64::saturating_add);
        let rows = rows.max(1) << zoom.min(MAX_ZOOM);
        let mut row_bytes = (all / rows as u64).max(1);
        loop {
            let layout = Self::with_rows_of(map, order, row_bytes);
            if layout.rows <= rows || row_bytes / 2 >= all {
                return layout;
            }
            row_bytes = row_bytes.saturating_add(row_bytes / 8 + 1);
        }
    }

    /// Places segments one after another with gaps; only segments longer than a row are split.
    fn with_rows_of(map: &AddressMap, order: &[usize], row_bytes: u64) -> Self {
        // For any number of segments, the gaps take at most half a row in all.
        let gap = row_bytes / (2 * order.len() as u64).max(200);
        let (mut strips, mut row, mut at) = (Vec::new(), 0, 0);
        for &segment in order {
            let addresses = map.segments[segment].addresses.clone();
            let bytes = addresses.end - addresses.start;
            if at > 0 && bytes > row_bytes - at.min(row_bytes) {
                (row, at) = (row + 1, 0);
            }
            let mut from = addresses.start;
            while from < addresses.end {
                if at >= row_bytes {
                    (row, at) = (row + 1, 0);
                }
                let end = addresses.end.min(from.saturating_add(row_bytes - at));
                strips.push(Strip { segment, row, start: at, addresses: from..end, row_bytes });
                at += end - from;
                from = end;
            }
            at = at.saturating_add(gap);
        }
        let rows = strips.last().map_or(0, |last| last.row + 1);
        Self { strips, rows }
    }

    pub(super) fn in_rows(&self, rows: Range<usize>) -> &[Strip] {
        let before = |row: usize| self.strips.partition_point(|strip| strip.row < row);
        &self.strips[before(rows.start)..before(rows.end.max(rows.start))]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::Recording;
    use highwater_analysis::addresses::{AddressIndex, AddressMap};
    use highwater_notation::trace_from_text;

    fn map_of(text: &str) -> AddressMap {
        let recording = Recording::new("test", None, trace_from_text(text).unwrap());
        let device = &recording.devices[0];
        let index = AddressIndex::build(&recording.trace, device.device);
        AddressMap::at(&recording.trace, &index, &device.live, &device.series, recording.trace.events.len())
    }

    #[test]
    fn long_segments_go_on_in_the_next_row_and_short_ones_are_not_broken() {
        let map = map_of("segment_alloc 0x1000 250\nsegment_alloc 0x2000 60\nsegment_alloc 0x3000 60");
        let layout = Layout::with_rows_of(&map, &[0, 1, 2], 100);
        let told: Vec<_> = layout.strips.iter().map(|strip| (strip.segment, strip.row, strip.start)).collect();
        assert_eq!(told, [(0, 0, 0), (0, 1, 0), (0, 2, 0), (1, 3, 0), (2, 4, 0)]);
        assert_eq!((layout.rows, layout.in_rows(1..3).len()), (5, 2));
        let tail = &layout.strips[2];
        assert_eq!((tail.across(), tail.address_at(0.25)), (0.0..0.5, Some(0x1000 + 225)));
        assert_eq!((tail.address_at(0.5), tail.share_of(0x1000 + 225)), (None, 0.25));
    }

    #[test]
    fn every_byte_of_every_segment_has_one_place_at_any_scale() {
        let text: String = (0..40).map(|row| format!("segment_alloc {:#x} {}\n", row << 20, 1 + row * 977)).collect();
        let map = map_of(&text);
        let order: Vec<usize> = (0..map.segments.len()).collect();
        for (rows, zoom) in [(1, 0), (7, 0), (7, 2), (50, 3)] {
            let layout = Layout::to_scale(&map, &order, rows, zoom);
            assert!(layout.rows <= rows << zoom && layout.rows > 0);
            for (segment, held) in map.segments.iter().enumerate() {
                let mut strips = layout.strips.iter().filter(|strip| strip.segment == segment);
                let mut from = held.addresses.start;
                assert!(strips.all(|strip| std::mem::replace(&mut from, strip.addresses.end) == strip.addresses.start));
                assert_eq!(from, held.addresses.end);
            }
            assert!(layout.strips.iter().all(|strip| strip.across().end <= 1.0));
        }
        assert_eq!(Layout::one_each(&map, &order).rows, 40);
        assert_eq!(Layout::to_scale(&map, &[], 5, 0).rows, 0);
    }
}
