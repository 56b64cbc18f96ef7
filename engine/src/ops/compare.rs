//! Elementwise comparisons of two tensors, or of a tensor and a scalar. They have no gradient.

use crate::autograd::Operation;
use crate::backend::{self, Comparison};
use crate::{DType, Result, Shape, Tensor};

/// Defines the comparisons with a tensor and with a number.
macro_rules! comparisons {
    ($($(#[$doc:meta])* $name:ident, $with_number:ident = $comparison:ident;)+) => {
        impl Tensor {
            $($(#[$doc])*
            pub fn $name(&self, other: &Self) -> Result<Self> {
                self.compared(stringify!($name), Comparison::$comparison, other)
            }

            /// Compares each element with `number`, which is first rounded to the type that this is computed in.
            pub fn $with_number(&self, number: f64) -> Result<Self> {
                self.compared_with(stringify!($name), Comparison::$comparison, number)
            }
            )+
        }
    };
}

comparisons! {
    /// Returns whether each element is less than `other`'s, as Bool; shapes broadcast.
    lt, lt_scalar = Less;
    /// Returns whether each element is less than or equal to `other`'s, as Bool; shapes broadcast.
    le, le_scalar = LessOrEqual;
    /// Returns whether each element is greater than `other`'s, as Bool; shapes broadcast.
    gt, gt_scalar = Greater;
    /// Returns whether each element is greater than or equal to `other`'s, as Bool; shapes broadcast.
    ge, ge_scalar = GreaterOrEqual;
    /// Returns whether each element equals `other`'s, as Bool; shapes broadcast. NaN equals nothing.
    eq, eq_scalar = Equal;
    /// Returns whether each element differs from `other`'s, as Bool; shapes broadcast.
    ne, ne_scalar = NotEqual;
}

impl Tensor {
    fn compared(&self, op: &'static str, comparison: Comparison, other: &Self) -> Result<Self> {
        let _operation = Operation::begin(op, &[]);
        self.check_operand(op, other)?;
        let shape = Shape::broadcast(op, self.shape(), other.shape())?;
        let out = Self::empty(shape, DType::Bool, self.device())?;
        let (left, right) = (self.broadcast_to(op, &shape)?, other.broadcast_to(op, &shape)?);
        backend::compare(out.view(), comparison, left.view(), right.view())?;
        Ok(out)
    }

    fn compared_with(&self, op: &'static str, comparison: Comparison, number: f64) -> Result<Self> {
        let _operation = Operation::begin(op, &[]);
        let out = Self::empty(self.shape(), DType::Bool, self.device())?;
        backend::compare_number(out.view(), comparison, self.view(), number)?;
        Ok(out)
    }
}
