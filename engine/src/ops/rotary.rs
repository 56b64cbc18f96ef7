//! Rotary position embeddings.

use crate::autograd::{Operation, gradient};
use crate::backend::{self, Rotation, View};
use crate::{Error, Result, Shape, Tensor};

const OP: &str = "rotary";

/// The options of rotary embeddings, which determine the angle of each position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RotaryOptions {
    /// The base of the angles. Pair `i` of a head of `width` elements is rotated by `base^(−2i / width)` per position.
    pub base: f64,
    /// The position of the first token.
    pub first: usize,
}

impl Default for RotaryOptions {
    /// Returns a base of 10,000 and a first position of 0.
    fn default() -> Self {
        Self { base: 10_000.0, first: 0 }
    }
}

impl Tensor {
    /// Rotates elements `i` and `i + width / 2` of each of the heads `[batch, length, heads, width]` as a pair, by an
    /// angle proportional to the position along `length` (Su et al.: "RoFormer", 2021). Angles are computed from
    /// positions, without a table on the device. Saves nothing.
    ///
    /// # Errors
    /// Fails if the tensor does not have four axes of floating-point numbers, if the width is odd, if the base is not a
    /// number above 0, or if memory runs out.
    pub fn rotary(&self, options: RotaryOptions) -> Result<Self> {
        // A second handle, so that this tensor's memory counts as shared.
        rotate(&self.clone(), Packing::of_heads(self)?, options)
    }

    /// Like [`Self::rotary`], in this tensor's memory if it is contiguous and not shared. Its gradient overwrites the
    /// result's gradient under the same condition.
    ///
    /// # Errors
    /// See [`Self::rotary`].
    pub fn into_rotary(self, options: RotaryOptions) -> Result<Self> {
        let packing = Packing::of_heads(&self)?;
        rotate(&self, packing, options)
    }

    /// Like [`Self::rotary`], for the first `rotated` of `slots` adjacent heads in `[batch, length, slots · width]`;
    /// the other heads are unchanged. Works in this tensor's memory if it is contiguous and not shared, so that one
    /// buffer contains query, key and value for [`Self::attention_packed`].
    ///
    /// # Errors
    /// Fails if the tensor does not have this shape or `rotated` exceeds `slots`, and for the reasons in
    /// [`Self::rotary`].
    pub fn into_rotary_packed(self, rotated: usize, slots: usize, options: RotaryOptions) -> Result<Self> {
        let packing = Packing::of_slots(&self, rotated, slots)?;
        rotate(&self, packing, options)
    }
}

/// The part of a tensor that is rotated.
#[derive(Clone, Copy)]
struct Packing {
    /// The tensor as `[batch, length, heads, width]`.
    heads: Shape,
    /// Number of heads that are rotated, counted from the first.
    rotated: usize,
}

impl Packing {
    fn of_heads(tensor: &Tensor) -> Result<Self> {
        let shape = *tensor.shape();
        if tensor.rank() != 4 || !shape[3].is_multiple_of(2) {
            return Err(Error::shape(OP, &shape, "expected [batch, length, heads, width] with an even width"));
        }
        Ok(Self { heads: shape, rotated: shape[2] })
    }

    fn of_slots(tensor: &Tensor, rotated: usize, slots: usize) -> Result<Self> {
        let shape = tensor.shape();
        if tensor.rank() != 3 || slots == 0 || !shape[2].is_multiple_of(slots.saturating_mul(2)) {
            return Err(Error::shape(OP, shape, "expected [batch, length, slots × width] with an even width"));
        }
        if rotated > slots {
            let what = format!("cannot rotate {rotated} of {slots} heads: expected at most {slots}");
            return Err(Error::Setting { op: OP, what });
        }
        Ok(Self { heads: Shape::from([shape[0], shape[1], slots, shape[2] / slots]), rotated })
    }
}

fn rotate(tensor: &Tensor, packing: Packing, options: RotaryOptions) -> Result<Tensor> {
    let operation = Operation::begin(OP, &[tensor]);
    tensor.check_float(OP)?;
    if !(options.base.is_finite() && options.base > 0.0) {
        let what = format!("invalid base {}: expected a number above 0", options.base);
        return Err(Error::Setting { op: OP, what });
    }
    let rotation = Rotation { base: options.base, first: options.first, back: false };
    let out = if tensor.is_free_in_order() {
        tensor.storage().changed();
        tensor.detach()
    } else {
        tensor.copied()?
    };
    turn(&out, packing, rotation)?;
    // The gradient is the rotation by the opposite angle.
    Ok(operation.record(out, &[tensor], |_| {
        gradient(move |grad, inputs| {
            let grad = if grad.is_free_in_order() { grad } else { grad.copied()? };
            turn(&grad, packing, Rotation { back: true, ..rotation })?;
            inputs.give(0, grad)
        })
    }))
}

/// Rotates the part of a contiguous tensor that `packing` describes.
fn turn(tensor: &Tensor, packing: Packing, rotation: Rotation) -> Result<()> {
    let heads = tensor.layout().reshape(&packing.heads).expect("the tensor is not contiguous");
    let layout = heads.narrow(OP, 2, 0, packing.rotated)?;
    backend::rotary(View { layout: &layout, ..tensor.view() }, rotation)
}
