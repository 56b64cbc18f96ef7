//! Transposing copies, which read along columns and write along rows, one tile at a time.

use super::launch::loop_words;
use crate::backend::Nest;

/// Minimum number of rows and columns, below which a tile would be mostly empty.
const LEAST: usize = 16;

/// Matrices to transpose as a kernel argument, `struct Transposed` in fill.cu.
pub(super) struct Transposed {
    pub(super) words: Vec<u64>,
    pub(super) tiles: usize,
}

impl Transposed {
    /// Returns the matrices if the copy `nest`, of elements of `bytes` bytes, is a transposition.
    pub(super) fn of(nest: &Nest<2>, bytes: usize) -> Option<Self> {
        let (lengths, [written, read]) = nest.axes();
        let inner = lengths.len() - 1;
        let rows = (0..inner).find(|&axis| read[axis] == 1)?;
        let is_turned = written[inner] == 1 && read[inner] > 1 && lengths[rows].min(lengths[inner]) >= LEAST;
        if !is_turned {
            return None;
        }
        let others = |numbers: &[usize]| -> Vec<usize> {
            numbers[..inner].iter().enumerate().filter(|&(axis, _)| axis != rows).map(|(_, &number)| number).collect()
        };
        let (count, matrices) = (others(lengths), [others(written), others(read)]);
        let matrix_count: usize = count.iter().product();
        let sizes = [lengths[rows], lengths[inner], written[rows], read[inner], matrix_count];
        let mut words: Vec<u64> = sizes.iter().map(|&size| size as u64).collect();
        words.extend(loop_words(&count, matrices.each_ref().map(Vec::as_slice)));
        let side = if bytes < 4 { 64 } else { 32 };
        let tiles = lengths[rows].div_ceil(side) * lengths[inner].div_ceil(side) * matrix_count;
        Some(Self { words, tiles })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::Layout;
    use crate::shape::Shape;

    #[test]
    fn only_copies_across_long_rows_and_columns_are_turned() {
        let order = |shape: &[usize]| Layout::contiguous(Shape::from_slice(shape).unwrap());
        let transposed = |out: &Layout, input: &Layout| {
            Transposed::of(&Nest::new([out, input]), 4).map(|transposed| transposed.tiles)
        };
        let (out, input) = (order(&[3, 40, 70]), order(&[3, 70, 40]).transpose(1, 2));
        assert_eq!(transposed(&out, &input), Some(3 * 2 * 3));
        assert_eq!(transposed(&out, &out), None);
        assert_eq!(transposed(&order(&[40, 3, 70]), &order(&[70, 3, 40]).transpose(0, 2)), Some(3 * 2 * 3));
        assert_eq!(transposed(&order(&[3, 40, 8]), &order(&[3, 8, 40]).transpose(1, 2)), None);
        assert_eq!(transposed(&order(&[40, 3, 70]), &order(&[3, 40, 70]).transpose(0, 1)), None, "rows stay rows");
    }
}
