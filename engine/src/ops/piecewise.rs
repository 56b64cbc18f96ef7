//! Piecewise linear functions, which save the slopes of both operands in two bits per element.

use crate::autograd::{Operation, Saved, gradient};
use crate::backend::{self, Piecewise, Side};
use crate::{DType, Error, Result, Shape, Tensor};

impl Tensor {
    /// Returns the absolute value, whose slope at 0 is 0. Saves two bits per element.
    ///
    /// # Errors
    /// Fails if the elements are not floating-point numbers, or if memory runs out.
    pub fn abs(&self) -> Result<Self> {
        self.piecewise("abs", Piecewise::Abs, None)
    }

    /// Clamps the elements to the range from `low` to `high`; NaN stays NaN. If `high` is below `low`, all other
    /// elements become `high`. The slope at the bounds is 0. Saves two bits per element. Infinite bounds are allowed.
    ///
    /// # Errors
    /// Fails if a bound is NaN, and for the reasons in [`Self::abs`].
    pub fn clamp(&self, low: f64, high: f64) -> Result<Self> {
        if low.is_nan() || high.is_nan() {
            let what = format!("invalid bounds {low} and {high}; use infinity for no bound");
            return Err(Error::Setting { op: "clamp", what });
        }
        self.piecewise("clamp", Piecewise::Clamp { low, high }, None)
    }

    /// Returns the elementwise maximum, which is NaN if either element is. Shapes broadcast. Equal elements share the
    /// gradient. Saves two bits per element.
    ///
    /// # Errors
    /// Fails if the shapes do not broadcast, if the data types differ, or if memory runs out.
    pub fn maximum(&self, other: &Self) -> Result<Self> {
        self.piecewise("maximum", Piecewise::Maximum, Some(other))
    }

    /// Returns the elementwise minimum, which is NaN if either element is. Shapes broadcast. Equal elements share the
    /// gradient. Saves two bits per element.
    ///
    /// # Errors
    /// See [`Self::maximum`].
    pub fn minimum(&self, other: &Self) -> Result<Self> {
        self.piecewise("minimum", Piecewise::Minimum, Some(other))
    }

    fn piecewise(&self, op: &'static str, function: Piecewise, other: Option<&Self>) -> Result<Self> {
        let inputs: Vec<&Self> = [self].into_iter().chain(other).collect();
        let operation = Operation::begin(op, &inputs);
        self.check_float(op)?;
        let mut shape = *self.shape();
        if let Some(other) = other {
            self.check_operand(op, other)?;
            shape = Shape::broadcast(op, self.shape(), other.shape())?;
        }
        let out = Self::empty(shape, self.dtype(), self.device())?;
        let bytes = shape.elements().div_ceil(4);
        let slopes =
            Operation::is_recorded(&inputs).then(|| Self::empty(bytes, DType::U8, self.device())).transpose()?;
        let left = self.broadcast_to(op, &shape)?;
        let right = other.map(|other| other.broadcast_to(op, &shape)).transpose()?;
        let [bits, right] = [slopes.as_ref().map(Self::view), right.as_ref().map(Self::view)];
        backend::piecewise(out.view(), bits, function, left.view(), right)?;
        let Some(slopes) = slopes else { return Ok(out) };
        let shapes: Vec<Shape> = inputs.iter().map(|input| *input.shape()).collect();
        Ok(operation.record(out, &inputs, |_| {
            let slopes = Saved::memory(&slopes);
            gradient(move |grad, inputs| {
                let slopes = slopes.take(op)?;
                if inputs.needs(0) && inputs.needs(1) {
                    let out = grad.same_shape()?;
                    backend::piecewise_backward(out.view(), Some(grad.view()), slopes.view(), Side::Left)?;
                    inputs.give(0, out.into_sum_to(&shapes[0])?)?;
                }
                let (last, side) = match &shapes[..] {
                    [_] => (0, Side::Only),
                    _ if inputs.needs(1) => (1, Side::Right),
                    _ => (0, Side::Left),
                };
                let out = grad.rewritten(Self::is_free_in_order, |out, grad| {
                    backend::piecewise_backward(out, grad, slopes.view(), side)
                })?;
                drop(slopes);
                inputs.give(last, out.into_sum_to(&shapes[last])?)
            })
        }))
    }
}
