//! Reads tensors of shape `[batch, heads, positions, width]` by tiles, and writes them by rows from several threads.
#![expect(unsafe_code, reason = "heads lie between one another, so that no slices could be given to threads")]

use std::marker::PhantomData;
use std::ops::Range;

use super::matmul::Matrix;
use super::number::Float;
use super::rows;
use crate::backend::View;
use crate::error::Result;
use crate::layout::Layout;
use crate::storage::Reading;

/// Returns lengths and strides of `[batch, heads, positions, width]`; the width is 1 if the layout lacks that axis.
fn axes(layout: &Layout) -> ([usize; 4], [usize; 3]) {
    let (shape, strides) = (layout.shape(), layout.strides());
    let width = shape.get(3).copied().unwrap_or(1);
    assert!(width <= 1 || strides.get(3).is_none_or(|&stride| stride == 1), "numbers of a row lie one after another");
    ([shape[0], shape[1], shape[2], width], [strides[0], strides[1], strides[2]])
}

/// A tensor to read.
pub(super) struct Strips<'a, T> {
    memory: Reading<'a, T>,
    offset: usize,
    lengths: [usize; 4],
    strides: [usize; 3],
}

impl<'a, T: Float> Strips<'a, T> {
    /// Borrows the tensor. Its rows must be contiguous.
    pub(super) fn read(view: View<'a>) -> Result<Self> {
        let (lengths, strides) = axes(view.layout);
        Ok(Self { memory: view.storage.read("attention")?, offset: view.layout.offset(), lengths, strides })
    }

    /// Returns the batch size.
    pub(super) fn batches(&self) -> usize {
        self.lengths[0]
    }

    /// Returns the number of heads.
    pub(super) fn heads(&self) -> usize {
        self.lengths[1]
    }

    /// Returns the number of positions.
    pub(super) fn places(&self) -> usize {
        self.lengths[2]
    }

    /// Returns the row length.
    pub(super) fn width(&self) -> usize {
        self.lengths[3]
    }

    /// Returns the row of `[batch, head, position]`.
    pub(super) fn row(&self, place: [usize; 3]) -> &[T] {
        let first: usize = place.iter().zip(self.strides).map(|(place, stride)| place * stride).sum();
        &self.memory[self.offset + first..][..self.lengths[3]]
    }

    /// Returns the rows of a range of positions: a view of the memory, or widened into `scratch`.
    pub(super) fn tile<'b>(
        &'b self,
        [batch, head]: [usize; 2],
        places: &Range<usize>,
        scratch: &'b mut Vec<T::Real>,
    ) -> Matrix<'b, T::Real> {
        let width = self.lengths[3];
        if let Some(numbers) = T::as_real(&self.memory) {
            let first = self.offset + batch * self.strides[0] + head * self.strides[1] + places.start * self.strides[2];
            return Matrix { numbers: &numbers[first.min(numbers.len())..], strides: [self.strides[2], 1] };
        }
        scratch.resize(places.len() * width, super::number::Real::ZERO);
        for (place, row) in places.clone().zip(scratch.chunks_mut(width.max(1))) {
            rows::load(row, self.row([batch, head, place]));
        }
        Matrix { numbers: scratch, strides: [width, 1] }
    }
}

/// A tensor to write.
pub(super) struct StripsMut<'a, T> {
    memory: *mut T,
    offset: usize,
    lengths: [usize; 4],
    strides: [usize; 3],
    borrow: PhantomData<&'a mut [T]>,
}

// SAFETY: the type acts as a mutable borrow of a slice, whose rows are accessed only through an unsafe function.
unsafe impl<T: Send> Send for StripsMut<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for StripsMut<'_, T> {}

impl<'a, T> StripsMut<'a, T> {
    /// Shares one memory between tensors, such as the three gradients in one buffer.
    ///
    /// # Panics
    /// If elements overlap, or the memory order is not batch, position, head, width.
    pub(super) fn share<const N: usize>(memory: &'a mut [T], layouts: [&Layout; N]) -> [Self; N] {
        let mut windows: Vec<(usize, usize)> = Vec::with_capacity(N);
        let periods = layouts.map(|layout| {
            let (lengths, strides) = axes(layout);
            let group = lengths[1].saturating_sub(1) * strides[1] + lengths[3];
            windows.push((layout.offset(), layout.offset() + group));
            let apart = |axis: usize, reach: usize| lengths[axis] <= 1 || strides[axis] >= reach;
            let all_places = lengths[2].saturating_sub(1) * strides[2] + group;
            let in_order = apart(1, lengths[3]) && apart(2, group) && apart(0, all_places);
            assert!(in_order && layout.end() <= memory.len(), "memory is in the order batch, place, head, width");
            // Windows of heads repeat at multiples of this.
            match (lengths[2] > 1, lengths[0] > 1) {
                (true, false) => strides[2],
                (true, true) if strides[0].is_multiple_of(strides[2]) => strides[2],
                (false, true) => strides[0],
                (false, false) => usize::MAX,
                _ => 0,
            }
        });
        windows.sort_unstable();
        let whole = windows.last().map_or(0, |last| last.1) - windows.first().map_or(0, |first| first.0);
        let distinct = windows.windows(2).all(|pair| pair[0].1 <= pair[1].0)
            && periods.iter().all(|&period| period == periods[0] && period >= whole);
        assert!(N <= 1 || distinct, "tensors in one memory do not overlap");
        let memory = memory.as_mut_ptr();
        layouts.map(|layout| {
            let (lengths, strides) = axes(layout);
            Self { memory, offset: layout.offset(), lengths, strides, borrow: PhantomData }
        })
    }

    /// Returns the row of `[batch, head, position]`. Panics if it is out of range.
    ///
    /// # Safety
    ///
    /// No other reference to this row may exist at the same time.
    #[expect(
        clippy::mut_from_ref,
        reason = "rows are given out one by one, and the caller sees to it that each is once"
    )]
    pub(super) unsafe fn row(&self, place: [usize; 3]) -> &mut [T] {
        let exists = place.iter().zip(self.lengths).all(|(&place, length)| place < length);
        assert!(exists, "a row that the tensor has");
        let first: usize = place.iter().zip(self.strides).map(|(place, stride)| place * stride).sum();
        // SAFETY: the row ends within the memory, and rows do not overlap, as `share` checked; the memory is borrowed
        // for as long as `self` exists.
        unsafe { std::slice::from_raw_parts_mut(self.memory.wrapping_add(self.offset + first), self.lengths[3]) }
    }
}
