//! Layouts, which map a tensor's indices to positions in its storage. Views differ only in their layout.

use crate::shape::MAX_RANK;
use crate::{Error, Result, Shape};

/// Shape, strides and offset of a tensor, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    shape: Shape,
    strides: [usize; MAX_RANK],
    offset: usize,
}

impl Layout {
    /// Returns a contiguous (row-major) layout.
    pub fn contiguous(shape: Shape) -> Self {
        let mut strides = [0; MAX_RANK];
        let mut stride: usize = 1;
        for axis in (0..shape.rank()).rev() {
            strides[axis] = stride;
            stride = stride.saturating_mul(shape[axis]);
        }
        Self { shape, strides, offset: 0 }
    }

    /// Returns the lengths of the axes, outermost first.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Returns the stride of each axis, which is 0 for a broadcast axis.
    pub fn strides(&self) -> &[usize] {
        &self.strides[..self.shape.rank()]
    }

    /// Returns the position of the first element in the storage.
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Returns the number of elements, counting broadcast elements repeatedly.
    pub fn elements(&self) -> usize {
        self.shape.elements()
    }

    /// Returns whether the elements are contiguous, at any offset.
    pub fn is_contiguous(&self) -> bool {
        let mut expected = 1;
        for axis in (0..self.shape.rank()).rev() {
            if self.shape[axis] != 1 {
                if self.strides[axis] != expected && self.elements() != 0 {
                    return false;
                }
                expected *= self.shape[axis];
            }
        }
        true
    }

    /// Returns whether all indices map to different elements, so that the view can be written. Only broadcast axes are
    /// checked.
    pub fn is_distinct(&self) -> bool {
        self.elements() == 0
            || self.shape.iter().zip(self.strides()).all(|(&length, &stride)| length == 1 || stride != 0)
    }

    /// Returns the end of the view in the storage (exclusive), or 0 if there are no elements.
    pub fn end(&self) -> usize {
        if self.elements() == 0 {
            return 0;
        }
        let furthest: usize =
            self.shape.iter().zip(self.strides()).map(|(&length, &stride)| (length - 1) * stride).sum();
        self.offset + furthest + 1
    }

    pub(crate) fn at(mut self, offset: usize) -> Self {
        self.offset = offset;
        self
    }

    /// Returns the view with its axes permuted, where axis `i` of the result is axis `order[i]` of this view.
    pub(crate) fn permute(&self, order: &[usize]) -> Self {
        let mut out = *self;
        for (to, &from) in order.iter().enumerate() {
            out.shape.lengths_mut()[to] = self.shape[from];
            out.strides[to] = self.strides[from];
        }
        out
    }

    pub(crate) fn transpose(&self, first: usize, second: usize) -> Self {
        let mut out = *self;
        out.shape.lengths_mut().swap(first, second);
        out.strides.swap(first, second);
        out
    }

    pub(crate) fn narrow(&self, op: &'static str, axis: usize, start: usize, length: usize) -> Result<Self> {
        let whole = self.shape[axis];
        let end = start.saturating_add(length);
        if end > whole {
            return Err(Error::Range { op, start, end, length: whole });
        }
        let mut out = *self;
        out.shape = self.shape.with_axis(axis, length);
        if length != 0 {
            out.offset += start * self.strides[axis];
        }
        Ok(out)
    }

    /// Returns the view of element `index` of `axis`, without that axis.
    pub(crate) fn select(&self, axis: usize, index: usize) -> Self {
        let mut out = *self;
        out.offset += index * self.strides[axis];
        out.shape = self.shape.without_axis(axis);
        out.strides.copy_within(axis + 1.., axis);
        out.strides[MAX_RANK - 1] = 0;
        out
    }

    /// Returns the view broadcast to `shape`, in which axes of length 1 are repeated without a copy.
    pub(crate) fn expand(&self, op: &'static str, shape: &Shape) -> Result<Self> {
        let wrong =
            || Error::shapes(op, &self.shape, shape, "only axes of length 1 and new leading axes can be expanded");
        let shift = shape.rank().checked_sub(self.shape.rank()).ok_or_else(wrong)?;
        let mut strides = [0; MAX_RANK];
        for axis in 0..self.shape.rank() {
            if self.shape[axis] == shape[axis + shift] {
                strides[axis + shift] = self.strides[axis];
            } else if self.shape[axis] != 1 {
                return Err(wrong());
            }
        }
        Ok(Self { shape: *shape, strides, offset: self.offset })
    }

    /// Returns the view reshaped to `shape`, which has the same number of elements, or `None` if that requires a copy.
    pub(crate) fn reshape(&self, shape: &Shape) -> Option<Self> {
        if self.elements() == 0 {
            return Some(Self { offset: self.offset, ..Self::contiguous(*shape) });
        }
        // Old axes that are contiguous with one another form runs, which new axes may split or merge; new axes must not
        // cross the boundaries of runs.
        let mut strides = [0; MAX_RANK];
        let mut new_axis = shape.rank();
        let mut run_elements = 1;
        let mut run_stride = None;
        let old: Vec<(usize, usize)> =
            self.shape.iter().copied().zip(self.strides().iter().copied()).filter(|&(length, _)| length != 1).collect();
        for (position, &(length, stride)) in old.iter().enumerate().rev() {
            let innermost = *run_stride.get_or_insert(stride);
            run_elements *= length;
            let continues = position > 0 && old[position - 1].1 == length * stride;
            if continues {
                continue;
            }
            let mut filled = 1;
            while new_axis > 0 && (filled < run_elements || shape[new_axis - 1] == 1) {
                new_axis -= 1;
                strides[new_axis] = innermost * filled;
                filled *= shape[new_axis];
            }
            if filled != run_elements {
                return None;
            }
            run_elements = 1;
            run_stride = None;
        }
        // The remaining axes have length 1, so any stride is valid.
        for stride in &mut strides[..new_axis] {
            *stride = 1;
        }
        Some(Self { shape: *shape, strides, offset: self.offset })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(shape: impl Into<Shape>) -> Layout {
        Layout::contiguous(shape.into())
    }

    #[test]
    fn a_transposed_view_reshapes_only_where_no_copy_is_needed() {
        let turned = layout([2, 3, 4]).transpose(0, 1);
        assert!(!turned.is_contiguous());
        assert_eq!(turned.reshape(&Shape::from([6, 4])), None);
        let split = turned.reshape(&Shape::from([3, 2, 2, 2])).unwrap();
        assert_eq!(split.strides(), [4, 12, 2, 1]);
        assert_eq!(turned.reshape(&Shape::from([3, 1, 2, 4, 1])).unwrap().strides()[..3], [4, 24, 12]);
    }

    #[test]
    fn repeated_axes_join_only_with_repeated_axes() {
        let repeated = layout([1, 3]).expand("test", &Shape::from([4, 5, 3])).unwrap();
        assert!(!repeated.is_distinct());
        assert_eq!(repeated.reshape(&Shape::from([20, 3])).unwrap().strides(), [0, 1]);
        assert_eq!(repeated.reshape(&Shape::from([4, 15])), None);
    }

    #[test]
    fn a_view_of_nothing_takes_any_shape_and_ends_at_the_start() {
        let nothing = layout([2, 0, 3]).transpose(0, 2);
        assert!(nothing.is_contiguous());
        assert_eq!(nothing.end(), 0);
        assert_eq!(nothing.reshape(&Shape::from([0])).unwrap().shape(), &Shape::from([0]));
    }

    #[test]
    fn a_range_past_the_end_is_refused_with_its_bounds() {
        let wrong = layout([2, 3]).narrow("narrow", 1, 2, 2).unwrap_err().to_string();
        assert!(wrong.contains("2..4") && wrong.contains("length 3"), "{wrong}");
        assert_eq!(layout([2, 3]).narrow("narrow", 1, 1, 2).unwrap().end(), 6);
        assert_eq!(layout([2, 3, 4]).select(1, 2).strides(), [12, 1]);
    }
}
