//! The live blocks of one rank from bottom to top, in chunks that can be skipped.

use highwater_snapshots::ids::BlockId;

/// Maximum number of blocks in a chunk.
const CHUNK: usize = 64;

/// Blocks in stacking order. Blocks are added on top, in order of allocation.
#[derive(Clone, Debug, Default)]
pub(super) struct BlockStack {
    chunks: Vec<Vec<StackedBlock>>,
    /// The sum of the bytes in each chunk.
    sums: Vec<u64>,
    /// For each chunk, the index of the first event that ends one of its blocks.
    earliest_end: Vec<u32>,
    blocks: usize,
    bytes: u64,
    /// Number of bytes from the bottom that have not changed since the stack was last painted.
    unchanged_bytes: u64,
    /// The total bytes when the stack was last painted.
    painted: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct StackedBlock {
    pub(super) row: u32,
    /// The index of the event that ends the block; `u32::MAX` if the block does not end.
    pub(super) end: u32,
    pub(super) bytes: u64,
}

impl BlockStack {
    pub(super) fn push(&mut self, block: StackedBlock) {
        self.blocks += 1;
        self.bytes += block.bytes;
        match (self.chunks.last_mut(), self.sums.last_mut(), self.earliest_end.last_mut()) {
            (Some(chunk), Some(sum), Some(earliest_end)) if chunk.len() < CHUNK => {
                *sum += block.bytes;
                *earliest_end = block.end.min(*earliest_end);
                chunk.push(block);
            }
            _ => {
                self.sums.push(block.bytes);
                self.earliest_end.push(block.end);
                self.chunks.push(Vec::with_capacity(CHUNK));
                self.chunks.last_mut().into_iter().for_each(|chunk| chunk.push(block));
            }
        }
    }

    /// Removes the blocks that have ended by `moment`. Returns the number of values visited.
    pub(super) fn drop_ended(&mut self, moment: u32) -> u64 {
        let mut looked_at = self.chunks.len();
        let heads = self.chunks.iter_mut().zip(&mut self.sums).zip(&mut self.earliest_end).enumerate();
        let mut first = None;
        for (index, ((chunk, sum), earliest_end)) in heads.filter(|(_, (_, earliest_end))| **earliest_end < moment) {
            first.get_or_insert(index);
            let before = (chunk.len(), *sum);
            looked_at += chunk.len();
            (*sum, *earliest_end) = (0, u32::MAX);
            chunk.retain(|block| {
                let is_alive = block.end >= moment;
                if is_alive {
                    *sum += block.bytes;
                    *earliest_end = block.end.min(*earliest_end);
                }
                is_alive
            });
            self.blocks -= before.0 - chunk.len();
            self.bytes -= before.1 - *sum;
        }
        if let Some(first) = first {
            self.unchanged_bytes = self.unchanged_bytes.min(self.sums[..first].iter().sum());
        }
        // Sparse chunks are merged once there are four times as many as the blocks need.
        if self.chunks.len() > 8 + 4 * self.blocks / CHUNK {
            looked_at += self.blocks;
            let sparse = std::mem::take(self);
            sparse.chunks.iter().flatten().for_each(|block| self.push(*block));
            (self.unchanged_bytes, self.painted) = (sparse.unchanged_bytes, sparse.painted);
        }
        looked_at as u64
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the number of bytes from the bottom unchanged since the last call, and whether nothing has changed.
    pub(super) fn take_steady(&mut self) -> (u64, bool) {
        let unchanged_bytes = std::mem::replace(&mut self.unchanged_bytes, self.bytes);
        let painted = std::mem::replace(&mut self.painted, self.bytes);
        (unchanged_bytes, unchanged_bytes == painted && painted == self.bytes)
    }

    /// Paints the pixels of the stack. Returns the number of values visited.
    pub(super) fn paint(&self, brush: &mut ColumnPainter<'_>) -> u64 {
        if brush.is_above(self.bytes) {
            return 1;
        }
        let mut looked_at = 1;
        for (chunk, sum) in self.chunks.iter().zip(&self.sums) {
            looked_at += 1;
            if brush.is_above(*sum) {
                continue;
            }
            looked_at += chunk.len() as u64;
            chunk.iter().for_each(|block| brush.paint(block));
            if brush.is_done() {
                break;
            }
        }
        looked_at
    }
}

/// Fills a column from the bottom up.
pub(super) struct ColumnPainter<'a> {
    /// For each pixel from the bottom up, the byte offset at its centre.
    bytes_at: &'a [u64],
    pixels: &'a mut [BlockId],
    /// The next pixel to fill, counted from the bottom.
    y: usize,
    /// The offset in bytes at which the next block begins.
    start: u64,
}

impl<'a> ColumnPainter<'a> {
    /// Creates a painter for pixels from `y` on, whose centres are at `bytes_at`; earlier pixels are already painted.
    pub(super) fn new(bytes_at: &'a [u64], pixels: &'a mut [BlockId], y: usize) -> Self {
        Self { bytes_at, pixels, y, start: 0 }
    }

    /// Skips the next `bytes` bytes if they contain no pixel centre. Returns whether they were skipped.
    #[inline]
    fn is_above(&mut self, bytes: u64) -> bool {
        let end = self.start + bytes;
        let is_above = self.bytes_at.get(self.y).is_none_or(|byte| *byte >= end);
        if is_above {
            self.start = end;
        }
        is_above
    }

    #[inline]
    fn paint(&mut self, block: &StackedBlock) {
        self.start += block.bytes;
        while self.bytes_at.get(self.y).is_some_and(|byte| *byte < self.start) {
            self.pixels[self.y] = BlockId(block.row);
            self.y += 1;
        }
    }

    fn is_done(&self) -> bool {
        self.y >= self.bytes_at.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pile_holds_what_has_not_ended_however_it_was_thinned() {
        let mut pile = BlockStack::default();
        let end = |row: u32| 1000 + row * 7919 % 1000;
        let blocks = |row: u32| StackedBlock { row, end: end(row), bytes: u64::from(row % 5 + 1) };
        (0..1000).for_each(|row| pile.push(blocks(row)));
        for moment in [0, 1001, 1500, 1900, 1990, 1999, 2000] {
            pile.drop_ended(moment);
            let alive: Vec<u32> = (0..1000).filter(|row| end(*row) >= moment).collect();
            let expected: Vec<BlockId> =
                alive.iter().flat_map(|row| vec![BlockId(*row); *row as usize % 5 + 1]).collect();
            assert_eq!(pile.bytes(), expected.len() as u64);
            let bytes_at: Vec<u64> = (0..expected.len() as u64 + 1).collect();
            let mut pixels = vec![BlockId::NONE; bytes_at.len()];
            pile.paint(&mut ColumnPainter::new(&bytes_at, &mut pixels, 0));
            assert_eq!(pixels.pop(), Some(BlockId::NONE), "nothing lies above the total");
            assert_eq!(pixels, expected);
            assert!(pile.chunks.len() <= 8 + 4 * alive.len() / CHUNK);
        }
    }

    #[test]
    fn what_lies_between_two_pixels_is_passed_over() {
        let mut pile = BlockStack::default();
        (0..100_000).for_each(|row| pile.push(StackedBlock { row, end: u32::MAX, bytes: 10 }));
        let mut pixels = [BlockId::NONE; 2];
        let looked_at = pile.paint(&mut ColumnPainter::new(&[5, 777_775], &mut pixels, 0));
        assert_eq!(pixels, [BlockId(0), BlockId(77_777)]);
        assert!(looked_at < (100_000 / CHUNK + 3 * CHUNK) as u64, "{looked_at}");
    }
}
