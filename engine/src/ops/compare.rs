//! Elementwise comparisons of two tensors, or of a tensor and a scalar. They have no gradient.

use crate::autograd::Operation;
use crate::backend::{self, Comparison};
use crate::{DType, Result, Shape, Tensor};

macro_rules! comparisons {
    ($($(#[$doc:meta])* $name:ident, $with_number:ident = $comparison:ident;)+) => {
        impl Tensor {
            $($(#[$doc])*
            pub fn $name(&self, other: &Self) -> Result<Self> {
                self.compared(stringify!($name), Comparison::$comparison, other)
            }

            /// Compares each element with `number`, which is first rounded to f32 if the elements are f32, bf16 or f16.
            pub fn $with_number(&self, number: f64) -> Result<Self> {
                self.compared_with(stringify!($name), Comparison::$comparison, number)
            }
            )+
        }
    };
}

comparisons! {
    /// Returns, as Bool, whether each element is less than the corresponding one of `other`. Shapes broadcast.
    lt, lt_scalar = Less;
    /// Returns, as Bool, whether each element is less than or equal to the corresponding one of `other`. Shapes
    /// broadcast.
    le, le_scalar = LessOrEqual;
    /// Returns, as Bool, whether each element is greater than the corresponding one of `other`. Shapes broadcast.
    gt, gt_scalar = Greater;
    /// Returns, as Bool, whether each element is greater than or equal to the corresponding one of `other`. Shapes
    /// broadcast.
    ge, ge_scalar = GreaterOrEqual;
    /// Returns, as Bool, whether each element equals the corresponding one of `other`. Shapes broadcast. NaN equals
    /// nothing.
    eq, eq_scalar = Equal;
    /// Returns, as Bool, whether each element differs from the corresponding one of `other`. Shapes broadcast. NaN
    /// differs from everything.
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
