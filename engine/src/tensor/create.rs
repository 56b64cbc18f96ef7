//! Creates tensors from values, rules or random numbers.

use super::Tensor;
use crate::backend::{self, Distribution};
use crate::device::Kind;
use crate::dtype::Element;
use crate::storage::Storage;
use crate::{DType, Device, Error, Layout, Result, Rng, Shape};

impl Tensor {
    /// Allocates a tensor with uninitialized elements.
    ///
    /// # Errors
    /// Fails if memory runs out.
    pub fn empty(shape: impl Into<Shape>, dtype: DType, device: &Device) -> Result<Self> {
        let layout = Layout::contiguous(shape.into());
        let bytes = (layout.elements() as u64).saturating_mul(dtype.size() as u64);
        Ok(Self::from_parts(Storage::allocate(device, bytes)?, layout, dtype))
    }

    /// Returns a tensor of zeros.
    ///
    /// # Errors
    /// Fails if memory runs out.
    pub fn zeros(shape: impl Into<Shape>, dtype: DType, device: &Device) -> Result<Self> {
        Self::full(shape, 0.0, dtype, device)
    }

    /// Returns a tensor of ones.
    ///
    /// # Errors
    /// Fails if memory runs out.
    pub fn ones(shape: impl Into<Shape>, dtype: DType, device: &Device) -> Result<Self> {
        Self::full(shape, 1.0, dtype, device)
    }

    /// Returns a tensor filled with `value`.
    ///
    /// # Errors
    /// Fails if memory runs out.
    pub fn full(shape: impl Into<Shape>, value: f64, dtype: DType, device: &Device) -> Result<Self> {
        let out = Self::empty(shape, dtype, device)?;
        backend::fill(out.view(), value)?;
        Ok(out)
    }

    /// Returns zeros with the shape and type of this tensor, contiguous.
    ///
    /// # Errors
    /// Fails if memory runs out.
    pub fn zeros_like(&self) -> Result<Self> {
        Self::zeros(self.shape(), self.dtype(), self.device())
    }

    /// Returns ones with the shape and type of this tensor, contiguous.
    ///
    /// # Errors
    /// Fails if memory runs out.
    pub fn ones_like(&self) -> Result<Self> {
        Self::ones(self.shape(), self.dtype(), self.device())
    }

    /// Returns a tensor of the given elements, in the order in which the last axis varies fastest. On the accounting
    /// device, only the memory is allocated.
    ///
    /// # Errors
    /// Fails if the number of elements does not match the shape, or if memory runs out.
    pub fn from_slice<T: Element>(numbers: &[T], shape: impl Into<Shape>, device: &Device) -> Result<Self> {
        let out = Self::from_host("from_slice", numbers, shape, device)?;
        out.storage().report_use();
        Ok(out)
    }

    /// Allocates and records like [`from_slice`](Self::from_slice), for a device without values, where no elements are
    /// needed.
    pub(crate) fn as_from_slice(shape: impl Into<Shape>, dtype: DType, device: &Device) -> Result<Self> {
        let out = Self::empty(shape, dtype, device)?;
        out.storage().report_use();
        Ok(out)
    }

    /// Like [`from_slice`](Self::from_slice), without recording a use.
    pub(super) fn from_host<T: Element>(
        op: &'static str,
        numbers: &[T],
        shape: impl Into<Shape>,
        device: &Device,
    ) -> Result<Self> {
        let shape = shape.into();
        let expected = shape.elements();
        if numbers.len() != expected {
            return Err(Error::Length { op, found: numbers.len(), expected, shape: shape.to_string().into() });
        }
        let out = Self::empty(shape, T::DTYPE, device)?;
        match device.kind() {
            Kind::Cpu => out.storage().write::<T>(op)?[..expected].copy_from_slice(numbers),
            Kind::Cuda => out.storage().copy_in(op, 0, bytemuck::cast_slice(numbers))?,
            Kind::Accounting => {}
        }
        Ok(out)
    }

    /// Returns `count` elements, which are `start`, `start + step` and so on.
    ///
    /// # Errors
    /// Fails if memory runs out.
    pub fn arange(count: usize, start: f64, step: f64, dtype: DType, device: &Device) -> Result<Self> {
        let out = Self::empty(count, dtype, device)?;
        backend::arange(out.view(), start, step)?;
        Ok(out)
    }

    /// Returns normally distributed elements of mean 0 and variance 1.
    ///
    /// # Errors
    /// Fails if the type is not a floating-point type, or if memory runs out.
    pub fn randn(shape: impl Into<Shape>, dtype: DType, device: &Device, rng: &mut Rng) -> Result<Self> {
        Self::random(shape, Distribution::Normal { mean: 0.0, deviation: 1.0 }, dtype, device, rng)
    }

    /// Returns elements distributed uniformly from `low` (inclusive) to `high` (exclusive).
    ///
    /// # Errors
    /// See [`Self::randn`].
    pub fn uniform(
        shape: impl Into<Shape>,
        [low, high]: [f64; 2],
        dtype: DType,
        device: &Device,
        rng: &mut Rng,
    ) -> Result<Self> {
        Self::random(shape, Distribution::Uniform { low, high }, dtype, device, rng)
    }

    /// Returns random elements. On every device, the same number of values is drawn from `rng`, so that later draws are
    /// equal.
    ///
    /// # Errors
    /// See [`Self::randn`].
    pub fn random(
        shape: impl Into<Shape>,
        distribution: Distribution,
        dtype: DType,
        device: &Device,
        rng: &mut Rng,
    ) -> Result<Self> {
        let out = Self::empty(shape, dtype, device)?;
        backend::random(out.view(), distribution, rng.draw(out.elements()))?;
        Ok(out)
    }
}
