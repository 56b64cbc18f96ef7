//! Recipes that cheaply recompute a tensor from tensors that its operation saves for backward anyway.
//!
//! A linear layer saves its input for backward, and so does GELU. In a transformer's MLP, these are two large buffers
//! where one suffices, since GELU is cheap to recompute. GELU's result therefore has a recipe, and an operation that
//! would save the result saves the recipe instead. Only operations that cost no more than reading and writing their
//! tensors have recipes, and the recomputed elements are equal to the bit.
//!
//! Some operations, such as a concatenation, save nothing themselves. Their results have an `Offer`, a recipe that is
//! valid as long as other operations save its inputs.

use std::sync::{Arc, Weak};

use super::Tensor;
use crate::Result;

/// Recomputes a tensor, contiguous and in new memory.
pub trait Recipe: Send + Sync {
    /// Recomputes the tensor.
    ///
    /// # Errors
    /// Fails if an input was changed in place, or if memory runs out.
    fn compute(&self) -> Result<Tensor>;
}

/// A recipe that may or may not be available.
pub(crate) trait Offer: Send + Sync {
    /// Returns the recipe; `None` if storing it would keep further memory live.
    fn recipe(self: Arc<Self>) -> Option<Arc<dyn Recipe>>;
}

impl<R: Recipe + 'static> Offer for R {
    fn recipe(self: Arc<Self>) -> Option<Arc<dyn Recipe>> {
        Some(self)
    }
}

#[derive(Clone)]
pub(super) struct RecipeOf {
    owner: Owner,
    /// The number of in-place changes of the memory at the creation of the recipe. A further change makes the recipe
    /// invalid.
    version: u32,
}

#[derive(Clone)]
enum Owner {
    /// Owned by the operation, and dropped once backward has passed it.
    Operation(Weak<dyn Offer>),
    /// Owned by the tensor and its views, since no gradient flows through the operation.
    Tensor(Arc<dyn Offer>),
}

impl RecipeOf {
    /// Returns the recipe of memory that has been changed in place `version` times; `None` if the recipe is older or no
    /// longer available.
    pub(super) fn current(&self, version: u32) -> Option<Arc<dyn Recipe>> {
        if self.version != version {
            return None;
        }
        match &self.owner {
            Owner::Operation(offer) => offer.upgrade()?.recipe(),
            Owner::Tensor(offer) => offer.clone().recipe(),
        }
    }
}

impl Tensor {
    /// Attaches a recipe, owned by the operation, to this computed tensor, if the tensor has no other handle and fills
    /// its memory contiguously.
    pub(crate) fn with_recipe<O: Offer + 'static>(self, offer: &Arc<O>) -> Self {
        let offer: Weak<O> = Arc::downgrade(offer);
        self.with_owner(Owner::Operation(offer))
    }

    /// Attaches a recipe to this tensor, computed without a gradient, under the same conditions.
    pub(crate) fn with_own_recipe<O: Offer + 'static>(self, offer: Arc<O>) -> Self {
        self.with_owner(Owner::Tensor(offer))
    }

    fn with_owner(mut self, owner: Owner) -> Self {
        let version = self.storage().version();
        let whole = self.is_contiguous() && self.fills_storage();
        if let Some(inner) = Arc::get_mut(&mut self.0)
            && whole
        {
            inner.recipe = Some(RecipeOf { owner, version });
        }
        self
    }

    /// Returns the recipe of the tensor that fills this tensor's memory, if it has one that is still valid.
    pub(crate) fn recipe(&self) -> Option<Arc<dyn Recipe>> {
        self.0.recipe.as_ref()?.current(self.storage().version())
    }
}
