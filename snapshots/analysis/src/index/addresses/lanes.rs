//! Draws the use of each address over time, for the visible window.
//!
//! Events are not replayed individually. A block covers a rectangle: the columns of the moments at which it is live,
//! and the rows of its addresses. A block that falls between two columns, or between two rows, needs only two lookups.

use std::ops::Range;

use rayon::prelude::*;

use super::axis::LaneAxis;
use super::extents::AddressIndex;
use super::map::{Content, span_of};
use crate::index::live::LiveIndex;
use crate::metric::Metric;
use highwater_snapshots::ids::BlockId;
use highwater_snapshots::trace::Trace;

/// Minimum number of columns for which a separate starting state is computed.
const MIN_COLUMNS: usize = 32;

/// The content at each pixel's centre.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneRaster {
    /// The content by column, each from the top of the axis down; `None` where nothing is reserved.
    pub spots: Vec<Option<Content>>,
    /// Pixels per column.
    pub height: usize,
    /// The moment of each column.
    pub moments: Vec<usize>,
}

impl LaneRaster {
    /// Returns the content at pixel `y`, from the top, of column `x`; `None` outside, and where nothing is reserved.
    pub fn spot(&self, x: usize, y: usize) -> Option<Content> {
        if y >= self.height {
            return None;
        }
        self.spots.get(x * self.height + y).copied().flatten()
    }
}

/// The visible part of a drawing of addresses over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaneWindow {
    /// The moment shown in each column, in order. The timeline uses the same columns.
    pub moments: Vec<usize>,
    /// The visible range of the axis, in bytes.
    pub places: Range<u64>,
    /// Pixels per column.
    pub height: usize,
}

impl LaneWindow {
    /// The position on the axis at the centre of pixel `y`.
    pub fn place_at(&self, y: usize) -> u64 {
        let span = u128::from(self.places.end.saturating_sub(self.places.start));
        let height = self.height.max(1) as u128;
        self.places.start + ((2 * y as u128 + 1) * span / (2 * height)) as u64
    }
}

/// Draws `window`. `live` must be built from the same trace and device. Takes a few lookups for each block live at its
/// start or allocated within it, plus time for the pixels.
pub fn raster(
    trace: &Trace,
    index: &AddressIndex,
    axis: &LaneAxis,
    live: &LiveIndex,
    window: &LaneWindow,
) -> LaneRaster {
    let (width, height) = (window.moments.len(), window.height);
    let mut spots = vec![None; width * height];
    let centres: Vec<u64> = (0..height).map(|y| window.place_at(y)).collect();
    let run = width.div_ceil(2 * rayon::current_num_threads()).max(MIN_COLUMNS);
    spots.par_chunks_mut((run * height).max(1)).zip(window.moments.par_chunks(run)).for_each(|(spots, moments)| {
        Canvas { spots, moments, centres: &centres, axis }.paint(trace, index, live);
    });
    LaneRaster { spots, height, moments: window.moments.clone() }
}

/// Some adjacent columns of the drawing, which one task paints.
struct Canvas<'a> {
    spots: &'a mut [Option<Content>],
    moments: &'a [usize],
    centres: &'a [u64],
    axis: &'a LaneAxis,
}

impl Canvas<'_> {
    fn paint(&mut self, trace: &Trace, index: &AddressIndex, live: &LiveIndex) {
        let (Some(&first), Some(&last)) = (self.moments.first(), self.moments.last()) else { return };
        if self.centres.is_empty() {
            return;
        }
        for whole in index.growing() {
            for moments in &whole.moments {
                self.fill(moments, &whole.addresses, Content::Unmapped);
            }
        }
        for extent in index.extents() {
            self.fill(&extent.moments, &extent.addresses, Content::Hole);
        }
        for id in live.before_position(trace, Metric::Active, first) {
            self.block(trace, id);
        }
        // Blocks are in the order of their allocations.
        let after = |moment: usize| {
            trace.blocks.alloc.partition_point(|event| event.index().is_none_or(|event| event < moment))
        };
        for row in after(first)..after(last) {
            if trace.blocks.device[row] == index.device() {
                self.block(trace, BlockId(row as u32));
            }
        }
    }

    fn block(&mut self, trace: &Trace, id: BlockId) {
        let row = id.0 as usize;
        let blocks = &trace.blocks;
        let moment = |event: Option<usize>, none: usize| event.map_or(none, |event| event + 1);
        let born = moment(blocks.alloc[row].index(), 0);
        let gone = moment(blocks.free_completed[row].index(), usize::MAX);
        if self.columns(&(born..gone)).is_empty() {
            return;
        }
        let span = span_of(trace, id);
        let asked = span.start.saturating_add(blocks.requested[row]).min(span.end);
        let freed = match trace.was_waiting_at_start(id) {
            true => 0,
            false => moment(blocks.free_requested[row].index(), usize::MAX).min(gone),
        };
        self.fill(&(born..freed), &(span.start..asked), Content::Live(id));
        self.fill(&(born..freed), &(asked..span.end), Content::Rounding(id));
        self.fill(&(freed.max(born)..gone), &span, Content::Waiting(id));
    }

    fn columns(&self, moments: &Range<usize>) -> Range<usize> {
        let before = |moment: usize| self.moments.partition_point(|at| *at < moment);
        before(moments.start)..before(moments.end)
    }

    fn fill(&mut self, moments: &Range<usize>, addresses: &Range<u64>, content: Content) {
        let columns = self.columns(moments);
        if columns.is_empty() || addresses.is_empty() {
            return;
        }
        let height = self.centres.len();
        let axis = self.axis;
        for place in axis.places(addresses.clone()) {
            let before = |place: u64| self.centres.partition_point(|centre| *centre < place);
            let rows = before(place.start)..before(place.end);
            if rows.is_empty() {
                continue;
            }
            for column in columns.clone() {
                if let Some(spots) = self.spots.get_mut(column * height..(column + 1) * height) {
                    spots[rows.clone()].fill(Some(content));
                }
            }
        }
    }
}
