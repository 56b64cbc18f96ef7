//! Transposed convolution, for upsampling.

use super::columns::{Columns, give_bias};
use crate::autograd::{Gradient, InputGradients, Operation, Saved};
use crate::backend::{self, Window};
use crate::error::{Error, Result};
use crate::shape::Shape;
use crate::tensor::Tensor;

const OP: &str = "conv_transpose2d";

/// The options of a transposed convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvTransposeOptions {
    /// Vertical and horizontal stride.
    pub stride: [usize; 2],
    /// Rows and columns removed above and below, left and right.
    pub padding: [usize; 2],
    /// Rows and columns added below and on the right; less than the stride.
    pub output_padding: [usize; 2],
}

impl Default for ConvTransposeOptions {
    /// Stride 1, without padding.
    fn default() -> Self {
        Self { stride: [1, 1], padding: [0, 0], output_padding: [0, 0] }
    }
}

impl Tensor {
    /// Returns the transposed convolution (Zeiler et al., 2010) of this `[batch, channels, height, width]` with
    /// `weight` `[channels, outputs, kernel height, kernel width]`, plus `bias` `[outputs]`: each pixel adds the
    /// kernel, times its value, to the result. Needs a workspace as [`Self::conv2d`] does. Saves the input if the
    /// weight requires a gradient, and the weight if the input does; the input's gradient overwrites the input if that
    /// is not shared.
    ///
    /// # Errors
    ///
    /// Fails if the shapes or data types do not match, or if memory runs out.
    pub fn conv_transpose2d(&self, weight: &Self, bias: Option<&Self>, options: ConvTransposeOptions) -> Result<Self> {
        let operation = Operation::begin(OP, &[self, weight]);
        let (window, size) = check(self, weight, bias, options)?;
        self.transposed_convolution(&operation, weight, bias, (window, size))
    }

    /// Returns the part of `size` at `start` of the transposed convolution with this stride and without padding:
    /// [`Self::conv_transpose2d`] followed by [`Self::narrow`] along both axes, without computing the rest.
    ///
    /// # Errors
    ///
    /// Fails if the part exceeds the result, and as [`Self::conv_transpose2d`] does.
    pub fn conv_transpose2d_part(
        &self,
        weight: &Self,
        bias: Option<&Self>,
        stride: [usize; 2],
        [start, size]: [[usize; 2]; 2],
    ) -> Result<Self> {
        let operation = Operation::begin(OP, &[self, weight]);
        let options = ConvTransposeOptions { stride, ..ConvTransposeOptions::default() };
        let (window, whole) = check(self, weight, bias, options)?;
        for axis in 0..2 {
            let (start, length) = (start[axis], whole[axis]);
            let end = start.saturating_add(size[axis]);
            if end > length || start == end {
                return Err(Error::Range { op: OP, start, end, length });
            }
        }
        self.transposed_convolution(&operation, weight, bias, (Window { padding: start, ..window }, size))
    }

    fn transposed_convolution(
        &self,
        operation: &Operation,
        weight: &Self,
        bias: Option<&Self>,
        (window, size): (Window, [usize; 2]),
    ) -> Result<Self> {
        let op = OP;
        let (input, kernel) = (self.in_order()?, weight.in_order()?);
        let shape = Shape::from([self.shape()[0], weight.shape()[1], size[0], size[1]]);
        let out = Self::empty(shape, self.dtype(), self.device())?;
        out.fill_channels(op, bias)?;
        let transposed = kernel.reshaped(&matrix_of(weight.shape()))?.transposed();
        let columns = Columns::new(op, [&out, &input], weight.shape(), window)?;
        for image in 0..shape[0] {
            for part in columns.parts() {
                columns.add_product(&out.image(image), &transposed, &part.of(op, &input.image(image))?, part)?;
            }
        }
        let mut inputs = vec![self, weight];
        inputs.extend(bias);
        Ok(operation.record(out, &inputs, |needs| ConvTranspose {
            input: needs[1].then(|| Saved::new(&input)),
            weight: needs[0].then(|| Saved::new(&kernel)),
            weight_shape: *weight.shape(),
            window,
        }))
    }
}

/// Returns the shape of a weight as the matrix whose transpose turns pixels into columns.
fn matrix_of(weight: &Shape) -> Shape {
    Shape::from([weight[0], weight[1] * weight[2] * weight[3]])
}

/// Returns the window over the result, with one position per pixel of the input, and the result's height and width.
fn check(
    input: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    options: ConvTransposeOptions,
) -> Result<(Window, [usize; 2])> {
    let op = OP;
    input.check_operand(op, weight)?;
    input.check_float(op)?;
    let (x, w) = (input.shape(), weight.shape());
    if x.rank() != 4 || w.rank() != 4 || x[1] != w[0] {
        let need = "they must be [batch, channels, height, width] and [channels, outputs, height, width]";
        return Err(Error::shapes(op, x, w, need));
    }
    if let Some(bias) = bias {
        input.check_operand(op, bias)?;
        if **bias.shape() != [w[1]] {
            return Err(Error::shapes(op, w, bias.shape(), "expected a bias of shape [outputs]"));
        }
    }
    let ConvTransposeOptions { stride, padding, output_padding } = options;
    if stride.contains(&0) || w[2] == 0 || w[3] == 0 {
        let what = format!("stride {stride:?} and kernel {w} must be at least 1");
        return Err(Error::Setting { op, what });
    }
    if (0..2).any(|axis| output_padding[axis] >= stride[axis]) {
        let what = format!("output padding {output_padding:?} must be less than the stride {stride:?}");
        return Err(Error::Setting { op, what });
    }
    let [height, width] = [0, 1].map(|axis| {
        let whole = x[axis + 2].checked_sub(1)?.checked_mul(stride[axis])?.checked_add(w[axis + 2])?;
        let size = whole.checked_add(output_padding[axis])?.checked_sub(padding[axis].checked_mul(2)?)?;
        Some(size).filter(|&size| size > 0)
    });
    let (Some(height), Some(width)) = (height, width) else {
        let need = "an input has at least one pixel, and the padding must leave at least one of the result";
        return Err(Error::shapes(op, x, w, need));
    };
    let window = Window { kernel: [w[2], w[3]], stride, padding, places: [x[2], x[3]], first: 0 };
    Ok((window, [height, width]))
}

/// With C the columns of the result's gradient and W the weight as a matrix: dW = Σ x·Cᵀ and dx = W·C.
struct ConvTranspose {
    input: Option<Saved>,
    weight: Option<Saved>,
    weight_shape: Shape,
    window: Window,
}

impl Gradient for ConvTranspose {
    fn backward(self: Box<Self>, grad: Tensor, inputs: &mut InputGradients<'_>) -> Result<()> {
        let op = OP;
        let Self { input, weight, weight_shape, window } = *self;
        give_bias(op, &grad, inputs)?;
        let input = input.map(|input| input.take(op)).transpose()?;
        let weight = weight.map(|weight| weight.take(op)?.reshaped(&matrix_of(&weight_shape))).transpose()?;
        let of_weight = input.is_some().then(|| inputs.take_sum_or_zeros(1, &grad)).transpose()?;
        let by_rows = of_weight.as_ref().map(|sum| sum.reshaped(&matrix_of(&weight_shape))).transpose()?;
        let place = weight.is_some().then(|| Place::take(&input, &grad, inputs)).transpose()?;
        let of_input = place.as_ref().and_then(|place| place.new.as_ref()).or(input.as_ref());
        let columns = Columns::new(op, [&grad, of_input.unwrap_or(&grad)], &weight_shape, window)?;
        for image in 0..grad.shape()[0] {
            for part in columns.parts() {
                let windows = columns.read(&grad.image(image), part)?;
                if let (Some(by_rows), Some(input)) = (&by_rows, &input) {
                    let pixels = part.of(op, &input.image(image))?;
                    backend::matmul(by_rows.view(), pixels.view(), windows.transposed().view(), 1.0, 1.0)?;
                }
                // These pixels of the input are no longer needed, so their gradient can overwrite them.
                if let (Some(weight), Some(place), Some(of_input)) = (&weight, &place, of_input) {
                    let pixels = part.of(op, &of_input.image(image))?;
                    backend::matmul(pixels.view(), weight.view(), windows.view(), 1.0, place.keep)?;
                }
            }
        }
        drop((grad, columns, by_rows));
        if let Some(sum) = of_weight {
            inputs.give(1, sum)?;
        }
        match place {
            Some(Place { new: Some(sum), .. }) => inputs.give(0, sum),
            Some(_) => inputs.give(0, input.expect("only memory that is there is taken over")),
            None => Ok(()),
        }
    }
}

/// The destination of the input's gradient.
struct Place {
    /// The accumulated gradient, or new memory; `None` for the memory of the input.
    new: Option<Tensor>,
    /// 1 to accumulate, 0 to overwrite.
    keep: f64,
}

impl Place {
    fn take(input: &Option<Tensor>, grad: &Tensor, inputs: &mut InputGradients<'_>) -> Result<Self> {
        if let Some(sum) = inputs.take_sum(0) {
            return Ok(Self { new: Some(sum), keep: 1.0 });
        }
        let is_free = |input: &&Tensor| input.is_free_to_write() && input.fills_storage();
        if let Some(input) = input.as_ref().filter(is_free) {
            input.storage().changed();
            return Ok(Self { new: None, keep: 0.0 });
        }
        Ok(Self { new: Some(inputs.allocate(0, grad)?), keep: 0.0 })
    }
}
