//! Splits several buffers at the same positions, into parts for threads.

use super::ELEMENTS_A_TASK;
use crate::backend::code::CODE_BLOCK;

/// A buffer, or several of the same length, that can be split at an element.
pub(super) trait Split: Send + Sized {
    /// Splits into the elements before `at` and the rest.
    fn split(self, at: usize) -> (Self, Self);
}

impl<T: Send> Split for &mut [T] {
    fn split(self, at: usize) -> (Self, Self) {
        self.split_at_mut(at)
    }
}

impl<S: Split> Split for Option<S> {
    fn split(self, at: usize) -> (Self, Self) {
        self.map(|whole| whole.split(at)).unzip()
    }
}

impl<S: Split> Split for [S; 2] {
    fn split(self, at: usize) -> (Self, Self) {
        let [(a, b), (c, d)] = self.map(|whole| whole.split(at));
        ([a, c], [b, d])
    }
}

impl<A: Split, B: Split> Split for (A, B) {
    fn split(self, at: usize) -> (Self, Self) {
        let ((a, b), (c, d)) = (self.0.split(at), self.1.split(at));
        ((a, c), (b, d))
    }
}

/// A buffer with one element per [`CODE_BLOCK`] elements of the others. It is split only between blocks.
pub(super) struct ByBlock<'a>(pub(super) &'a mut [f32]);

impl Split for ByBlock<'_> {
    fn split(self, at: usize) -> (Self, Self) {
        let (first, rest) = self.0.split_at_mut(at / CODE_BLOCK);
        (Self(first), Self(rest))
    }
}

/// Calls `work(start, length, piece)` for pieces of `length` elements of `whole`, on several threads if it is large.
/// Pieces start at multiples of [`ELEMENTS_A_TASK`], itself a multiple of [`CODE_BLOCK`].
pub(super) fn in_pieces<S: Split>(length: usize, whole: S, work: &(impl Fn(usize, usize, S) + Sync)) {
    fn cut<S: Split>(start: usize, length: usize, whole: S, work: &(impl Fn(usize, usize, S) + Sync)) {
        if length <= ELEMENTS_A_TASK {
            return work(start, length, whole);
        }
        let half = length.div_ceil(ELEMENTS_A_TASK) / 2 * ELEMENTS_A_TASK;
        let (first, rest) = whole.split(half);
        rayon::join(|| cut(start, half, first, work), || cut(start + half, length - half, rest, work));
    }
    const { assert!(ELEMENTS_A_TASK.is_multiple_of(CODE_BLOCK), "no block is cut") };
    cut(0, length, whole, work);
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn pieces_cover_every_element_once_and_keep_blocks_whole() {
        for length in [0, 1, ELEMENTS_A_TASK, ELEMENTS_A_TASK + 1, 5 * ELEMENTS_A_TASK + 300] {
            let (mut numbers, mut blocks) = (vec![0_usize; length], vec![0.0; length.div_ceil(CODE_BLOCK)]);
            let seen = AtomicUsize::new(0);
            in_pieces(length, (&mut numbers[..], ByBlock(&mut blocks)), &|start, length, (numbers, blocks)| {
                assert_eq!((numbers.len(), blocks.0.len()), (length, length.div_ceil(CODE_BLOCK)));
                seen.fetch_add(length, Ordering::Relaxed);
                numbers.iter_mut().enumerate().for_each(|(i, number)| *number += start + i);
                blocks.0.iter_mut().for_each(|block| *block += 1.0);
            });
            assert_eq!(seen.into_inner(), length);
            assert!(numbers.iter().enumerate().all(|(i, &number)| number == i));
            assert!(blocks.iter().all(|&block| block == 1.0));
        }
    }
}
