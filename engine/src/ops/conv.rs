//! Two-dimensional convolution as matrix products with unfolded windows, a limited number of them at a time.

use super::columns::{Columns, Weight, check_groups, give_bias, take_images_or_zeros};
use crate::autograd::{Gradient, InputGradients, Operation, Saved};
use crate::backend::{self, Window};
use crate::{Error, Result, Shape, Tensor};

/// The options of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvOptions {
    /// Vertical and horizontal stride.
    pub stride: [usize; 2],
    /// Number of rows of zeros above and below the input, and of columns of zeros on its left and right.
    pub padding: [usize; 2],
    /// Vertical and horizontal distance of the pixels that a kernel multiplies, which is 1 for adjacent pixels.
    pub dilation: [usize; 2],
    /// Number of groups into which input and output channels are divided. Each group of outputs depends only on its
    /// group of inputs. With as many groups as channels, the convolution is depthwise.
    pub groups: usize,
}

impl Default for ConvOptions {
    /// Returns stride and dilation 1, one group, and no padding.
    fn default() -> Self {
        Self { stride: [1, 1], padding: [0, 0], dilation: [1, 1], groups: 1 }
    }
}

impl Tensor {
    /// Returns the cross-correlation of this `[batch, channels, height, width]` with `weight` `[outputs, channels /
    /// groups, kernel height, kernel width]`, plus `bias` `[outputs]`. Windows are unfolded into columns in a
    /// workspace, except for 1×1 kernels with stride 1 and without padding. The workspace has at most 32 MiB, and at
    /// most a quarter of the larger of the images and the result or an eighth of the weight, whichever is more, but
    /// room for at least one window. Saves the input if the weight requires a gradient, and the weight if the input
    /// does.
    ///
    /// # Errors
    /// Fails if the shapes or data types do not match, if the options are invalid, or if memory runs out.
    pub fn conv2d(&self, weight: &Self, bias: Option<&Self>, options: ConvOptions) -> Result<Self> {
        let op = "conv2d";
        let operation = Operation::begin(op, &[self, weight]);
        let window = check(self, weight, bias, options)?;
        let input = self.detach();
        let kernel = weight.in_order()?;
        let form = Weight { shape: *weight.shape(), groups: options.groups };
        let shape = Shape::from([self.shape()[0], weight.shape()[0], window.places[0], window.places[1]]);
        let out = Self::empty(shape, self.dtype(), self.device())?;
        if bias.is_some() {
            out.fill_channels(op, bias)?;
        }
        let keep = if bias.is_some() { 1.0 } else { 0.0 };
        let matrices = form.matrices(&kernel)?;
        let columns = Columns::new(op, [&input, &out], &form, window)?;
        columns.each_part([&input, &out], |image, out, part| {
            let (windows, places) = (columns.read(image, part)?, columns.places(out, part)?);
            backend::matmul(places.view(), matrices.view(), windows.view(), 1.0, keep)
        })?;
        let mut inputs = vec![self, weight];
        inputs.extend(bias);
        Ok(operation.record(out, &inputs, |needs| Conv {
            input: needs[1].then(|| Saved::new(&input)),
            weight: needs[0].then(|| Saved::new(&kernel)),
            form,
            window,
        }))
    }
}

fn check(input: &Tensor, weight: &Tensor, bias: Option<&Tensor>, options: ConvOptions) -> Result<Window> {
    let op = "conv2d";
    input.check_operand(op, weight)?;
    input.check_float(op)?;
    let (x, w) = (input.shape(), weight.shape());
    let ConvOptions { stride, padding, dilation, groups } = options;
    if x.rank() != 4 || w.rank() != 4 || Some(x[1]) != w[1].checked_mul(groups) {
        let need = "expected [batch, channels, height, width] and [outputs, channels / groups, height, width]";
        return Err(Error::shapes(op, x, w, need));
    }
    check_groups(op, w[0], groups)?;
    if let Some(bias) = bias {
        input.check_operand(op, bias)?;
        if **bias.shape() != [w[0]] {
            return Err(Error::shapes(op, w, bias.shape(), "expected a bias of shape [outputs]"));
        }
    }
    let window = Window { kernel: [w[2], w[3]], stride, padding, dilation, places: [0, 0], first: 0 };
    check_window(op, &window)?;
    let padded = [0, 1].map(|axis| x[axis + 2].saturating_add(padding[axis].saturating_mul(2)));
    let span = window.span();
    if padded[0] < span[0] || padded[1] < span[1] {
        return Err(Error::shapes(op, x, w, "the kernel, with its dilation, must fit into the padded input"));
    }
    Ok(Window { places: [0, 1].map(|axis| (padded[axis] - span[axis]) / stride[axis] + 1), ..window })
}

pub(super) fn check_window(op: &'static str, window: &Window) -> Result<()> {
    let Window { kernel, stride, dilation, .. } = *window;
    if [kernel, stride, dilation].as_flattened().contains(&0) {
        let what = format!("kernel {kernel:?}, stride {stride:?} and dilation {dilation:?} must be at least 1");
        return Err(Error::Setting { op, what });
    }
    Ok(())
}

/// For each group, with the columns C and the weight W as a matrix, dW = Σ g·Cᵀ, and dx is Wᵀ·g added to the pixels
/// from which the columns were taken.
struct Conv {
    input: Option<Saved>,
    weight: Option<Saved>,
    form: Weight,
    window: Window,
}

impl Gradient for Conv {
    fn backward(self: Box<Self>, grad: Tensor, inputs: &mut InputGradients<'_>) -> Result<()> {
        let op = "conv2d";
        let Self { input, weight, form, window } = *self;
        let grad = grad.into_order()?;
        give_bias(op, &grad, inputs)?;
        // The weight's gradient is computed first: then the input's gradient can reuse the input's memory.
        let mut served = None;
        if let Some(input) = input {
            let input = input.take(op)?;
            let sum = inputs.take_sum_or_zeros(1, &grad)?;
            let matrices = form.matrices(&sum)?;
            let columns = Columns::new(op, [&input, &grad], &form, window)?;
            columns.each_part([&input, &grad], |image, grad, part| {
                let (windows, places) = (columns.read(image, part)?.transposed(), columns.places(grad, part)?);
                backend::matmul(matrices.view(), places.view(), windows.view(), 1.0, 1.0)
            })?;
            drop(matrices);
            inputs.give(1, sum)?;
            served = Some(input);
        }
        let Some(weight) = weight else { return Ok(()) };
        let transposed = form.matrices(&weight.take(op)?)?.transposed();
        let sum = take_images_or_zeros(served, &grad, inputs)?;
        let columns = Columns::new(op, [&sum, &grad], &form, window)?;
        columns.each_part([&sum, &grad], |image, grad, part| columns.add_product(image, &transposed, grad, part))?;
        drop((grad, columns));
        inputs.give(0, sum)
    }
}
