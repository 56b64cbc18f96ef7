//! Tree: bytes of a set of blocks as a tree, by one key or several: what treemaps and flame graphs are drawn from.

mod lines;
mod part;
mod build;
mod condition;

use highwater_snapshots::ids::{BlockId, StackId};
use highwater_snapshots::tables::Tables;

use super::group_key::GroupKey;

pub use part::Part;

use build::Level;
use lines::Lines;

/// What one level of a tree tells apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum TreeKey {
    /// The groups of a `--by` key. Module paths become one node a part, stacks one node a line.
    By(GroupKey),
    /// Every block by itself.
    Block,
}

impl TreeKey {
    /// Every key, as menus list them.
    pub fn all() -> impl Iterator<Item = Self> {
        GroupKey::ALL.iter().copied().map(Self::By).chain([Self::Block])
    }

    /// The one spelling.
    pub const fn name(self) -> &'static str {
        match self {
            Self::By(key) => key.name(),
            Self::Block => "block",
        }
    }
}

/// How a tree is made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TreeQuery {
    /// One level each, from the root.
    pub keys: Vec<TreeKey>,
    /// Whether stacks leave out the allocator, the framework and what lies below Python. Where all is machinery, the
    /// line that says most stands for it.
    pub hides_internals: bool,
    /// Whether stacks go from their innermost line outwards.
    pub is_inverted: bool,
}

/// Names a node of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The node that holds everything.
    pub const ROOT: Self = Self(0);

    #[inline]
    fn row(self) -> usize {
        self.0 as usize
    }
}

/// Whose a line of a stack is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// The program's that a person wrote.
    Program,
    /// A framework's, a runtime's, or below Python.
    Framework,
    /// An allocator's, or of what records it.
    Allocator,
}

/// A node: what its blocks share beyond those of its parent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// What they share.
    pub part: Part,
    /// The row of the key that tells this node from its siblings; 0 at the root.
    pub level: u8,
    /// Whose line it is, where it is one of a stack.
    pub role: Role,
    /// The parent; the root is its own.
    pub parent: NodeId,
    /// Bytes of all blocks below and in it.
    pub bytes: u64,
    /// Bytes of the blocks that end here and belong to none of its children.
    pub own_bytes: u64,
    /// All blocks below and in it.
    pub blocks: u32,
    /// The blocks that end here.
    pub own_blocks: u32,
    first_child: u32,
    children: u32,
}

impl Node {
    /// Its children, most bytes first, then by name.
    pub fn children(&self) -> impl DoubleEndedIterator<Item = NodeId> + ExactSizeIterator + use<> {
        (self.first_child..self.first_child + self.children).map(NodeId)
    }

    /// Whether it has any.
    pub fn is_leaf(&self) -> bool {
        self.children == 0
    }
}

/// A tree of bytes. Of every node, the children's bytes and its own add up to its bytes; the root's are all.
#[derive(Clone, Debug)]
pub struct Tree {
    query: TreeQuery,
    /// Parents before their children, siblings side by side.
    nodes: Vec<Node>,
    lines: Lines,
    beside: Vec<&'static str>,
    levels: Vec<Level>,
    blocks: Vec<BlockId>,
    /// The node at which each block ends.
    ends: Vec<NodeId>,
}

impl Tree {
    /// How it was made.
    pub fn query(&self) -> &TreeQuery {
        &self.query
    }

    /// How many nodes there are; at least the root.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether there is nothing but the root.
    pub fn is_empty(&self) -> bool {
        self.nodes.len() < 2
    }

    /// The node `id`; the root, if there is no such node.
    pub fn node(&self, id: NodeId) -> &Node {
        self.nodes.get(id.row()).unwrap_or(&self.nodes[0])
    }

    /// Every node, parents before their children, siblings from most bytes to least.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = NodeId> + ExactSizeIterator + use<> {
        (0..self.nodes.len() as u32).map(NodeId)
    }

    /// All bytes.
    pub fn total(&self) -> u64 {
        self.nodes[0].bytes
    }

    /// The nodes from below the root down to `id`.
    pub fn path(&self, id: NodeId) -> Vec<NodeId> {
        let above = |id: &NodeId| (*id != NodeId::ROOT).then(|| self.node(*id).parent);
        let mut path: Vec<NodeId> = std::iter::successors(Some(id), above).filter(|id| *id != NodeId::ROOT).collect();
        path.reverse();
        path
    }

    /// Whether `id` is `above` or lies below it.
    pub fn is_within(&self, id: NodeId, above: NodeId) -> bool {
        // A parent's row is always the smaller one.
        let mut at = id;
        while at > above {
            at = self.node(at).parent;
        }
        at == above
    }

    /// What the blocks of `id` share beyond those of its parent: a category, a part of a module path, a stack's line.
    pub fn name(&self, tables: &Tables, id: NodeId) -> String {
        self.node(id).part.name(tables, &self.lines, &self.beside)
    }

    /// The nodes at which blocks end within `top`, or bytes that no block accounts for: these are disjoint and add up
    /// to its bytes. In the order of [`Self::ids`].
    pub fn ends(&self, top: NodeId) -> Vec<NodeId> {
        let within = self.marked(top);
        let is_end = |id: &NodeId| {
            let node = self.node(*id);
            within[id.row()] && (node.own_blocks > 0 || node.own_bytes > 0)
        };
        self.ids().filter(is_end).collect()
    }

    /// The blocks of a node, in the order in which they were given.
    pub fn blocks_of(&self, id: NodeId) -> Vec<BlockId> {
        let within = self.marked(id);
        let ends = self.blocks.iter().zip(&self.ends);
        ends.filter(|(_, end)| within[end.row()]).map(|(block, _)| *block).collect()
    }

    /// For each node, whether it is `top` or below it.
    fn marked(&self, top: NodeId) -> Vec<bool> {
        let mut within = vec![false; self.nodes.len()];
        within[top.row().min(self.nodes.len() - 1)] = true;
        for row in top.row() + 1..self.nodes.len() {
            within[row] = within[self.nodes[row].parent.row()];
        }
        within
    }

    /// A stack that ends at `id` or below it, if the tree is of stacks.
    pub fn stack_of(&self, id: NodeId) -> Option<StackId> {
        let row = self.query.keys.iter().position(|key| *key == TreeKey::By(GroupKey::Stack))?;
        let level = self.levels.get(row)?;
        let stack = level.chains.iter().find(|chain| self.is_within(chain.end, id) || self.is_within(id, chain.end))?;
        Some(StackId(stack.code as u32))
    }
}

#[cfg(test)]
mod tests;
