//! Max and average pooling.

use crate::autograd::{Operation, Saved, gradient};
use crate::backend::{self, Window};
use crate::{DType, Error, Result, Shape, Tensor};

/// The options of pooling, as in PyTorch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolOptions {
    /// Height and width of the window.
    pub kernel: [usize; 2],
    /// Vertical and horizontal stride.
    pub stride: [usize; 2],
    /// Padding above and below, and left and right, at most half the kernel. [`Tensor::max_pool2d`] ignores it.
    /// [`Tensor::avg_pool2d`] optionally counts it as zeros.
    pub padding: [usize; 2],
    /// Whether a window that extends past the end of the padded input counts, if it begins before the padding at the
    /// end.
    pub ceil: bool,
}

impl PoolOptions {
    /// Returns options for square windows without overlap, where incomplete windows do not count.
    pub fn square(side: usize) -> Self {
        Self { kernel: [side; 2], stride: [side; 2], padding: [0; 2], ceil: false }
    }

    fn window(&self, op: &'static str, input: &Tensor) -> Result<Window> {
        input.check_float(op)?;
        let &[_, _, height, width] = input.shape().lengths() else {
            return Err(Error::shape(op, input.shape(), "expected [batch, channels, height, width]"));
        };
        let Self { kernel, stride, padding, ceil } = *self;
        if kernel.contains(&0) || stride.contains(&0) {
            let what = format!("kernel {kernel:?} and stride {stride:?} must be at least 1");
            return Err(Error::Setting { op, what });
        }
        if (0..2).any(|axis| padding[axis] > kernel[axis] / 2) {
            let what = format!("padding {padding:?} must be at most half the kernel {kernel:?}");
            return Err(Error::Setting { op, what });
        }
        let places = |axis: usize, length: usize| {
            let extra = if ceil { stride[axis] - 1 } else { 0 };
            let padded = length.saturating_add(2 * padding[axis]).saturating_add(extra);
            let count = padded.checked_sub(kernel[axis])? / stride[axis] + 1;
            // The last window must begin within the input or the padding before it.
            let begins_behind = ceil && (count - 1) * stride[axis] >= length + padding[axis];
            (length > 0).then_some(count - usize::from(begins_behind))
        };
        let (Some(down), Some(right)) = (places(0, height), places(1, width)) else {
            return Err(Error::shape(op, input.shape(), "the window must fit into the padded input"));
        };
        Ok(Window { kernel, stride, padding, dilation: [1, 1], places: [down, right], first: 0 })
    }
}

fn result_shape(input: &Tensor, window: &Window) -> Shape {
    Shape::from([input.shape()[0], input.shape()[1], window.places[0], window.places[1]])
}

impl Tensor {
    /// Returns the maximum of each window of this `[batch, channels, height, width]`. Saves only the position of each
    /// maximum in its window, in one byte per window of up to 256 elements, otherwise in eight.
    ///
    /// # Errors
    /// Fails if the tensor does not have four axes of floating-point numbers, if the options are invalid, if no window
    /// fits, or if memory runs out.
    pub fn max_pool2d(&self, options: PoolOptions) -> Result<Self> {
        let op = "max_pool2d";
        let operation = Operation::begin(op, &[self]);
        let window = options.window(op, self)?;
        let shape = result_shape(self, &window);
        let out = Self::empty(shape, self.dtype(), self.device())?;
        if !Operation::is_recorded(&[self]) {
            backend::max_pool(out.view(), None, self.view(), window)?;
            return Ok(out);
        }
        let dtype = if window.kernel[0] * window.kernel[1] <= 256 { DType::U8 } else { DType::I64 };
        let places = Self::empty(shape, dtype, self.device())?;
        backend::max_pool(out.view(), Some(places.view()), self.view(), window)?;
        Ok(operation.record(out, &[self], |_| {
            let places = Saved::memory(&places);
            gradient(move |grad, inputs| {
                let sum = inputs.take_sum_or_zeros(0, &grad)?;
                let places = places.take(op)?;
                backend::max_pool_backward(sum.view(), grad.view(), places.view(), window)?;
                drop((grad, places));
                inputs.give(0, sum)
            })
        }))
    }

    /// Returns the mean of each window of this `[batch, channels, height, width]`. Zeros in the padding count if
    /// `counts_padding`. Saves nothing.
    ///
    /// # Errors
    /// See [`Self::max_pool2d`].
    pub fn avg_pool2d(&self, options: PoolOptions, counts_padding: bool) -> Result<Self> {
        let op = "avg_pool2d";
        let operation = Operation::begin(op, &[self]);
        let window = options.window(op, self)?;
        let out = Self::empty(result_shape(self, &window), self.dtype(), self.device())?;
        backend::avg_pool(out.view(), self.view(), window, counts_padding)?;
        Ok(operation.record(out, &[self], |_| {
            gradient(move |grad, inputs| {
                let sum = inputs.take_sum_or_zeros(0, &grad)?;
                backend::avg_pool_backward(sum.view(), grad.view(), window, counts_padding)?;
                drop(grad);
                inputs.give(0, sum)
            })
        }))
    }
}
