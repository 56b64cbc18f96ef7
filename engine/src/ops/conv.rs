//! Two-dimensional convolution as matrix products with unfolded windows, a bounded number of them at a time.

use super::columns::{Columns, give_bias, take_images_or_zeros};
use crate::autograd::{Gradient, InputGradients, Operation, Saved};
use crate::backend::{self, Window};
use crate::error::{Error, Result};
use crate::shape::Shape;
use crate::tensor::Tensor;

/// The options of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvOptions {
    /// Vertical and horizontal stride.
    pub stride: [usize; 2],
    /// Zeros around the input: above and below, left and right.
    pub padding: [usize; 2],
}

impl Default for ConvOptions {
    /// Stride 1, without padding.
    fn default() -> Self {
        Self { stride: [1, 1], padding: [0, 0] }
    }
}

impl Tensor {
    /// Returns the cross-correlation of this `[batch, channels, height, width]` with `weight` `[outputs, channels,
    /// kernel height, kernel width]`, plus `bias` `[outputs]`. Windows are unfolded into columns, in a workspace of at
    /// most 32 MiB and of at most a quarter of the images or the result or an eighth of the weight, but at least one
    /// window; 1×1 kernels need none. Saves the input if the weight requires a gradient, and the weight if the input
    /// does.
    ///
    /// # Errors
    ///
    /// Fails if the shapes or data types do not match, or if memory runs out.
    pub fn conv2d(&self, weight: &Self, bias: Option<&Self>, options: ConvOptions) -> Result<Self> {
        let op = "conv2d";
        let operation = Operation::begin(op, &[self, weight]);
        let window = check(self, weight, bias, options)?;
        let input = self.detach();
        let kernel = weight.in_order()?;
        let shape = Shape::from([self.shape()[0], weight.shape()[0], window.places[0], window.places[1]]);
        let out = Self::empty(shape, self.dtype(), self.device())?;
        if bias.is_some() {
            out.fill_channels(op, bias)?;
        }
        let keep = if bias.is_some() { 1.0 } else { 0.0 };
        let matrix = kernel.reshaped(&matrix_of(weight.shape()))?;
        let columns = Columns::new(op, [&input, &out], weight.shape(), window)?;
        for image in 0..shape[0] {
            for part in columns.parts() {
                let windows = columns.read(&input.image(image), part)?;
                let places = part.of(op, &out.image(image))?;
                backend::matmul(places.view(), matrix.view(), windows.view(), 1.0, keep)?;
            }
        }
        let mut inputs = vec![self, weight];
        inputs.extend(bias);
        Ok(operation.record(out, &inputs, |needs| Conv {
            input: needs[1].then(|| Saved::new(&input)),
            weight: needs[0].then(|| Saved::new(&kernel)),
            weight_shape: *weight.shape(),
            window,
        }))
    }
}

/// Returns the shape of a weight as the matrix that multiplies columns.
fn matrix_of(weight: &Shape) -> Shape {
    Shape::from([weight[0], weight[1] * weight[2] * weight[3]])
}

fn check(input: &Tensor, weight: &Tensor, bias: Option<&Tensor>, options: ConvOptions) -> Result<Window> {
    let op = "conv2d";
    input.check_operand(op, weight)?;
    input.check_float(op)?;
    let (x, w) = (input.shape(), weight.shape());
    if x.rank() != 4 || w.rank() != 4 || x[1] != w[1] {
        let need = "they must be [batch, channels, height, width] and [outputs, channels, height, width]";
        return Err(Error::shapes(op, x, w, need));
    }
    if let Some(bias) = bias {
        input.check_operand(op, bias)?;
        if **bias.shape() != [w[0]] {
            return Err(Error::shapes(op, w, bias.shape(), "expected a bias of shape [outputs]"));
        }
    }
    if options.stride.contains(&0) || w[2] == 0 || w[3] == 0 {
        let what = format!("stride {:?} and kernel {w} must be at least 1", options.stride);
        return Err(Error::Setting { op, what });
    }
    let padded = [0, 1].map(|axis| x[axis + 2].saturating_add(options.padding[axis].saturating_mul(2)));
    if padded[0] < w[2] || padded[1] < w[3] {
        return Err(Error::shapes(op, x, w, "the kernel must fit into the padded input"));
    }
    let places = [0, 1].map(|axis| (padded[axis] - w[axis + 2]) / options.stride[axis] + 1);
    Ok(Window { kernel: [w[2], w[3]], stride: options.stride, padding: options.padding, places, first: 0 })
}

/// With C the columns and W the weight as a matrix: dW = Σ g·Cᵀ, and dx is Wᵀ·g added to the pixels that the columns
/// came from.
struct Conv {
    input: Option<Saved>,
    weight: Option<Saved>,
    weight_shape: Shape,
    window: Window,
}

impl Gradient for Conv {
    fn backward(self: Box<Self>, grad: Tensor, inputs: &mut InputGradients<'_>) -> Result<()> {
        let op = "conv2d";
        let Self { input, weight, weight_shape, window } = *self;
        let grad = grad.into_order()?;
        let (images, matrix) = (grad.shape()[0], matrix_of(&weight_shape));
        give_bias(op, &grad, inputs)?;
        // The weight's gradient is computed first: then the input's gradient can reuse the input's memory.
        let mut served = None;
        if let Some(input) = input {
            let input = input.take(op)?;
            let sum = inputs.take_sum_or_zeros(1, &grad)?;
            let by_rows = sum.reshaped(&matrix)?;
            let columns = Columns::new(op, [&input, &grad], &weight_shape, window)?;
            for image in 0..images {
                for part in columns.parts() {
                    let windows = columns.read(&input.image(image), part)?.transposed();
                    let grad = part.of(op, &grad.image(image))?;
                    backend::matmul(by_rows.view(), grad.view(), windows.view(), 1.0, 1.0)?;
                }
            }
            drop(by_rows);
            inputs.give(1, sum)?;
            served = Some(input);
        }
        let Some(weight) = weight else { return Ok(()) };
        let transposed = weight.take(op)?.reshaped(&matrix)?.transposed();
        let sum = take_images_or_zeros(served, &grad, inputs)?;
        let columns = Columns::new(op, [&sum, &grad], &weight_shape, window)?;
        for image in 0..images {
            for part in columns.parts() {
                columns.add_product(&sum.image(image), &transposed, &part.of(op, &grad.image(image))?, part)?;
            }
        }
        drop((grad, columns));
        inputs.give(0, sum)
    }
}
