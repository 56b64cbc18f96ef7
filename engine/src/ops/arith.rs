//! Sums, products and quotients of two tensors, or of a tensor and a scalar.

use std::sync::Arc;

use crate::autograd::{Gradient, Ingredient, InputGradients, Offer, Operation, Recipe, Saved, Source, gradient};
use crate::backend::{self, Binary, Unary};
use crate::{Error, Result, Shape, Tensor};

impl Tensor {
    /// Returns the elementwise sum. Shapes broadcast.
    ///
    /// # Errors
    /// Fails if the shapes do not broadcast, if the data types differ and autocast is off, if the devices differ, or if
    /// memory runs out.
    pub fn add(&self, other: &Self) -> Result<Self> {
        self.add_scaled("add", other, 1.0)
    }

    /// Returns the elementwise difference. Shapes broadcast.
    ///
    /// # Errors
    /// See [`Self::add`].
    pub fn sub(&self, other: &Self) -> Result<Self> {
        self.add_scaled("sub", other, -1.0)
    }

    fn add_scaled(&self, op: &'static str, other: &Self, scale: f64) -> Result<Self> {
        if let Some((left, right)) = self.widened(other)? {
            return left.add_scaled(op, &right, scale);
        }
        let operation = Operation::begin(op, &[self, other]);
        self.check_operand(op, other)?;
        let function = if scale == 1.0 { Binary::Add } else { Binary::Sub };
        let out = self.zip(function, other, op)?;
        let shapes = [*self.shape(), *other.shape()];
        Ok(operation.record(out, &[self, other], |_| Sum { shapes, scale }))
    }

    /// Returns the sum, computed in this tensor's memory if the memory is not shared and `other` broadcasts to its
    /// shape.
    ///
    /// # Errors
    /// See [`Self::add`].
    pub fn into_add(self, other: &Self) -> Result<Self> {
        let op = "add";
        if let Some((left, right)) = self.widened(other)? {
            drop(self);
            return left.into_add(&right);
        }
        let operation = Operation::begin(op, &[&self, other]);
        self.check_operand(op, other)?;
        let shape = Shape::broadcast(op, self.shape(), other.shape())?;
        let out = if shape == *self.shape() && self.is_free_to_write() {
            backend::binary(self.view(), Binary::Add, None, other.broadcast_to(op, &shape)?.view())?;
            self.storage().changed();
            self.detach()
        } else {
            self.zip(Binary::Add, other, op)?
        };
        let shapes = [*self.shape(), *other.shape()];
        Ok(operation.record(out, &[&self, other], |_| Sum { shapes, scale: 1.0 }))
    }

    /// Returns the elementwise product. Shapes broadcast. Saves each factor if the other factor requires a gradient.
    ///
    /// # Errors
    /// See [`Self::add`].
    pub fn mul(&self, other: &Self) -> Result<Self> {
        let op = "mul";
        if let Some((left, right)) = self.widened(other)? {
            return left.mul(&right);
        }
        let operation = Operation::begin(op, &[self, other]);
        self.check_operand(op, other)?;
        let out = self.zip(Binary::Mul, other, op)?;
        let shapes = [*self.shape(), *other.shape()];
        if !(self.requires_grad() && other.requires_grad()) {
            let factor = if self.requires_grad() { other } else { self };
            return Ok(operation.record(out, &[self, other], |_| {
                let factor = Saved::new(factor);
                gradient(move |grad, inputs| {
                    let wanted = if inputs.needs(0) { 0 } else { 1 };
                    let grad = grad.into_zip(Binary::Mul, &factor.take(op)?, op)?;
                    inputs.give(wanted, grad.into_sum_to(&shapes[wanted])?)
                })
            }));
        }
        // Both factors are saved, so the product can be recomputed.
        let factors = || Factors { left: Saved::new(self), right: Saved::new(other) };
        Ok(operation.record_known(out, &[self, other], factors, |factors| {
            // d(l·r) = r·dl + l·dr.
            gradient(move |grad, inputs| {
                let (left, right) = (factors.left.get(op)?, factors.right.get(op)?);
                drop(factors);
                // Each gradient overwrites memory that is no longer needed: the right factor's, and the result's
                // gradient's.
                let of_left = if right.is_free_to_write() && right.shape() == grad.shape() {
                    right.storage().changed();
                    right.into_zip(Binary::Mul, &grad, op)?
                } else {
                    grad.zip(Binary::Mul, &right, op)?
                };
                inputs.give(0, of_left.into_sum_to(&shapes[0])?)?;
                inputs.give(1, grad.into_zip(Binary::Mul, &left, op)?.into_sum_to(&shapes[1])?)
            })
        }))
    }

    /// Returns the elementwise quotient. Shapes broadcast. Saves the divisor, and the result if the divisor requires a
    /// gradient.
    ///
    /// # Errors
    /// Fails if the shapes do not broadcast, if the data types or devices differ, or if memory runs out.
    pub fn div(&self, other: &Self) -> Result<Self> {
        let op = "div";
        let operation = Operation::begin(op, &[self, other]);
        self.check_operand(op, other)?;
        let out = self.zip(Binary::Div, other, op)?;
        let shapes = [*self.shape(), *other.shape()];
        let result = out.detach();
        Ok(operation.record(out, &[self, other], |needs| {
            let (right, result) = (Saved::new(other), needs[1].then(|| Saved::memory(&result)));
            // d(l/r) = dl/r − (l/r)·dr/r.
            gradient(move |grad, inputs| {
                let of_left = grad.into_zip(Binary::Div, &right.take(op)?, op)?;
                let of_right = match result {
                    Some(result) if inputs.needs(0) => Some(of_left.zip(Binary::NegMul, &result.take(op)?, op)?),
                    Some(result) => {
                        let grad = of_left.into_zip(Binary::NegMul, &result.take(op)?, op)?;
                        return inputs.give(1, grad.into_sum_to(&shapes[1])?);
                    }
                    None => None,
                };
                inputs.give(0, of_left.into_sum_to(&shapes[0])?)?;
                match of_right {
                    Some(grad) => inputs.give(1, grad.into_sum_to(&shapes[1])?),
                    None => Ok(()),
                }
            })
        }))
    }

    /// Returns `−self`.
    ///
    /// # Errors
    /// See [`Self::affine`].
    pub fn neg(&self) -> Result<Self> {
        self.affine_as("neg", -1.0, 0.0)
    }

    /// Returns `self + value`.
    ///
    /// # Errors
    /// See [`Self::affine`].
    pub fn add_scalar(&self, value: f64) -> Result<Self> {
        self.affine_as("add_scalar", 1.0, value)
    }

    /// Returns `value · self`.
    ///
    /// # Errors
    /// See [`Self::affine`].
    pub fn mul_scalar(&self, value: f64) -> Result<Self> {
        self.affine_as("mul_scalar", value, 0.0)
    }

    /// Returns `scale · self + shift`. Saves nothing for backward. An operation that would save the result recomputes
    /// it instead if this tensor is saved anyway, is a parameter, or can itself be recomputed.
    ///
    /// # Errors
    /// Fails if the elements are not floating-point numbers, or if memory runs out.
    pub fn affine(&self, scale: f64, shift: f64) -> Result<Self> {
        self.affine_as("affine", scale, shift)
    }

    fn affine_as(&self, op: &'static str, scale: f64, shift: f64) -> Result<Self> {
        let operation = Operation::begin(op, &[self]);
        self.check_float(op)?;
        let out = self.map(Unary::Affine { scale, shift })?;
        let bytes = out.bytes();
        let line = || Line { source: Source::of(self), scale, shift, bytes };
        Ok(operation.record_known(out, &[self], line, |line| {
            // d(s·x + t) = s·dx. The line keeps the result's recipe live.
            gradient(move |grad, inputs| {
                let scale = line.scale;
                inputs.give(0, if scale == 1.0 { grad } else { grad.into_map(Unary::Affine { scale, shift: 0.0 })? })
            })
        }))
    }

    pub(crate) fn check_float(&self, op: &'static str) -> Result<()> {
        let need = "expected a floating-point tensor: f64, f32, bf16 or f16";
        if self.dtype().is_float() { Ok(()) } else { Err(Error::DType { op, found: self.dtype(), need }) }
    }
}

/// d(l + s·r) = dl + s·dr.
struct Sum {
    shapes: [Shape; 2],
    scale: f64,
}

impl Gradient for Sum {
    fn backward(self: Box<Self>, grad: Tensor, inputs: &mut InputGradients<'_>) -> Result<()> {
        let of_right = inputs.needs(1).then(|| grad.clone());
        if inputs.needs(0) {
            inputs.give(0, grad.into_sum_to(&self.shapes[0])?)?;
        } else {
            drop(grad);
        }
        let Some(grad) = of_right else { return Ok(()) };
        let mut grad = grad.into_sum_to(&self.shapes[1])?;
        if self.scale != 1.0 {
            grad = grad.into_map(Unary::Affine { scale: self.scale, shift: 0.0 })?;
        }
        inputs.give(1, grad)
    }
}

struct Factors {
    left: Saved,
    right: Saved,
}

impl Recipe for Factors {
    fn compute(&self) -> Result<Tensor> {
        self.left.get("mul")?.zip(Binary::Mul, &self.right.get("mul")?, "mul")
    }
}

/// Recomputes s·x + t from x, without keeping x live.
struct Line {
    source: Source,
    scale: f64,
    shift: f64,
    bytes: u64,
}

impl Offer for Line {
    fn recipe(self: Arc<Self>) -> Option<Arc<dyn Recipe>> {
        let input = self.source.ingredient(self.bytes)?;
        Some(Arc::new(LineAgain { input, function: Unary::Affine { scale: self.scale, shift: self.shift } }))
    }
}

/// Recomputes s·x + t from x, and keeps x live.
struct LineAgain {
    input: Ingredient,
    function: Unary,
}

impl Recipe for LineAgain {
    fn compute(&self) -> Result<Tensor> {
        let input = self.input.get("affine")?;
        // A view of the computed result is writable, but its layout differs from the former result's.
        if input.is_contiguous() && input.fills_storage() {
            input.into_map(self.function)
        } else {
            input.map(self.function)
        }
    }
}
