//! Loop nests over several layouts of the same shape, with as few and as long inner loops as their strides allow.

use crate::Layout;
use crate::shape::MAX_RANK;

/// A loop nest over `N` operands of the same shape. The strides of the first operand, the output, determine the order:
/// the innermost loop has the smallest.
#[derive(Clone, Debug)]
pub(in crate::backend) struct Nest<const N: usize> {
    rank: usize,
    lengths: [usize; MAX_RANK],
    strides: [[usize; MAX_RANK]; N],
    offsets: [usize; N],
    elements: usize,
}

impl<const N: usize> Nest<N> {
    pub(in crate::backend) fn new(layouts: [&Layout; N]) -> Self {
        let shape = layouts[0].shape();
        debug_assert!(layouts.iter().all(|layout| layout.shape() == shape), "the operands differ in shape");
        let mut axes: Vec<usize> = (0..shape.rank()).filter(|&axis| shape[axis] != 1).collect();
        axes.sort_by_key(|&axis| std::cmp::Reverse(layouts[0].strides()[axis]));
        let mut nest = Self {
            rank: 0,
            lengths: [1; MAX_RANK],
            strides: [[0; MAX_RANK]; N],
            offsets: layouts.map(Layout::offset),
            elements: shape.elements(),
        };
        for axis in axes {
            let (length, strides) = (shape[axis], layouts.map(|layout| layout.strides()[axis]));
            let joins = nest.rank > 0 && (0..N).all(|n| nest.strides[n][nest.rank - 1] == length * strides[n]);
            let place = if joins { nest.rank - 1 } else { nest.rank };
            nest.lengths[place] = if joins { nest.lengths[place] * length } else { length };
            for (operand, stride) in nest.strides.iter_mut().zip(strides) {
                operand[place] = stride;
            }
            nest.rank = place + 1;
        }
        nest.rank = nest.rank.max(1);
        nest
    }

    pub(in crate::backend) fn elements(&self) -> usize {
        self.elements
    }

    pub(in crate::backend) fn inner_strides(&self) -> [usize; N] {
        std::array::from_fn(|n| self.strides[n][self.rank - 1])
    }

    /// Returns the offset of an element of the first operand, given the element's index in loop order.
    pub(in crate::backend) fn first_offset(&self, element: usize) -> usize {
        let mut rest = element;
        let mut offset = self.offsets[0];
        for axis in (0..self.rank).rev() {
            offset += rest % self.lengths[axis] * self.strides[0][axis];
            rest /= self.lengths[axis];
        }
        offset
    }

    /// Returns the loops' lengths and each operand's strides, from the outermost to the innermost loop.
    pub(in crate::backend) fn axes(&self) -> (&[usize], [&[usize]; N]) {
        (&self.lengths[..self.rank], std::array::from_fn(|n| &self.strides[n][..self.rank]))
    }

    /// Returns the nest without its innermost loop, and that loop's length and stride for each operand.
    pub(in crate::backend) fn split_innermost(&self) -> (Self, usize, [usize; N]) {
        let inner = self.rank - 1;
        let (length, strides) = (self.lengths[inner], self.inner_strides());
        let mut outer = Self { rank: inner.max(1), elements: self.lengths[..inner].iter().product(), ..self.clone() };
        if inner == 0 {
            outer.lengths[0] = 1;
        }
        (outer, length, strides)
    }

    pub(in crate::backend) fn offsets(&self) -> [usize; N] {
        self.offsets
    }

    /// Returns whether the output's elements are contiguous in loop order.
    pub(in crate::backend) fn writes_contiguously(&self) -> bool {
        self.rank == 1 && (self.strides[0][0] == 1 || self.lengths[0] == 1) || {
            let mut expected = 1;
            (0..self.rank).rev().all(|axis| {
                let fits = self.strides[0][axis] == expected;
                expected *= self.lengths[axis];
                fits
            })
        }
    }

    /// Returns the number of iterations of the outermost loop and their stride in the output. Returns `None` if the
    /// nest is empty or has only one loop, or if iterations interleave in the output.
    pub(in crate::backend) fn parts(&self) -> Option<[usize; 2]> {
        if self.elements == 0 {
            return None;
        }
        let distance = self.strides[0][0];
        let reach: usize = (1..self.rank).map(|axis| (self.lengths[axis] - 1) * self.strides[0][axis]).sum();
        let apart = self.rank > 1 && reach < distance;
        apart.then_some([self.lengths[0], distance])
    }

    /// Calls `row(offsets, length)` for the innermost loops that cover elements `start` to `end`, in loop order.
    pub(in crate::backend) fn rows(&self, start: usize, end: usize, mut row: impl FnMut([usize; N], usize)) {
        if start >= end {
            return;
        }
        let inner = self.rank - 1;
        let mut position = [0; MAX_RANK];
        let mut offsets = self.offsets;
        let mut rest = start;
        for axis in (0..self.rank).rev() {
            position[axis] = rest % self.lengths[axis];
            rest /= self.lengths[axis];
            for (offset, strides) in offsets.iter_mut().zip(&self.strides) {
                *offset += position[axis] * strides[axis];
            }
        }
        let mut done = start;
        loop {
            let length = (self.lengths[inner] - position[inner]).min(end - done);
            row(offsets, length);
            done += length;
            if done >= end {
                return;
            }
            for (offset, strides) in offsets.iter_mut().zip(&self.strides) {
                *offset -= position[inner] * strides[inner];
            }
            position[inner] = 0;
            for axis in (0..inner).rev() {
                position[axis] += 1;
                let whole = position[axis] == self.lengths[axis];
                for (offset, strides) in offsets.iter_mut().zip(&self.strides) {
                    *offset = *offset + strides[axis] - if whole { self.lengths[axis] * strides[axis] } else { 0 };
                }
                if !whole {
                    break;
                }
                position[axis] = 0;
            }
        }
    }

    pub(in crate::backend) fn each(&self, mut element: impl FnMut([usize; N])) {
        let strides = self.inner_strides();
        self.rows(0, self.elements, |offsets, length| {
            for i in 0..length {
                element(std::array::from_fn(|n| offsets[n] + i * strides[n]));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::Shape;

    #[test]
    fn contiguous_operands_become_one_loop() {
        let layout = Layout::contiguous(Shape::from([2, 3, 4]));
        let nest = Nest::new([&layout, &layout]);
        assert_eq!((nest.rank, nest.inner_strides()), (1, [1, 1]));
        assert!(nest.writes_contiguously());
    }

    #[test]
    fn a_transposed_output_is_walked_in_its_own_order() {
        let out = Layout::contiguous(Shape::from([2, 3])).transpose(0, 1);
        let input = Layout::contiguous(Shape::from([3, 2]));
        let nest = Nest::new([&out, &input]);
        assert!(nest.writes_contiguously());
        let mut seen = Vec::new();
        nest.rows(0, 6, |offsets, length| seen.push((offsets, length)));
        assert_eq!(seen, [([0, 0], 3), ([3, 1], 3)]);
    }

    #[test]
    fn every_start_finds_the_same_places() {
        let layout = Layout::contiguous(Shape::from([3, 4, 5])).transpose(0, 1);
        let nest = Nest::new([&Layout::contiguous(Shape::from([4, 3, 5])), &layout]);
        let places = |start| {
            let mut places = Vec::new();
            nest.rows(start, 60, |[to, from], length| places.extend((0..length).map(|i| (to + i, from + i))));
            places
        };
        let all = places(0);
        assert_eq!(all.iter().map(|&(to, _)| to).collect::<Vec<_>>(), (0..60).collect::<Vec<_>>());
        assert!(all.contains(&(15, 5)) && all.contains(&(5, 20)));
        for start in 0..60 {
            assert_eq!(places(start), all[start..]);
        }
    }

    #[test]
    fn the_innermost_loop_can_be_taken_off() {
        let wide = Layout::contiguous(Shape::from([4, 6]));
        let (outer, length, strides) = Nest::new([&wide.narrow("test", 1, 2, 3).unwrap()]).split_innermost();
        assert_eq!((outer.elements(), outer.axes(), length, strides), (4, (&[4][..], [&[6][..]]), 3, [1]));
        let (outer, length, strides) = Nest::new([&wide]).split_innermost();
        assert_eq!((outer.elements(), outer.axes().0, length, strides), (1, &[1][..], 24, [1]));
    }

    #[test]
    fn parts_of_a_narrowed_output_lie_apart() {
        let wide = Layout::contiguous(Shape::from([4, 6]));
        let narrow = wide.narrow("test", 1, 2, 3).unwrap();
        assert_eq!(Nest::new([&narrow]).parts(), Some([4, 6]));
        assert_eq!(Nest::new([&wide]).parts(), None);
    }

    #[test]
    fn any_part_of_the_elements_can_be_walked() {
        let layout = Layout::contiguous(Shape::from([2, 3])).expand("test", &Shape::from([2, 2, 3])).unwrap();
        let out = Layout::contiguous(Shape::from([2, 2, 3]));
        let nest = Nest::new([&out, &layout]);
        let mut seen = Vec::new();
        nest.rows(4, 8, |offsets, length| seen.push((offsets, length)));
        assert_eq!(seen, [([4, 4], 2), ([6, 0], 2)]);
    }
}
