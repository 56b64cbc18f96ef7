//! Concatenates tensors along an axis.

use std::sync::Arc;

use crate::autograd::{Ingredient, Offer, Operation, Recipe, Source, gradient};
use crate::backend::{self, View};
use crate::{DType, Device, Error, Result, Shape, Tensor};

impl Tensor {
    /// Concatenates tensors along `axis`. Their other axes must be equal. Saves nothing for backward. An operation that
    /// would save the result concatenates the parts again in backward if each part is saved by another operation, is a
    /// parameter, or can itself be recomputed.
    ///
    /// # Errors
    /// Fails if there are no tensors, if shapes or data types do not match, or if memory runs out.
    pub fn concat(tensors: &[&Self], axis: isize) -> Result<Self> {
        let op = "concat";
        let operation = Operation::begin(op, tensors);
        let Some(first) = tensors.first() else {
            return Err(Error::Setting { op, what: "no tensors; expected at least one".to_owned() });
        };
        let axis = first.shape().axis(op, axis)?;
        let mut length = 0;
        for tensor in tensors {
            first.check_operand(op, tensor)?;
            if tensor.rank() != first.rank() || tensor.shape().with_axis(axis, 0) != first.shape().with_axis(axis, 0) {
                return Err(Error::shapes(
                    op,
                    first.shape(),
                    tensor.shape(),
                    "expected equal lengths of all axes except the concatenated one",
                ));
            }
            length += tensor.shape()[axis];
        }
        let out = Self::empty(first.shape().with_axis(axis, length), first.dtype(), first.device())?;
        let mut start = 0;
        for tensor in tensors {
            put(&out, axis, &mut start, tensor)?;
        }
        let joined = Joined { axis, shape: *out.shape(), dtype: out.dtype(), device: out.device().clone() };
        let parts = || Parts {
            sources: tensors.iter().map(|tensor| Source::of(tensor)).collect(),
            lengths: tensors.iter().map(|tensor| tensor.shape()[axis]).collect(),
            joined,
        };
        // Each input's gradient is a view of its part of the result's gradient.
        Ok(operation.record_known(out, tensors, parts, |parts| {
            gradient(move |grad, inputs| {
                let mut start = 0;
                for (input, &length) in parts.lengths.iter().enumerate() {
                    if inputs.needs(input) {
                        let layout = grad.layout().narrow("concat", parts.joined.axis, start, length)?;
                        inputs.give(input, grad.with_layout(layout))?;
                    }
                    start += length;
                }
                Ok(())
            })
        }))
    }

    /// Stacks tensors of the same shape along a new axis before axis `axis`, where −1 puts it last.
    ///
    /// # Errors
    /// See [`Self::concat`].
    pub fn stack(tensors: &[&Self], axis: isize) -> Result<Self> {
        if let Some(first) = tensors.first()
            && let Some(other) = tensors.iter().find(|tensor| tensor.shape() != first.shape())
        {
            return Err(Error::shapes("stack", first.shape(), other.shape(), "all tensors must have the same shape"));
        }
        let with_axis = tensors.iter().map(|tensor| tensor.unsqueeze(axis)).collect::<Result<Vec<Self>>>()?;
        Self::concat(&with_axis.iter().collect::<Vec<_>>(), axis)
    }
}

/// Copies `part` to its position in `out`, from `start` on.
fn put(out: &Tensor, axis: usize, start: &mut usize, part: &Tensor) -> Result<()> {
    let length = part.shape()[axis];
    let layout = out.layout().narrow("concat", axis, *start, length)?;
    *start += length;
    backend::copy(View { layout: &layout, ..out.view() }, part.view())
}

#[derive(Clone)]
struct Joined {
    axis: usize,
    shape: Shape,
    dtype: DType,
    device: Device,
}

/// The tensors of a concatenation, without references that would keep their memory live.
struct Parts {
    sources: Vec<Source>,
    lengths: Vec<usize>,
    joined: Joined,
}

impl Offer for Parts {
    fn recipe(self: Arc<Self>) -> Option<Arc<dyn Recipe>> {
        let bytes = self.joined.shape.elements() as u64 * self.joined.dtype.size() as u64;
        let parts = self.sources.iter().map(|source| source.ingredient(bytes)).collect::<Option<Vec<_>>>()?;
        Some(Arc::new(ConcatRecipe { parts, joined: self.joined.clone() }))
    }
}

/// The tensors of a concatenation, with references that keep their memory live.
struct ConcatRecipe {
    parts: Vec<Ingredient>,
    joined: Joined,
}

impl Recipe for ConcatRecipe {
    fn compute(&self) -> Result<Tensor> {
        let Joined { axis, shape, dtype, device } = &self.joined;
        let out = Tensor::empty(shape, *dtype, device)?;
        let mut start = 0;
        for part in &self.parts {
            put(&out, *axis, &mut start, &part.get("concat")?)?;
        }
        Ok(out)
    }
}
