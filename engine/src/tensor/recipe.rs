//! Recipes that cheaply recompute a tensor from what its operation keeps for backward anyway.
//!
//! A linear layer keeps its input for backward, and GELU keeps its own: in a transformer's MLP that is two large
//! buffers where one would do, since GELU is cheap to compute again. So GELU's result carries a recipe, and whoever
//! would save it saves the recipe instead. Only operations that cost as little as reading and writing their tensors
//! have recipes, and the elements recomputed are the same to the bit.
//!
//! Some operations, such as a concatenation, keep nothing themselves. Their results carry an `Offer`: a recipe for as
//! long as others keep what it is made from.

use std::sync::{Arc, Weak};

use super::Tensor;
use crate::error::Result;

/// Computes a tensor again: contiguous, in new memory.
pub trait Recipe: Send + Sync {
    /// The tensor.
    fn compute(&self) -> Result<Tensor>;
}

/// What is a recipe if the time is right.
pub(crate) trait Offer: Send + Sync {
    /// The recipe, if keeping that takes no memory beside what is kept already.
    fn recipe(self: Arc<Self>) -> Option<Arc<dyn Recipe>>;
}

impl<R: Recipe + 'static> Offer for R {
    fn recipe(self: Arc<Self>) -> Option<Arc<dyn Recipe>> {
        Some(self)
    }
}

/// A tensor's recipe.
#[derive(Clone)]
pub(super) struct RecipeOf {
    owner: Owner,
    /// How often the memory had been changed in place. After a further change the recipe is for something else.
    version: u32,
}

#[derive(Clone)]
enum Owner {
    /// The operation owns it: once backward has passed that, there is none.
    Operation(Weak<dyn Offer>),
    /// No gradient flows through the operation, so the tensor and its views own it.
    Tensor(Arc<dyn Offer>),
}

impl RecipeOf {
    /// The recipe of memory that has been changed in place `version` times.
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
    /// This tensor, just computed, with its recipe, which the operation owns.
    pub(crate) fn with_recipe<O: Offer + 'static>(self, offer: &Arc<O>) -> Self {
        let offer: Weak<O> = Arc::downgrade(offer);
        self.with_owner(Owner::Operation(offer))
    }

    /// This tensor, just computed without a gradient, with its recipe.
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

    /// How to compute again the tensor that fills this tensor's memory, if that is known.
    pub(crate) fn recipe(&self) -> Option<Arc<dyn Recipe>> {
        self.0.recipe.as_ref()?.current(self.storage().version())
    }
}
