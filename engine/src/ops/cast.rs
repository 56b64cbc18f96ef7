//! Casts to another element type.

use std::sync::Arc;

use crate::autograd::{Ingredient, Offer, Operation, Recipe, Source, gradient};
use crate::{DType, Result, Tensor};

impl Tensor {
    /// Returns the elements in another data type, or this tensor if it already has that type. Saves nothing for
    /// backward. An operation that would save the result converts the input again in backward if the input is a
    /// parameter, can itself be recomputed, or is saved by other operations. An input that is larger than the result
    /// must then be a buffer or an input of the model.
    ///
    /// # Errors
    /// Fails if memory runs out.
    pub fn to_dtype(&self, dtype: DType) -> Result<Self> {
        if self.dtype() == dtype {
            return Ok(self.clone());
        }
        let operation = Operation::begin("to_dtype", &[self]);
        let out = self.converted(dtype)?;
        if !dtype.is_float() || !Operation::is_recording() {
            return Ok(out);
        }
        let known = Arc::new(Known { source: Source::of(self), dtype, bytes: out.bytes() });
        if !Operation::is_recorded(&[self]) {
            return Ok(out.with_own_recipe(known));
        }
        let (offer, from) = (known.clone(), self.dtype());
        let back = gradient(move |grad, inputs| {
            // Backward needs nothing from it; it keeps the result's recipe live.
            let _recipe = known;
            inputs.give(0, grad.converted(from)?)
        });
        Ok(operation.record(out, &[self], |_| back).with_recipe(&offer))
    }
}

struct Known {
    source: Source,
    dtype: DType,
    bytes: u64,
}

impl Offer for Known {
    fn recipe(self: Arc<Self>) -> Option<Arc<dyn Recipe>> {
        Some(Arc::new(CastRecipe { input: self.source.ingredient(self.bytes)?, dtype: self.dtype }))
    }
}

struct CastRecipe {
    input: Ingredient,
    dtype: DType,
}

impl Recipe for CastRecipe {
    fn compute(&self) -> Result<Tensor> {
        self.input.get("to_dtype")?.into_order()?.converted(self.dtype)
    }
}
