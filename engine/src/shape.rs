//! Tensor shapes, which are the lengths of all axes, and broadcasting.

use std::fmt;
use std::ops::Deref;

use crate::{Error, Result};

/// Maximum number of axes of a tensor.
pub const MAX_RANK: usize = 8;

/// Lengths of a tensor's axes, outermost first. They are stored inline, so that copies need no allocation.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    rank: u8,
    // Entries past the rank are 0, so that the derived `PartialEq` is correct.
    lengths: [usize; MAX_RANK],
}

impl Shape {
    /// Shape of a scalar.
    pub const SCALAR: Self = Self { rank: 0, lengths: [0; MAX_RANK] };

    /// Creates a shape with these axis lengths.
    ///
    /// # Errors
    /// Fails if there are more than [`MAX_RANK`] axes.
    pub fn from_slice(lengths: &[usize]) -> Result<Self> {
        if lengths.len() > MAX_RANK {
            return Err(Error::Rank { op: "shape", rank: lengths.len() });
        }
        Ok(Self::filled(lengths))
    }

    pub(crate) fn filled(lengths: &[usize]) -> Self {
        let mut shape = Self { rank: lengths.len() as u8, lengths: [0; MAX_RANK] };
        shape.lengths[..lengths.len()].copy_from_slice(lengths);
        shape
    }

    /// Returns the number of axes.
    pub fn rank(&self) -> usize {
        usize::from(self.rank)
    }

    /// Returns the lengths of the axes.
    pub fn lengths(&self) -> &[usize] {
        &self.lengths[..self.rank()]
    }

    pub(crate) fn lengths_mut(&mut self) -> &mut [usize] {
        let rank = self.rank();
        &mut self.lengths[..rank]
    }

    /// Returns the number of elements, saturating at `usize::MAX`.
    pub fn elements(&self) -> usize {
        if self.lengths().contains(&0) {
            0
        } else {
            self.lengths().iter().fold(1, |product: usize, &length| product.saturating_mul(length))
        }
    }

    /// Resolves an axis index. Negative indices count from the end, where -1 is the last axis.
    ///
    /// # Errors
    /// Fails if the axis is out of range.
    pub fn axis(&self, op: &'static str, axis: isize) -> Result<usize> {
        let rank = self.rank();
        let from_start = if axis < 0 { axis + rank as isize } else { axis };
        if (0..rank as isize).contains(&from_start) {
            Ok(from_start as usize)
        } else {
            Err(Error::Axis { op, axis, rank })
        }
    }

    pub(crate) fn with_axis(mut self, axis: usize, length: usize) -> Self {
        self.lengths_mut()[axis] = length;
        self
    }

    pub(crate) fn without_axis(&self, axis: usize) -> Self {
        let mut shape = *self;
        shape.lengths.copy_within(axis + 1.., axis);
        shape.lengths[MAX_RANK - 1] = 0;
        shape.rank -= 1;
        shape
    }

    /// Appends an axis. Fails if the shape already has [`MAX_RANK`] axes.
    pub(crate) fn with_last(mut self, op: &'static str, length: usize) -> Result<Self> {
        if self.rank() == MAX_RANK {
            return Err(Error::Rank { op, rank: MAX_RANK + 1 });
        }
        self.rank += 1;
        let last = self.rank() - 1;
        self.lengths[last] = length;
        Ok(self)
    }

    /// Returns the shape to which both shapes broadcast. Axes are aligned at the end, and their lengths are equal or
    /// one of them is 1 (NumPy's rule).
    ///
    /// # Errors
    /// Fails if the shapes cannot be broadcast.
    pub fn broadcast(op: &'static str, left: &Self, right: &Self) -> Result<Self> {
        let (long, short) = if left.rank >= right.rank { (left, right) } else { (right, left) };
        let mut out = *long;
        let shift = long.rank() - short.rank();
        for (axis, &length) in short.lengths().iter().enumerate() {
            let other = &mut out.lengths[axis + shift];
            if *other == 1 {
                *other = length;
            } else if length != 1 && length != *other {
                return Err(Error::shapes(op, left, right, "trailing axes must be equal or 1 to broadcast"));
            }
        }
        Ok(out)
    }
}

impl Deref for Shape {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        self.lengths()
    }
}

impl<const N: usize> From<[usize; N]> for Shape {
    fn from(lengths: [usize; N]) -> Self {
        const { assert!(N <= MAX_RANK, "a tensor has more than 8 axes") };
        Self::filled(&lengths)
    }
}

impl<const N: usize> From<&[usize; N]> for Shape {
    fn from(lengths: &[usize; N]) -> Self {
        Self::from(*lengths)
    }
}

impl From<usize> for Shape {
    fn from(length: usize) -> Self {
        Self::from([length])
    }
}

impl From<()> for Shape {
    fn from((): ()) -> Self {
        Self::SCALAR
    }
}

impl From<&Self> for Shape {
    fn from(shape: &Self) -> Self {
        *shape
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (axis, length) in self.lengths().iter().enumerate() {
            if axis > 0 {
                f.write_str(", ")?;
            }
            write!(f, "{length}")?;
        }
        f.write_str("]")
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_broadcast_from_the_end_and_say_when_they_cannot() {
        let both = Shape::broadcast("add", &Shape::from([3, 1, 4]), &Shape::from([5, 1])).unwrap();
        assert_eq!(both, Shape::from([3, 5, 4]));
        assert_eq!(Shape::broadcast("add", &Shape::SCALAR, &Shape::from([0])).unwrap(), Shape::from([0]));
        let wrong = Shape::broadcast("add", &Shape::from([2, 3]), &Shape::from([4])).unwrap_err().to_string();
        assert!(wrong.contains("[2, 3]") && wrong.contains("[4]"), "{wrong}");
    }

    #[test]
    fn removing_an_axis_leaves_an_equal_shape_to_one_never_had() {
        assert_eq!(Shape::from([2, 3, 4]).without_axis(1), Shape::from([2, 4]));
        assert_eq!(Shape::from([2, 3]).with_last("t", 4).unwrap(), Shape::from([2, 3, 4]));
        assert!(Shape::from([1; 8]).with_last("t", 4).is_err());
    }

    #[test]
    fn a_count_past_the_largest_number_stays_the_largest_number() {
        assert_eq!(Shape::from([usize::MAX, 2]).elements(), usize::MAX);
        assert_eq!(Shape::from([usize::MAX, 2, 0]).elements(), 0);
        assert_eq!(Shape::SCALAR.elements(), 1);
    }
}
