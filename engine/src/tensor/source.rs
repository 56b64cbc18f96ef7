//! Tensors that an operation has read but not saved, for recipes that use tensors saved by other operations.

use std::sync::{Arc, Weak};

use highwater_recorder::Category;

use super::Tensor;
use super::recipe::{Recipe, RecipeOf};
use crate::storage::Storage;
use crate::{DType, Error, Layout, Result};

pub(crate) struct Source {
    storage: Weak<Storage>,
    layout: Layout,
    dtype: DType,
    version: u32,
    recipe: Option<RecipeOf>,
}

impl Source {
    /// References `tensor` without keeping it live.
    pub(crate) fn of(tensor: &Tensor) -> Self {
        Self {
            storage: Arc::downgrade(tensor.storage()),
            layout: *tensor.layout(),
            dtype: tensor.dtype(),
            version: tensor.storage().version(),
            recipe: tensor.0.recipe.clone(),
        }
    }

    /// Returns the tensor for a recipe of `bytes` bytes, if it can be kept without further memory. It is either the
    /// tensor's own recipe, or memory that is already saved for backward. That memory is saved by an earlier operation,
    /// whose backward runs later, so it stays live long enough. If that operation is dropped without its backward, the
    /// recipe keeps the memory live in place of the tensor that would have been saved. The memory must therefore not be
    /// larger, unless the program keeps it anyway.
    pub(crate) fn ingredient(&self, bytes: u64) -> Option<Ingredient> {
        if let Some(recipe) = self.recipe.as_ref().and_then(|recipe| recipe.current(self.version)) {
            return Some(Ingredient::Recipe { recipe, layout: self.layout });
        }
        let storage = self.storage.upgrade()?;
        let is_the_programs = matches!(storage.category(), Category::Parameter | Category::Buffer | Category::Input);
        // A model keeps its parameters live whether they are saved for backward or not.
        let is_a_parameter = storage.category() == Category::Parameter;
        let is_kept = is_a_parameter || storage.is_saved() && (is_the_programs || storage.bytes() as u64 <= bytes);
        if !is_kept || storage.version() != self.version {
            return None;
        }
        let tensor = Tensor::from_parts(storage, self.layout, self.dtype);
        Some(Ingredient::Memory { tensor, version: self.version })
    }
}

/// An input of a recipe.
pub(crate) enum Ingredient {
    /// A tensor that others also keep live.
    Memory {
        tensor: Tensor,
        /// The number of in-place changes of the memory when it was read.
        version: u32,
    },
    /// A view of a tensor that is recomputed itself.
    Recipe {
        recipe: Arc<dyn Recipe>,
        /// The layout of the view within the recomputed tensor.
        layout: Layout,
    },
}

impl Ingredient {
    /// Returns the tensor for operation `op`. Fails if it was changed in place since it was read.
    pub(crate) fn get(&self, op: &'static str) -> Result<Tensor> {
        match self {
            Self::Memory { tensor, version } if tensor.storage().version() == *version => Ok(tensor.detach()),
            Self::Memory { .. } => Err(Error::Overwritten { op }),
            Self::Recipe { recipe, layout } => Ok(recipe.compute()?.with_layout(*layout)),
        }
    }
}
