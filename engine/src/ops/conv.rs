//! Conv: two-dimensional convolution as products with the image's windows, a bounded number of them at a time.

use highwater_recorder::{Category, scope};

use crate::autograd::{Gradient, InputGradients, Operation, Saved};
use crate::backend::{self, View, Window};
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::shape::Shape;
use crate::tensor::Tensor;

/// Bytes that the windows' columns take at most, unless a single window takes more.
const WORKSPACE_BYTES: usize = 4 << 20;

/// How a convolution moves over its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConvOptions {
    /// Steps down and to the right.
    pub stride: [usize; 2],
    /// Zeros around the input: above and below, left and right.
    pub padding: [usize; 2],
}

impl Default for ConvOptions {
    /// Steps of one, without padding.
    fn default() -> Self {
        Self { stride: [1, 1], padding: [0, 0] }
    }
}

impl Tensor {
    /// Cross-correlation of this `[batch, channels, height, width]` with `weight` `[outputs, channels, kernel height,
    /// kernel width]`, plus `bias` `[outputs]`. Windows are laid out as columns in a workspace of at most 4 MiB (or one
    /// window). Keeps the input if the weight's gradient is wanted, and the weight if the input's is.
    pub fn conv2d(&self, weight: &Self, bias: Option<&Self>, options: ConvOptions) -> Result<Self> {
        let op = "conv2d";
        let operation = Operation::begin(op);
        let window = check(self, weight, bias, options)?;
        let input = self.detach();
        let kernel = weight.in_order()?;
        let shape = Shape::from([self.shape()[0], weight.shape()[0], window.places[0], window.places[1]]);
        let out = Self::empty(shape, self.dtype(), self.device())?;
        if let Some(bias) = bias {
            let as_image = bias.broadcast_to(op, &Shape::from([1, shape[1]]))?.turned();
            let plane = out.with_layout(out.layout().reshape(&planes(&shape)).expect("new memory is contiguous"));
            backend::copy(plane.view(), as_image.broadcast_to(op, plane.shape())?.view())?;
        }
        let keep = if bias.is_some() { 1.0 } else { 0.0 };
        let matrix = kernel.reshaped(&Shape::from([shape[1], kernel_elements(weight.shape())]))?;
        let columns = workspace(self, weight, &window)?;
        for (image, part) in parts(shape[0], &window, columns.shape()[1]) {
            let columns = columns.first_columns(part.count)?;
            backend::unfold(columns.view(), input.image(image).view(), part.window)?;
            multiply(out.places(image, part)?.view(), matrix.view(), columns.view(), keep)?;
        }
        let mut inputs = vec![self, weight];
        inputs.extend(bias);
        Ok(operation.record(out, &inputs, |needs| Conv {
            input: needs[1].then(|| Saved::new(&input)),
            weight: needs[0].then(|| Saved::new(&kernel)),
            shapes: [*self.shape(), *weight.shape()],
            window,
        }))
    }

    /// One of a batch of images.
    fn image(&self, index: usize) -> Self {
        self.with_layout(self.layout().select(0, index))
    }

    fn first_columns(&self, count: usize) -> Result<Self> {
        Ok(self.with_layout(self.layout().narrow("conv2d", 1, 0, count)?))
    }

    /// Some places of one image of this contiguous result, as `[outputs, places]`.
    fn places(&self, image: usize, part: Part) -> Result<Self> {
        let matrix = Shape::from([self.shape()[1], self.shape()[2] * self.shape()[3]]);
        let layout = self.layout().select(0, image).reshape(&matrix).expect("an image of a result is contiguous");
        Ok(self.with_layout(layout.narrow("conv2d", 1, part.window.first, part.count)?))
    }
}

fn planes(shape: &Shape) -> Shape {
    Shape::from([shape[0], shape[1], shape[2] * shape[3]])
}

fn kernel_elements(weight: &Shape) -> usize {
    weight[1] * weight[2] * weight[3]
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
            return Err(Error::shapes(op, w, bias.shape(), "a bias has one axis: [outputs]"));
        }
    }
    if options.stride.contains(&0) || w[2] == 0 || w[3] == 0 {
        let what = format!("stride {:?} and kernel {w} must be at least 1", options.stride);
        return Err(Error::Setting { op, what });
    }
    let padded = [x[2] + 2 * options.padding[0], x[3] + 2 * options.padding[1]];
    if padded[0] < w[2] || padded[1] < w[3] {
        return Err(Error::shapes(op, x, w, "the kernel must fit into the padded input"));
    }
    let places = [0, 1].map(|axis| (padded[axis] - w[axis + 2]) / options.stride[axis] + 1);
    Ok(Window { kernel: [w[2], w[3]], stride: options.stride, padding: options.padding, places, first: 0 })
}

/// Columns for as many windows as fit the bound, at most those of one image.
fn workspace(like: &Tensor, weight: &Tensor, window: &Window) -> Result<Tensor> {
    let _category = scope::category(Category::Workspace);
    let column = kernel_elements(weight.shape());
    let all = window.places[0] * window.places[1];
    let fit = (WORKSPACE_BYTES / (column * like.dtype().size()).max(1)).clamp(1, all.max(1));
    Tensor::empty([column, fit], like.dtype(), like.device())
}

/// Some places of an image, one after another.
#[derive(Clone, Copy)]
struct Part {
    window: Window,
    count: usize,
}

/// The places of each of `images` images, `most` at a time.
fn parts(images: usize, window: &Window, most: usize) -> impl Iterator<Item = (usize, Part)> + use<> {
    let (window, all) = (*window, window.places[0] * window.places[1]);
    (0..images).flat_map(move |image| {
        (0..all)
            .step_by(most)
            .map(move |first| (image, Part { window: Window { first, ..window }, count: most.min(all - first) }))
    })
}

fn multiply(out: View<'_>, left: View<'_>, right: View<'_>, keep: f64) -> Result<()> {
    backend::matmul(out, left, right, 1.0, keep)
}

/// With C the columns and W the weight as a matrix: dW = Σ g·Cᵀ, and dx is Wᵀ·g put back to where the columns came from.
struct Conv {
    input: Option<Saved>,
    weight: Option<Saved>,
    shapes: [Shape; 2],
    window: Window,
}

impl Gradient for Conv {
    fn backward(self: Box<Self>, grad: Tensor, inputs: &mut InputGradients<'_>) -> Result<()> {
        let op = "conv2d";
        let Self { input, weight, shapes: [image_shape, weight_shape], window } = *self;
        let grad = grad.into_order()?;
        if let Some(shape) = inputs.shape(2).copied() {
            let by_planes = grad.reshaped(&planes(grad.shape()))?;
            let sum = by_planes.into_sum_to(&Shape::from([shape[0], 1]))?;
            inputs.give(2, sum.reshaped(&shape)?)?;
        }
        let matrix = Shape::from([weight_shape[0], kernel_elements(&weight_shape)]);
        if let Some(input) = input {
            let input = input.take(op)?;
            let sum = inputs.take_sum_or_zeros(1, &grad)?;
            let by_rows = sum.reshaped(&matrix)?;
            let columns = workspace(&input, &by_kernel(&by_rows, &weight_shape), &window)?;
            for (image, part) in parts(image_shape[0], &window, columns.shape()[1]) {
                let columns = columns.first_columns(part.count)?;
                backend::unfold(columns.view(), input.image(image).view(), part.window)?;
                multiply(by_rows.view(), grad.places(image, part)?.view(), columns.turned().view(), 1.0)?;
            }
            drop(by_rows);
            inputs.give(1, sum)?;
        }
        let Some(weight) = weight else { return Ok(()) };
        let weight = weight.take(op)?;
        let sum = inputs.take_sum_or_zeros(0, &grad)?;
        let columns = workspace(&grad, &weight, &window)?;
        let turned = weight.reshaped(&matrix)?.turned();
        for (image, part) in parts(image_shape[0], &window, columns.shape()[1]) {
            let columns = columns.first_columns(part.count)?;
            multiply(columns.view(), turned.view(), grad.places(image, part)?.view(), 0.0)?;
            backend::fold_add(sum.image(image).view(), columns.view(), part.window)?;
        }
        drop((grad, columns));
        inputs.give(0, sum)
    }
}

fn by_kernel(matrix: &Tensor, shape: &Shape) -> Tensor {
    matrix.with_layout(Layout::contiguous(*shape))
}
