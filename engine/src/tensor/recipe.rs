//! Recipe: how to compute a tensor again, cheaply, from what its operation keeps for backward anyway.
//!
//! A linear layer keeps its input for backward, and GELU keeps its own: in a transformer's MLP that is two large buffers
//! where one would do, since GELU is cheap to compute again. So GELU's result carries a recipe, and whoever would save it
//! saves the recipe instead. Only operations that cost as little as reading and writing their tensors have recipes, and
//! the numbers computed again are the same to the bit.

use std::sync::{Arc, Weak};

use super::Tensor;
use crate::error::Result;

/// Computes a tensor again: contiguous, in new memory.
pub trait Recipe: Send + Sync {
    /// The tensor.
    fn compute(&self) -> Result<Tensor>;
}

/// A tensor's recipe. The operation owns it: once backward has passed that, there is none.
#[derive(Clone)]
pub(super) struct RecipeOf {
    recipe: Weak<dyn Recipe>,
    /// How often the memory had been changed in place. After a further change the recipe is for something else.
    version: u32,
}

impl Tensor {
    /// This tensor, just computed, with its recipe.
    pub(crate) fn with_recipe<R: Recipe + 'static>(mut self, recipe: &Arc<R>) -> Self {
        let version = self.storage().version();
        let whole = self.is_contiguous() && self.fills_storage();
        if let Some(inner) = Arc::get_mut(&mut self.0)
            && whole
        {
            let recipe: Weak<R> = Arc::downgrade(recipe);
            inner.recipe = Some(RecipeOf { recipe, version });
        }
        self
    }

    /// How to compute again the tensor that fills this tensor's memory, if that is known.
    pub(crate) fn recipe(&self) -> Option<Arc<dyn Recipe>> {
        let of = self.0.recipe.as_ref()?;
        if of.version == self.storage().version() { of.recipe.upgrade() } else { None }
    }
}
