//! Two-dimensional convolution and transposed convolution.

use super::init::{Filling, Init};
use super::linear::LinearFilling;
use super::module::Module;
use crate::ops::columns::check_groups;
use crate::ops::{ConvOptions, ConvTransposeOptions};
use crate::{Result, Tensor};

/// A convolution with square kernels, which maps `[batch, inputs, height, width]` to `[batch, outputs, …]`.
#[derive(Debug)]
pub struct Conv2d {
    weight: Tensor,
    bias: Option<Tensor>,
    options: ConvOptions,
}

impl Conv2d {
    /// Creates a layer of size `[inputs, outputs, side]` with kernels of `side` × `side` and a bias, initialized as in
    /// PyTorch. The weight is `[outputs, inputs / groups, side, side]`.
    ///
    /// # Errors
    /// Fails if the inputs or outputs cannot be divided into the groups in `options`, or if memory cannot be allocated.
    pub fn new(init: &mut Init, [inputs, outputs, side]: [usize; 3], options: ConvOptions) -> Result<Self> {
        let filling = Filling::kaiming_uniform(inputs / options.groups.max(1) * side * side);
        let filling = LinearFilling { weight: filling, bias: Some(filling) };
        Self::filled(init, [inputs, outputs, side], options, filling)
    }

    /// Like [`Self::new`], without a bias, as used before a norm that subtracts the mean.
    ///
    /// # Errors
    /// See [`Self::new`].
    pub fn without_bias(init: &mut Init, [inputs, outputs, side]: [usize; 3], options: ConvOptions) -> Result<Self> {
        let weight = Filling::kaiming_uniform(inputs / options.groups.max(1) * side * side);
        Self::filled(init, [inputs, outputs, side], options, LinearFilling { weight, bias: None })
    }

    /// Like [`Self::new`], initialized with `filling`. The layer has a bias only if `filling` has one.
    ///
    /// # Errors
    /// See [`Self::new`].
    pub fn filled(
        init: &mut Init,
        [inputs, outputs, side]: [usize; 3],
        options: ConvOptions,
        filling: LinearFilling,
    ) -> Result<Self> {
        [inputs, outputs].into_iter().try_for_each(|channels| check_groups("Conv2d", channels, options.groups))?;
        Ok(Self {
            weight: init.parameter([outputs, inputs / options.groups, side, side], filling.weight)?,
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

/// A transposed convolution with square kernels, which maps `[batch, inputs, height, width]` to larger
/// `[batch, outputs, …]`.
#[derive(Debug)]
pub struct ConvTranspose2d {
    weight: Tensor,
    bias: Option<Tensor>,
    options: ConvTransposeOptions,
}

impl ConvTranspose2d {
    /// Creates a layer of size `[inputs, outputs, side]` with kernels of `side` × `side` and a bias, initialized as in
    /// PyTorch. The weight is `[inputs, outputs / groups, side, side]`.
    ///
    /// # Errors
    /// Fails if the inputs or outputs cannot be divided into the groups in `options`, or if memory cannot be allocated.
    pub fn new(init: &mut Init, [inputs, outputs, side]: [usize; 3], options: ConvTransposeOptions) -> Result<Self> {
        // PyTorch computes the fan-in from the kernel's second axis, also for transposed convolutions.
        let filling = Filling::kaiming_uniform(outputs / options.groups.max(1) * side * side);
        let filling = LinearFilling { weight: filling, bias: Some(filling) };
        Self::filled(init, [inputs, outputs, side], options, filling)
    }

    /// Like [`Self::new`], initialized with `filling`. With [`Filling::Bilinear`], the layer initially upsamples.
    ///
    /// # Errors
    /// Fails if `filling` does not support the dtype. See also [`Self::new`].
    pub fn filled(
        init: &mut Init,
        [inputs, outputs, side]: [usize; 3],
        options: ConvTransposeOptions,
        filling: LinearFilling,
    ) -> Result<Self> {
        [inputs, outputs]
            .into_iter()
            .try_for_each(|channels| check_groups("ConvTranspose2d", channels, options.groups))?;
        Ok(Self {
            weight: init.parameter([inputs, outputs / options.groups, side, side], filling.weight)?,
            bias: filling.bias.map(|bias| init.parameter(outputs, bias)).transpose()?,
            options,
        })
    }

    /// Computes the part of the output of [`Module::forward`] that starts at `start` and has size `size`, without
    /// materializing the rest. Padding is ignored, so the start is relative to the start of the first kernel.
    ///
    /// # Errors
    /// Fails if the input or the part does not have the expected shape, or if memory cannot be allocated.
    pub fn forward_part(&self, images: &Tensor, start: [usize; 2], size: [usize; 2]) -> Result<Tensor> {
        images.conv_transpose2d_part(&self.weight, self.bias.as_ref(), self.options, [start, size])
    }
}

impl Module for ConvTranspose2d {
    fn forward(&self, images: &Tensor) -> Result<Tensor> {
        images.conv_transpose2d(&self.weight, self.bias.as_ref(), self.options)
    }

    crate::visit_fields!(weight, bias);
}
