//! Tensor shapes, which are stored as an attribute of the blocks allocated for tensors.

use super::{Owner, Trace};
use crate::ids::BlockId;

/// The name of the attribute. Its value is a shape and a dtype, such as `[4096, 4096] bfloat16`.
pub const SHAPE: &str = "shape";

impl Trace {
    /// The owner under which attributes of block `id` are stored: its alloc event, or the block itself if it has none.
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
