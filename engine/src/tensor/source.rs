//! Tensors that an operation has read but does not keep, for recipes built on what others keep.

use std::sync::{Arc, Weak};

use highwater_recorder::Category;

use super::Tensor;
use super::recipe::{Recipe, RecipeOf};
use crate::dtype::DType;
use crate::error::{Error, Result};
use crate::layout::Layout;
use crate::storage::Storage;

/// A tensor that was read.
pub(crate) struct Source {
    storage: Weak<Storage>,
    layout: Layout,
    dtype: DType,
    version: u32,
    recipe: Option<RecipeOf>,
}

impl Source {
    /// Remembers `tensor` without holding it.
    pub(crate) fn of(tensor: &Tensor) -> Self {
        Self {
            storage: Arc::downgrade(tensor.storage()),
            layout: *tensor.layout(),
            dtype: tensor.dtype(),
            version: tensor.storage().version(),
            recipe: tensor.0.recipe.clone(),
        }
    }

    /// The tensor to hold for a recipe of `bytes` bytes, if holding it takes no further memory: its own recipe; or
    /// memory that is kept for backward already. What keeps that is an earlier operation, whose backward comes later,
    /// so it lives long enough in any case. If that operation should be dropped without its backward, the memory is
    /// held in place of what would have been saved, and must be no larger, unless the program has it anyway.
    pub(crate) fn ingredient(&self, bytes: u64) -> Option<Ingredient> {
        if let Some(recipe) = self.recipe.as_ref().and_then(|recipe| recipe.current(self.version)) {
            return Some(Ingredient::Recipe { recipe, layout: self.layout });
        }
        let storage = self.storage.upgrade()?;
        let is_the_programs = matches!(storage.category(), Category::Parameter | Category::Buffer | Category::Input);
        // A model holds its parameters whether they are kept for backward or not.
        let is_a_parameter = storage.category() == Category::Parameter;
        let is_kept = is_a_parameter || storage.is_saved() && (is_the_programs || storage.bytes() as u64 <= bytes);
        if !is_kept || storage.version() != self.version {
            return None;
        }
        let tensor = Tensor::from_parts(storage, self.layout, self.dtype);
        Some(Ingredient::Memory { tensor, version: self.version })
    }
}

/// What a recipe is made from.
pub(crate) enum Ingredient {
    /// A tensor that others keep too.
    Memory {
        /// The tensor.
        tensor: Tensor,
        /// How often its memory had been changed in place.
        version: u32,
    },
    /// A view of a tensor that is recomputed itself.
    Recipe {
        /// How.
        recipe: Arc<dyn Recipe>,
        /// The view.
        layout: Layout,
    },
}

impl Ingredient {
    /// Gives the tensor to operation `op`. Fails if it was changed in place since.
    pub(crate) fn get(&self, op: &'static str) -> Result<Tensor> {
        match self {
            Self::Memory { tensor, version } if tensor.storage().version() == *version => Ok(tensor.detach()),
            Self::Memory { .. } => Err(Error::Overwritten { op }),
            Self::Recipe { recipe, layout } => Ok(recipe.compute()?.with_layout(*layout)),
        }
    }
}
