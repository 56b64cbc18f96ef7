//! In-place changes of a tensor's elements, for optimizers and buffers. They have no gradient.
//!
//! Names end in an underscore, as in PyTorch. All fail on a tensor that requires a gradient unless gradients are
//! [disabled](crate::no_grad), since the graph could not record the change.

use super::Tensor;
use super::grad_mode::is_grad_enabled;
use crate::backend::{self, Binary, Call, Ternary, Unary};
use crate::{Error, Result};

impl Tensor {
    /// Sets each element to `value`.
    ///
    /// # Errors
    /// Fails if the tensor requires a gradient and gradients are enabled, or if its elements overlap in memory.
    pub fn fill_(&self, value: f64) -> Result<()> {
        self.begin_change("fill_")?;
        backend::fill(self.view(), value)
    }

    /// Copies the elements of `from`, which must broadcast to this shape, and converts them to this type.
    ///
    /// # Errors
    /// Fails if `from` does not broadcast to this shape or is on another device, and for the reasons in
    /// [`Self::fill_`].
    pub fn copy_(&self, from: &Self) -> Result<()> {
        let op = "copy_";
        self.begin_change(op)?;
        self.check_device(op, from)?;
        backend::cast(self.view(), from.broadcast_to(op, self.shape())?.view())
    }

    /// Adds `other`, which must broadcast to this shape.
    ///
    /// # Errors
    /// Fails if the types differ, and for the reasons in [`Self::copy_`].
    pub fn add_(&self, other: &Self) -> Result<()> {
        self.zip_("add_", Binary::Add, other)
    }

    /// Adds `scale · other`.
    ///
    /// # Errors
    /// See [`Self::add_`].
    pub fn add_scaled_(&self, other: &Self, scale: f64) -> Result<()> {
        self.zip_("add_scaled_", Binary::AddScaled(scale), other)
    }

    /// Replaces each element x by `scale · x + shift`.
    ///
    /// # Errors
    /// See [`Self::fill_`].
    pub fn affine_(&self, scale: f64, shift: f64) -> Result<()> {
        self.begin_change("affine_")?;
        backend::unary(self.view(), Unary::Affine { scale, shift }, None)
    }

    /// Prepares `function` on each element, to be run together with other calls.
    pub(crate) fn map_call(&self, op: &'static str, function: Unary) -> Result<Call<'_>> {
        self.begin_change(op)?;
        Ok(Call::Unary(self.view(), function, None))
    }

    /// Prepares a call of `function` on this tensor and `right`, which must have the same shape, to be run together
    /// with other calls.
    pub(crate) fn zip_call<'a>(&'a self, op: &'static str, function: Binary, right: &'a Self) -> Result<Call<'a>> {
        self.begin_change(op)?;
        self.check_alike(op, right)?;
        Ok(Call::Binary(self.view(), function, None, right.view()))
    }

    /// Prepares `function` on this tensor, `left` and `right`, all of the same shape, to be run together with other
    /// calls.
    pub(crate) fn combine_call<'a>(
        &'a self,
        op: &'static str,
        function: Ternary,
        left: &'a Self,
        right: &'a Self,
    ) -> Result<Call<'a>> {
        self.begin_change(op)?;
        self.check_alike(op, left)?;
        self.check_alike(op, right)?;
        Ok(Call::Ternary(self.view(), function, left.view(), right.view()))
    }

    fn zip_(&self, op: &'static str, function: Binary, right: &Self) -> Result<()> {
        self.begin_change(op)?;
        self.check_operand(op, right)?;
        backend::binary(self.view(), function, None, right.broadcast_to(op, self.shape())?.view())
    }

    /// Fails if the elements must not change. Otherwise counts the change, so that a graph that saved them detects it.
    pub(crate) fn begin_change(&self, op: &'static str) -> Result<()> {
        if self.requires_grad() && is_grad_enabled() {
            return Err(Error::InPlace { op });
        }
        if !self.layout().is_distinct() {
            return Err(Error::shape(op, self.shape(), "elements overlap in memory; make a copy first"));
        }
        self.storage().changed();
        Ok(())
    }

    pub(crate) fn check_device(&self, op: &'static str, other: &Self) -> Result<()> {
        if self.device() == other.device() { Ok(()) } else { Err(Error::Devices { op }) }
    }

    /// Fails unless `other` has this device, type and shape.
    pub(crate) fn check_alike(&self, op: &'static str, other: &Self) -> Result<()> {
        self.check_operand(op, other)?;
        if self.shape() == other.shape() {
            return Ok(());
        }
        Err(Error::shapes(op, self.shape(), other.shape(), "expected equal shapes"))
    }

    /// Fails if `other` is on another device or has another type.
    pub(crate) fn check_operand(&self, op: &'static str, other: &Self) -> Result<()> {
        self.check_device(op, other)?;
        if self.dtype() == other.dtype() {
            return Ok(());
        }
        Err(Error::DType {
            op,
            found: other.dtype(),
            need: "expected the same dtype for both operands; convert one with to_dtype",
        })
    }
}
