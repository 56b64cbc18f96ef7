//! Loops over operands by their innermost dimension, and the mapping of a grid's threads to them.

use highwater_kernels::gpu::launch::THREADS;
use highwater_kernels::{Arguments, Grid};

use super::launch::{Place, Queue, nest_words};
use crate::backend::nest::Nest;

/// Bytes that a thread moves at a time where it can.
const WIDE_BYTES: usize = 16;

/// Blocks that each processor is given before threads go round.
const BLOCKS_A_PROCESSOR: u64 = 16;

/// Loops as kernels take them, `struct Lines` in lines.cuh, and the grid for them.
pub(super) struct Lines {
    words: Vec<u64>,
    /// Blocks of threads along a line, and over lines.
    pub(super) grid: Grid,
}

impl Lines {
    /// Over operands in these places, of elements of so many bytes; the first is the one written.
    pub(super) fn new<const N: usize>(queue: &Queue<'_>, nest: &Nest<N>, operands: [(&Place<'_>, usize); N]) -> Self {
        let width = WIDE_BYTES / operands.iter().map(|&(_, bytes)| bytes).max().unwrap_or(WIDE_BYTES);
        let (lengths, strides) = nest.axes();
        let (&length, outer) = lengths.split_last().expect("a nest has a loop");
        let is_packed = (0..N).all(|operand| {
            let (&inner, outer) = strides[operand].split_last().expect("a nest has a loop");
            let (place, bytes) = operands[operand];
            let is_in_order = inner == 1
                && outer.iter().all(|stride| stride.is_multiple_of(width))
                && place.address().is_multiple_of((width * bytes) as u64);
            is_in_order || inner == 0 && operand > 0
        });
        let count: u64 = outer.iter().map(|&length| length as u64).product();
        let units = if is_packed { length.div_ceil(width) } else { length } as u64;
        let mut words = nest_words(nest);
        words.extend([count, u64::from(is_packed)]);
        Self { words, grid: grid(units, count, most_blocks(queue)) }
    }

    /// These arguments with the loops behind.
    pub(super) fn after(&self, arguments: Arguments) -> Arguments {
        arguments.with_words(&self.words)
    }
}

/// Lines of `length` elements of so many bytes that are contiguous from each of these addresses on, `count` of
/// them: whether they are moved in packs, and the grid. What is absent is at 0.
pub(super) fn in_order(queue: &Queue<'_>, addresses: &[u64], bytes: usize, [length, count]: [usize; 2]) -> (u32, Grid) {
    let width = WIDE_BYTES / bytes;
    let is_aligned = |address: &u64| address.is_multiple_of(WIDE_BYTES as u64);
    let is_packed = addresses.iter().all(is_aligned) && (count == 1 || length.is_multiple_of(width));
    let units = if is_packed { length.div_ceil(width) } else { length };
    (u32::from(is_packed), grid(units as u64, count as u64, most_blocks(queue)))
}

/// How many blocks are useful at once.
pub(super) fn most_blocks(queue: &Queue<'_>) -> u64 {
    u64::from(queue.gpu().processors()) * BLOCKS_A_PROCESSOR
}

/// For `lines` lines of `units` elements or packs, at most about `most` blocks. Where there is one line, all threads
/// lie along it.
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
