//! Tensor shapes, which are stored as an attribute of the blocks allocated for tensors.

use super::Trace;
use crate::ids::BlockId;

/// The name of the attribute. Its value is a shape and a dtype, such as `[4096, 4096] bfloat16`.
pub const SHAPE: &str = "shape";

impl Trace {
    /// The shape and dtype of the tensor that block `id` was allocated for; `None` if it was not recorded.
    pub fn shape(&self, id: BlockId) -> Option<&str> {
        let attributes = self.attributes_of(self.block_owner(id)).iter();
        let shape = attributes.rev().find(|fact| self.tables.string(fact.name) == SHAPE)?;
        Some(self.tables.string(shape.value))
    }
}
