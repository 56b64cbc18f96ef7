//! Rotary position embeddings.

use crate::autograd::{Gradient, InputGradients, Operation};
use crate::backend::{self, Rotation, View};
use crate::error::{Error, Result};
use crate::shape::Shape;
use crate::tensor::Tensor;

const OP: &str = "rotary";

/// How positions become angles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RotaryOptions {
    /// Pair `i` of a head of `width` numbers turns by `base^(−2i / width)` with each position.
    pub base: f64,
    /// The position of the first token.
    pub first: usize,
}

impl Default for RotaryOptions {
    /// A base of 10,000, from position 0 on.
    fn default() -> Self {
        Self { base: 10_000.0, first: 0 }
    }
}

impl Tensor {
    /// Heads `[batch, length, heads, width]`, each with number `i` and number `i + width / 2` rotated as a pair by an
    /// angle that grows with its place along `length` (Su et al.: "RoFormer", 2021). Angles are computed from
    /// positions: there is no table on the device. Keeps nothing.
    pub fn rotary(&self, options: RotaryOptions) -> Result<Self> {
        // A second handle: this tensor's memory is not free to write.
        rotate(&self.clone(), Packing::of_heads(self)?, options)
    }

    /// [`Self::rotary`] in this tensor's memory, if it is not shared. So does its gradient with the result's.
    pub fn into_rotary(self, options: RotaryOptions) -> Result<Self> {
        let packing = Packing::of_heads(&self)?;
        rotate(&self, packing, options)
    }

    /// [`Self::rotary`] of the first `rotated` of `slots` heads that stand side by side in `[batch, length,
    /// slots · width]`; the others stay as they are. In this tensor's memory, if it is not shared: so one buffer
    /// holds query, key and value for [`Self::attention_packed`].
    pub fn into_rotary_packed(self, rotated: usize, slots: usize, options: RotaryOptions) -> Result<Self> {
        let packing = Packing::of_slots(&self, rotated, slots)?;
        rotate(&self, packing, options)
    }
}

/// Which part of a tensor is rotated.
#[derive(Clone, Copy)]
struct Packing {
    /// The tensor as `[batch, length, heads, width]`.
    heads: Shape,
    /// How many heads are rotated, from the first on.
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
            let what = format!("{rotated} of {slots} heads are to be rotated; give at most as many as there are");
            return Err(Error::Setting { op: OP, what });
        }
        Ok(Self { heads: Shape::from([shape[0], shape[1], slots, shape[2] / slots]), rotated })
    }
}

fn rotate(tensor: &Tensor, packing: Packing, options: RotaryOptions) -> Result<Tensor> {
    let operation = Operation::begin(OP, &[tensor]);
    tensor.check_float(OP)?;
    if !(options.base.is_finite() && options.base > 0.0) {
        let what = format!("the base is {}; give a number above 0", options.base);
        return Err(Error::Setting { op: OP, what });
    }
    let rotation = Rotation { base: options.base, first: options.first, back: false };
    let out = if tensor.is_free_to_write() && tensor.is_contiguous() {
        tensor.storage().changed();
        tensor.detach()
    } else {
        tensor.copied()?
    };
    turn(&out, packing, rotation)?;
    Ok(operation.record(out, &[tensor], |_| Rotary { packing, rotation: Rotation { back: true, ..rotation } }))
}

/// Turns what `packing` says of a contiguous tensor.
fn turn(tensor: &Tensor, packing: Packing, rotation: Rotation) -> Result<()> {
    let heads = tensor.layout().reshape(&packing.heads).expect("a contiguous tensor takes any shape without a copy");
    let layout = heads.narrow(OP, 2, 0, packing.rotated)?;
    backend::rotary(View { layout: &layout, ..tensor.view() }, rotation)
}

/// Turning is undone by turning back, and so is its gradient.
struct Rotary {
    packing: Packing,
    rotation: Rotation,
}

impl Gradient for Rotary {
    fn backward(self: Box<Self>, grad: Tensor, inputs: &mut InputGradients<'_>) -> Result<()> {
        let grad = if grad.is_free_to_write() && grad.is_contiguous() { grad } else { grad.copied()? };
        turn(&grad, self.packing, self.rotation)?;
        inputs.give(0, grad)
    }
}
