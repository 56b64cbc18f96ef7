//! Two-dimensional convolution and its transpose.

use super::init::{Filling, Init};
use super::linear::LinearFilling;
use super::module::Module;
use crate::error::Result;
use crate::ops::{ConvOptions, ConvTransposeOptions};
use crate::tensor::Tensor;

/// Square kernels over images: `[batch, inputs, height, width]` to `[batch, outputs, …]`.
#[derive(Debug)]
pub struct Conv2d {
    weight: Tensor,
    bias: Option<Tensor>,
    options: ConvOptions,
}

impl Conv2d {
    /// Kernels of `side` by `side` pixels with a bias, filled as PyTorch's; the size is `[inputs, outputs, side]`.
    pub fn new(init: &mut Init, [inputs, outputs, side]: [usize; 3], options: ConvOptions) -> Result<Self> {
        let filling = Filling::kaiming_uniform(inputs * side * side);
        let filling = LinearFilling { weight: filling, bias: Some(filling) };
        Self::filled(init, [inputs, outputs, side], options, filling)
    }

    /// The same, beginning with `filling`.
    pub fn filled(
        init: &mut Init,
        [inputs, outputs, side]: [usize; 3],
        options: ConvOptions,
        filling: LinearFilling,
    ) -> Result<Self> {
        Ok(Self {
            weight: init.parameter([outputs, inputs, side, side], filling.weight)?,
            bias: filling.bias.map(|bias| init.parameter(outputs, bias)).transpose()?,
            options,
        })
    }
}

impl Module for Conv2d {
    fn forward(&self, images: &Tensor) -> Result<Tensor> {
        images.conv2d(&self.weight, self.bias.as_ref(), self.options)
    }

    crate::visit_fields!(weight, bias);
}

/// A transposed convolution with square kernels: `[batch, inputs, height, width]` to larger `[batch, outputs, …]`.
#[derive(Debug)]
pub struct ConvTranspose2d {
    weight: Tensor,
    bias: Option<Tensor>,
    options: ConvTransposeOptions,
}

impl ConvTranspose2d {
    /// Kernels of `side` by `side` pixels with a bias, filled as PyTorch's; the size is `[inputs, outputs, side]`.
    pub fn new(init: &mut Init, [inputs, outputs, side]: [usize; 3], options: ConvTransposeOptions) -> Result<Self> {
        // PyTorch takes the kernel's second axis for the inputs, here as everywhere.
        let filling = Filling::kaiming_uniform(outputs * side * side);
        let filling = LinearFilling { weight: filling, bias: Some(filling) };
        Self::filled(init, [inputs, outputs, side], options, filling)
    }

    /// The same, beginning with `filling`; [`Filling::Bilinear`] makes images larger from the start.
    pub fn filled(
        init: &mut Init,
        [inputs, outputs, side]: [usize; 3],
        options: ConvTransposeOptions,
        filling: LinearFilling,
    ) -> Result<Self> {
        Ok(Self {
            weight: init.parameter([inputs, outputs, side, side], filling.weight)?,
            bias: filling.bias.map(|bias| init.parameter(outputs, bias)).transpose()?,
            options,
        })
    }

    /// The part of `size` at `start` of what [`Module::forward`] gives, without ever having the whole. Padding does not
    /// count: the start is from where the first kernel begins.
    pub fn forward_part(&self, images: &Tensor, start: [usize; 2], size: [usize; 2]) -> Result<Tensor> {
        images.conv_transpose2d_part(&self.weight, self.bias.as_ref(), self.options.stride, [start, size])
    }
}

impl Module for ConvTranspose2d {
    fn forward(&self, images: &Tensor) -> Result<Tensor> {
        images.conv_transpose2d(&self.weight, self.bias.as_ref(), self.options)
    }

    crate::visit_fields!(weight, bias);
}
