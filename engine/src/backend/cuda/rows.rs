//! The division of rows among threads, and contiguous inputs for kernels over rows.

use highwater_kernels::Grid;
use highwater_kernels::gpu::launch::THREADS;

use super::elementwise::copy;
use super::launch::{Launch, Queue};
use crate::backend::View;
use crate::{DType, Result};

const WARP: u64 = 32;
/// Maximum number of 16-byte packs of a row that one lane reads if there are enough rows for all lanes.
const PACKS_A_LANE: u64 = 8;

/// The rows of contiguous memory, as processed by kernels that include rows.cuh.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rows {
    count: u64,
    width: u64,
    lanes: u32,
    blocks: u32,
}

impl Rows {
    /// Returns the rows along the last axis of `view`.
    pub(super) fn of(queue: &Queue<'_>, view: View<'_>) -> Self {
        let width = view.layout.shape().last().copied().unwrap_or(1);
        let rows = view.layout.elements().checked_div(width).unwrap_or(0);
        Self::new(queue, [rows as u64, width as u64], view.dtype)
    }

    pub(super) fn new(queue: &Queue<'_>, size: [u64; 2], dtype: DType) -> Self {
        Self::shared(queue.gpu().processors(), size, dtype.size() as u64)
    }

    /// Returns the division of `rows` rows of `width` elements of `bytes` bytes, for a device with `processors`
    /// multiprocessors. Short rows are processed by some lanes of a warp. Long rows are processed by a block, as are
    /// shorter rows if there would otherwise be too few blocks.
    fn shared(processors: u32, [rows, width]: [u64; 2], bytes: u64) -> Self {
        let threads = u64::from(THREADS);
        let packs = (width * bytes).div_ceil(16);
        let lanes = packs.next_power_of_two().min(WARP);
        let blocks = (rows * lanes).div_ceil(threads);
        let is_long = packs > WARP * PACKS_A_LANE;
        let are_few = packs > 2 * WARP && blocks < u64::from(processors);
        let (lanes, blocks) = if is_long || are_few { (threads, rows) } else { (lanes, blocks) };
        let most_blocks = u64::from(processors) * 16;
        Self { count: rows, width, lanes: lanes as u32, blocks: blocks.min(most_blocks) as u32 }
    }

    pub(super) fn grid(&self) -> Grid {
        Grid::row(self.blocks)
    }

    /// Returns the number of lanes that share a row: part of a warp, or a block.
    pub(super) fn lanes(&self) -> u32 {
        self.lanes
    }
}

impl Launch<'_> {
    /// Adds the number of rows, their length, and the number of lanes per row to a launch, and sets its grid.
    pub(super) fn rows(self, rows: Rows) -> Self {
        self.with(rows.count).with(rows.width).with(rows.lanes).grid(rows.grid())
    }

    /// Adds the rows along the last axis of contiguous memory, as [`rows`](Self::rows) does.
    pub(super) fn rows_of(self, view: View<'_>) -> Self {
        let rows = Rows::of(&self.queue, view);
        self.rows(rows)
    }
}

/// Returns the contiguous input of a kernel that writes `out`. If `input` is not contiguous, copies it to `out`, and
/// returns `None`.
pub(super) fn in_order<'a>(out: View<'_>, input: Option<View<'a>>) -> Result<Option<View<'a>>> {
    match input {
        Some(input) if !input.layout.is_contiguous() => copy(out, input).map(|()| None),
        other => Ok(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lanes_and_blocks(rows: u64, width: u64) -> (u32, u32) {
        let rows = Rows::shared(132, [rows, width], 4);
        (rows.lanes, rows.blocks)
    }

    #[test]
    fn short_rows_share_a_warp_and_long_ones_have_a_block_each() {
        assert_eq!(lanes_and_blocks(1 << 20, 3), (1, 132 * 16));
        assert_eq!(lanes_and_blocks(1000, 10), (4, 16));
        assert_eq!(lanes_and_blocks(8192, 768), (32, 1024));
        assert_eq!(lanes_and_blocks(1000, 50257), (256, 1000));
        assert_eq!(lanes_and_blocks(8192, 50257), (256, 132 * 16));
    }

    #[test]
    fn few_rows_have_a_block_each_though_they_are_short() {
        assert_eq!(lanes_and_blocks(197, 1024), (256, 197));
        assert_eq!(lanes_and_blocks(197, 64), (16, 13));
    }

    #[test]
    fn there_is_nothing_to_start_for_no_rows() {
        assert_eq!(lanes_and_blocks(0, 5).1, 0);
        assert_eq!(lanes_and_blocks(0, 0).1, 0);
    }
}
