//! Shapes of tensors: an attribute of the blocks that were allocated for one.

use super::{Owner, Trace};
use crate::ids::BlockId;

/// The name of the attribute. Its value is a shape and a dtype, as `[4096, 4096] bfloat16`.
pub const SHAPE: &str = "shape";

impl Trace {
    /// The owner of the attributes of block `id`: its allocation, or the block itself if it has none.
    pub fn block_owner(&self, id: BlockId) -> Owner {
        let alloc = self.blocks.alloc[id.0 as usize];
        if alloc.is_some() { Owner::Event(alloc) } else { Owner::Block(id) }
    }

    /// The shape and dtype of the tensor that block `id` was allocated for; `None` if it was not recorded.
    pub fn shape(&self, id: BlockId) -> Option<&str> {
        let attributes = self.attributes_of(self.block_owner(id)).iter();
        let shape = attributes.rev().find(|fact| self.tables.string(fact.name) == SHAPE)?;
        Some(self.tables.string(shape.value))
    }
}
