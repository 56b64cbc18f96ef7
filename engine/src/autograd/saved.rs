//! Tensors saved in forward for backward.

use std::sync::Arc;

use super::frame::{self, Slot, Verdict};
use crate::tensor::grad_mode::recomputes;
use crate::tensor::recipe::Recipe;
use crate::{Error, Layout, Result, Tensor};

/// A tensor saved for backward, as its memory or as a recipe to recompute it. It has no history, so the graph contains
/// no cycle. Saved memory is an activation in recordings, unless it has another category, such as parameter. In a
/// [checkpointed](super::checkpoint()) part only recipes are saved, because the part runs again.
pub struct Saved(Kept);

enum Kept {
    Memory { tensor: Counted, version: u32 },
    Recipe { recipe: Arc<dyn Recipe>, layout: Layout },
    Slot(Slot),
}

impl Saved {
    /// Saves `tensor`, or its recipe if it has one.
    pub fn new(tensor: &Tensor) -> Self {
        let recipe = tensor.recipe().filter(|_| recomputes());
        Self::either(tensor, recipe)
    }

    /// Saves `tensor` itself.
    pub fn memory(tensor: &Tensor) -> Self {
        Self::either(tensor, None)
    }

    fn either(tensor: &Tensor, recipe: Option<Arc<dyn Recipe>>) -> Self {
        match (frame::verdict(tensor, recipe.is_some()), recipe) {
            (Verdict::Await(slot), _) => return Self(Kept::Slot(slot)),
            // Even if it is to be forgotten: its memory is then free at once, and not only when the part has run.
            (_, Some(recipe)) => return Self(Kept::Recipe { recipe, layout: *tensor.layout() }),
            (Verdict::Keep, None) => tensor.storage().tag_saved(),
            (Verdict::Forget, None) => {}
        }
        Self(Kept::Memory { tensor: Counted::new(tensor), version: tensor.storage().version() })
    }

    /// Returns the tensor for operation `op`.
    ///
    /// # Errors
    /// Fails if the tensor was changed in place since it was saved, or if memory runs out.
    pub fn get(&self, op: &'static str) -> Result<Tensor> {
        match &self.0 {
            Kept::Memory { tensor, version } if tensor.0.storage().version() == *version => Ok(tensor.0.detach()),
            Kept::Memory { .. } => Err(Error::Overwritten { op }),
            Kept::Recipe { recipe, layout } => Ok(recipe.compute()?.with_layout(*layout)),
            Kept::Slot(slot) => slot.get(op),
        }
    }

    /// Like [`Self::get`], but releases the tensor. If its memory is not shared, it may be overwritten.
    ///
    /// # Errors
    /// See [`Self::get`].
    pub fn take(self, op: &'static str) -> Result<Tensor> {
        self.get(op)
    }
}

/// A tensor that counts, in its storage, how often it is saved.
struct Counted(Tensor);

impl Counted {
    fn new(tensor: &Tensor) -> Self {
        tensor.storage().count_saver(true);
        Self(tensor.detach())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.storage().count_saver(false);
    }
}
