//! Transposed convolution, for upsampling.

use super::columns::{Columns, Weight, check_groups, give_bias};
use super::conv::check_window;
use crate::autograd::{Gradient, InputGradients, Operation, Saved};
use crate::backend::{self, Window};
use crate::{Error, Result, Shape, Tensor};

const OP: &str = "conv_transpose2d";

/// The options of a transposed convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvTransposeOptions {
    /// Vertical and horizontal stride.
    pub stride: [usize; 2],
    /// Number of rows removed above and below the result, and of columns removed on its left and right.
    pub padding: [usize; 2],
    /// Numbers of rows added below and of columns added on the right, less than the stride or the dilation.
    pub output_padding: [usize; 2],
    /// Vertical and horizontal distance of the pixels to which a kernel is added, which is 1 for adjacent pixels.
    pub dilation: [usize; 2],
    /// Number of groups into which input and output channels are divided, as in [`ConvOptions`](super::ConvOptions).
    pub groups: usize,
}

impl Default for ConvTransposeOptions {
    /// Returns stride and dilation 1, one group, and no padding.
    fn default() -> Self {
        Self { stride: [1, 1], padding: [0, 0], output_padding: [0, 0], dilation: [1, 1], groups: 1 }
    }
}

impl Tensor {
    /// Returns the transposed convolution (Zeiler et al., 2010) of this `[batch, channels, height, width]` with
    /// `weight` `[channels, outputs / groups, kernel height, kernel width]`, plus `bias` `[outputs]`. Each pixel adds
    /// the kernel, multiplied by its value, to the result. Needs a workspace like [`Self::conv2d`]. Saves the input if
    /// the weight requires a gradient, and the weight if the input does. The input's gradient overwrites the input if
    /// its memory is not shared.
    ///
    /// # Errors
    /// Fails if the shapes or data types do not match, if the options are invalid, or if memory runs out.
    pub fn conv_transpose2d(&self, weight: &Self, bias: Option<&Self>, options: ConvTransposeOptions) -> Result<Self> {
        let operation = Operation::begin(OP, &[self, weight]);
        let form = check(self, weight, bias, options)?;
        self.transposed_convolution(&operation, weight, bias, form)
    }

    /// Returns the part of `size` at `start` of the transposed convolution with these options but without padding. The
    /// result is that of [`Self::conv_transpose2d`] followed by [`Self::narrow`] along both axes, but the rest is not
    /// computed.
    ///
    /// # Errors
    /// Fails if the part is empty or exceeds the result, and for the reasons in [`Self::conv_transpose2d`].
    pub fn conv_transpose2d_part(
        &self,
        weight: &Self,
        bias: Option<&Self>,
        options: ConvTransposeOptions,
        [start, size]: [[usize; 2]; 2],
    ) -> Result<Self> {
        let operation = Operation::begin(OP, &[self, weight]);
        let options = ConvTransposeOptions { padding: [0; 2], output_padding: [0; 2], ..options };
        let Form { window, size: whole, weight: of_weight } = check(self, weight, bias, options)?;
        for axis in 0..2 {
            let (start, length) = (start[axis], whole[axis]);
            let end = start.saturating_add(size[axis]);
            if end > length || start == end {
                return Err(Error::Range { op: OP, start, end, length });
            }
        }
        let window = Window { padding: start, ..window };
        self.transposed_convolution(&operation, weight, bias, Form { window, size, weight: of_weight })
    }

    fn transposed_convolution(
        &self,
        operation: &Operation,
        weight: &Self,
        bias: Option<&Self>,
        Form { window, size, weight: form }: Form,
    ) -> Result<Self> {
        let op = OP;
        let (input, kernel) = (self.in_order()?, weight.in_order()?);
        let shape = Shape::from([self.shape()[0], weight.shape()[1] * form.groups, size[0], size[1]]);
        let out = Self::empty(shape, self.dtype(), self.device())?;
        out.fill_channels(op, bias)?;
        let transposed = form.matrices(&kernel)?.transposed();
        let columns = Columns::new(op, [&out, &input], &form, window)?;
        columns.each_part([&out, &input], |image, input, part| columns.add_product(image, &transposed, input, part))?;
        let mut inputs = vec![self, weight];
        inputs.extend(bias);
        Ok(operation.record(out, &inputs, |needs| ConvTranspose {
            input: needs[1].then(|| Saved::new(&input)),
            weight: needs[0].then(|| Saved::new(&kernel)),
            form,
            window,
        }))
    }
}

/// The window over the result (with one position per pixel of the input), the result's height and width, and the
/// weight.
#[derive(Clone, Copy)]
struct Form {
    window: Window,
    size: [usize; 2],
    weight: Weight,
}

fn check(input: &Tensor, weight: &Tensor, bias: Option<&Tensor>, options: ConvTransposeOptions) -> Result<Form> {
    let op = OP;
    input.check_operand(op, weight)?;
    input.check_float(op)?;
    let (x, w) = (input.shape(), weight.shape());
    if x.rank() != 4 || w.rank() != 4 || x[1] != w[0] {
        let need = "expected [batch, channels, height, width] and [channels, outputs / groups, height, width]";
        return Err(Error::shapes(op, x, w, need));
    }
    if let Some(bias) = bias {
        input.check_operand(op, bias)?;
        if Some(bias.elements()) != w[1].checked_mul(options.groups) || bias.rank() != 1 {
            return Err(Error::shapes(op, w, bias.shape(), "expected a bias of shape [outputs]"));
        }
    }
    let ConvTransposeOptions { stride, padding, output_padding, dilation, groups } = options;
    let window = Window { kernel: [w[2], w[3]], stride, padding, dilation, places: [x[2], x[3]], first: 0 };
    check_groups(op, w[0], groups)?;
    check_window(op, &window)?;
    if (0..2).any(|axis| output_padding[axis] >= stride[axis].max(dilation[axis])) {
        let what = format!(
            "output padding {output_padding:?} must be less than the stride {stride:?} or the dilation {dilation:?}"
        );
        return Err(Error::Setting { op, what });
    }
    let span = window.span();
    let [height, width] = [0, 1].map(|axis| {
        let whole = x[axis + 2].checked_sub(1)?.checked_mul(stride[axis])?.checked_add(span[axis])?;
        let size = whole.checked_add(output_padding[axis])?.checked_sub(padding[axis].checked_mul(2)?)?;
        Some(size).filter(|&size| size > 0)
    });
    let (Some(height), Some(width)) = (height, width) else {
        let need = "expected an input of at least one pixel, and padding that leaves at least one pixel";
        return Err(Error::shapes(op, x, w, need));
    };
    Ok(Form { window, size: [height, width], weight: Weight { shape: *w, groups } })
}

/// For each group, with the columns C of the result's gradient and the weight W as a matrix, dW = Σ x·Cᵀ and dx = W·C.
struct ConvTranspose {
    input: Option<Saved>,
    weight: Option<Saved>,
    form: Weight,
    window: Window,
}

impl Gradient for ConvTranspose {
    fn backward(self: Box<Self>, grad: Tensor, inputs: &mut InputGradients<'_>) -> Result<()> {
        let op = OP;
        let Self { input, weight, form, window } = *self;
        give_bias(op, &grad, inputs)?;
        let input = input.map(|input| input.take(op)).transpose()?;
        let weight = weight.map(|weight| form.matrices(&weight.take(op)?)).transpose()?;
        let of_weight = input.is_some().then(|| inputs.take_sum_or_zeros(1, &grad)).transpose()?;
        let matrices = of_weight.as_ref().map(|sum| form.matrices(sum)).transpose()?;
        let place = weight.is_some().then(|| Place::take(&input, &grad, inputs)).transpose()?;
        let of_input = place.as_ref().and_then(|place| place.new.as_ref()).or(input.as_ref());
        let columns = Columns::new(op, [&grad, of_input.unwrap_or(&grad)], &form, window)?;
        for image in 0..grad.shape()[0] {
            for part in columns.parts() {
                let windows = columns.read(&grad.image(image), part)?;
                if let (Some(matrices), Some(input)) = (&matrices, &input) {
                    let pixels = columns.places(&input.image(image), part)?;
                    backend::matmul(matrices.view(), pixels.view(), windows.transposed().view(), 1.0, 1.0)?;
                }
                // These pixels of the input are no longer needed, so their gradient can overwrite them.
                if let (Some(weight), Some(place), Some(of_input)) = (&weight, &place, of_input) {
                    let pixels = columns.places(&of_input.image(image), part)?;
                    backend::matmul(pixels.view(), weight.view(), windows.view(), 1.0, place.keep)?;
                }
            }
        }
        drop((grad, columns, matrices));
        if let Some(sum) = of_weight {
            inputs.give(1, sum)?;
        }
        match place {
            Some(Place { new: Some(sum), .. }) => inputs.give(0, sum),
            Some(_) => inputs.give(0, input.expect("there is no memory to take over")),
            None => Ok(()),
        }
    }
}

/// The destination of the input's gradient.
struct Place {
    /// The accumulated gradient, or new memory; `None` if the input's memory is used.
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
