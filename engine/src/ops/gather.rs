//! Gathers elements along an axis by index, and scatters gradients in backward.

use crate::autograd::{Gradient, InputGradients, Operation, Saved, gradient};
use crate::{DType, Error, Result, Tensor, backend};

impl Tensor {
    /// Returns the elements at the indices `places` (I64) along `axis`. The result has the shape of `places`, and its
    /// element `[…, i, …]` is element `[…, places[…, i, …], …]` of this tensor. In the other axes, `places` must not be
    /// longer than this tensor. Saves the indices.
    ///
    /// # Errors
    /// Fails if the shapes or data types do not match, if memory runs out, or, on a device with values, if an index is
    /// out of range.
    pub fn gather(&self, axis: isize, places: &Self) -> Result<Self> {
        let op = "gather";
        let operation = Operation::begin(op, &[self]);
        let axis = self.shape().axis(op, axis)?;
        self.check_places(op, axis, places)?;
        let out = Self::empty(places.shape(), self.dtype(), self.device())?;
        backend::gather(out.view(), self.view(), places.view(), axis)?;
        Ok(operation.record(out, &[self], |_| Gather { op, places: Saved::new(places), axis }))
    }

    /// Returns this tensor with `added` added along `axis` at the indices `places` (I64). Element `[…, i, …]` of
    /// `added` is added to element `[…, places[…, i, …], …]`. `places` and `added` have the same shape, which must not
    /// be longer than this tensor in the other axes. Saves the indices if `added` requires a gradient.
    ///
    /// # Errors
    /// See [`Self::gather`].
    pub fn scatter_add(&self, axis: isize, places: &Self, added: &Self) -> Result<Self> {
        let op = "scatter_add";
        let operation = Operation::begin(op, &[self, added]);
        let axis = self.shape().axis(op, axis)?;
        self.check_float(op)?;
        self.check_operand(op, added)?;
        self.check_places(op, axis, places)?;
        if places.shape() != added.shape() {
            let need = "expected one index for each added element";
            return Err(Error::shapes(op, places.shape(), added.shape(), need));
        }
        let out = self.copied()?;
        backend::scatter_add(out.view(), added.view(), places.view(), axis)?;
        // The gradient of `added` is the gradient of the elements that it was added to.
        Ok(operation.record(out, &[self, added], |needs| {
            let places = needs[1].then(|| Saved::new(places));
            gradient(move |grad, inputs| {
                if let Some(places) = places {
                    let places = places.take(op)?;
                    let of_added = Self::empty(places.shape(), grad.dtype(), grad.device())?;
                    backend::gather(of_added.view(), grad.view(), places.view(), axis)?;
                    drop(places);
                    inputs.give(1, of_added)?;
                }
                inputs.give(0, grad)
            })
        }))
    }

    fn check_places(&self, op: &'static str, axis: usize, places: &Self) -> Result<()> {
        self.check_device(op, places)?;
        if places.dtype() != DType::I64 {
            return Err(Error::DType { op, found: places.dtype(), need: "expected positions of dtype i64" });
        }
        let fits = places.rank() == self.rank()
            && (0..self.rank()).all(|other| other == axis || places.shape()[other] <= self.shape()[other]);
        let need = "expected as many axes as the tensor, and no axis longer than the tensor's except the given one";
        if fits { Ok(()) } else { Err(Error::shapes(op, self.shape(), places.shape(), need)) }
    }
}

/// The gradient of gathering: adds the gradient of each gathered element to that of the element from which it was
/// gathered. The output of the forward operation has the shape of `places`, or lacks axes of length 1.
pub(super) struct Gather {
    pub(super) op: &'static str,
    pub(super) places: Saved,
    pub(super) axis: usize,
}

impl Gradient for Gather {
    fn backward(self: Box<Self>, grad: Tensor, inputs: &mut InputGradients<'_>) -> Result<()> {
        let places = self.places.take(self.op)?;
        let grad = grad.reshaped(places.shape())?;
        let sum = inputs.take_sum_or_zeros(0, &grad)?;
        backend::scatter_add(sum.view(), grad.view(), places.view(), self.axis)?;
        drop((grad, places));
        inputs.give(0, sum)
    }
}
