//! Loops over operands by their innermost dimension, and the mapping of a grid's threads to them.

use highwater_kernels::Grid;
use highwater_kernels::gpu::launch::THREADS;

use super::launch::{Launch, Queue, WIDE_BYTES, nest_words};

/// Maximum number of blocks per multiprocessor. With more work, threads loop.
const BLOCKS_PER_PROCESSOR: u64 = 16;

impl Launch<'_> {
    /// Adds loops over the first `N` operands as `struct Lines` in lines.cuh, and sets a grid for them. The first
    /// operand is written.
    pub(super) fn lines<const N: usize>(self) -> Self {
        let nest = self.nest_of_operands::<N>();
        let width = WIDE_BYTES / self.operands().take(N).map(|(_, dtype)| dtype.size()).max().unwrap_or(WIDE_BYTES);
        let (lengths, strides) = nest.axes();
        let (&length, outer) = lengths.split_last().expect("the nest has no loop");
        let is_packed = self.operands().zip(strides).enumerate().all(|(operand, ((address, dtype), strides))| {
            let (&inner, outer) = strides.split_last().expect("the nest has no loop");
            let is_in_order = inner == 1
                && outer.iter().all(|stride| stride.is_multiple_of(width))
                && address.is_multiple_of((width * dtype.size()) as u64);
            is_in_order || inner == 0 && operand > 0
        });
        let count: u64 = outer.iter().map(|&length| length as u64).product();
        let units = if is_packed { length.div_ceil(width) } else { length } as u64;
        let grid = grid(units, count, most_blocks(&self.queue));
        let mut words = nest_words(&nest);
        words.extend([count, u64::from(is_packed)]);
        self.words(&words).grid(grid)
    }

    /// Sets a grid for `count` lines of `length` elements, which are contiguous in all operands. Returns whether
    /// elements are moved in packs.
    pub(super) fn lines_in_order(&mut self, [length, count]: [usize; 2]) -> u32 {
        let width = WIDE_BYTES / self.operands().map(|(_, dtype)| dtype.size()).max().unwrap_or(WIDE_BYTES);
        let is_packed = self.is_aligned(WIDE_BYTES) && (count == 1 || length.is_multiple_of(width));
        let units = if is_packed { length.div_ceil(width) } else { length };
        self.grid = grid(units as u64, count as u64, most_blocks(&self.queue));
        u32::from(is_packed)
    }
}

/// Returns the number of blocks that are useful at once.
pub(super) fn most_blocks(queue: &Queue<'_>) -> u64 {
    u64::from(queue.gpu().processors()) * BLOCKS_PER_PROCESSOR
}

/// Returns a grid for `lines` lines of `units` elements or packs, with at most about `most` blocks. If there is only
/// one line, all threads are along it.
pub(super) fn grid(units: u64, lines: u64, most: u64) -> Grid {
    const MAX_ALONG_Y: u64 = 65_535;
    let across = units.clamp(1, u64::from(THREADS)).next_power_of_two();
    let down = (u64::from(THREADS) / across).min(lines.clamp(1, u64::from(THREADS)).next_power_of_two());
    let along = units.div_ceil(across).min(most);
    let over = lines.div_ceil(down).min((most / along.max(1)).clamp(1, MAX_ALONG_Y));
    Grid { blocks: [along as u32, over as u32, 1], threads: [across as u32, down as u32, 1], shared_bytes: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_lie_along_lines_first_and_the_rest_over_several() {
        let shape = |units, lines| {
            let Grid { blocks, threads, .. } = grid(units, lines, 100);
            (blocks[0], blocks[1], threads[0], threads[1])
        };
        assert_eq!(shape(3, 1000), (1, 16, 4, 64));
        assert_eq!(shape(96, 5), (1, 3, 128, 2));
        assert_eq!(shape(1000, 1), (4, 1, 256, 1));
        assert_eq!(shape(1000, 1000), (4, 25, 256, 1), "no more blocks than can run at once");
        assert_eq!(shape(1 << 40, 3), (100, 1, 256, 1));
        assert_eq!(shape(3, 1), (1, 1, 4, 1), "no thread for a second line");
        assert_eq!(shape(1, 5), (1, 1, 1, 8));
    }

    #[test]
    fn nothing_needs_no_blocks() {
        assert!(grid(0, 7, 100).blocks.contains(&0));
        assert!(grid(7, 0, 100).blocks.contains(&0));
    }
}
