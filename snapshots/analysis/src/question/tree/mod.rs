//! Groups a set of blocks into a tree by one or more keys. Used by treemaps and flame graphs.

mod lines;
mod part;
mod build;
mod condition;

use highwater_snapshots::ids::{BlockId, StackId};
use highwater_snapshots::tables::Tables;

use crate::grouping::dimension::GroupKey;

pub use part::Part;

use build::Level;
use lines::Lines;

/// The key of one level of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub enum TreeKey {
    /// The groups of a `--by` key. Module paths become one node per part, stacks one node per line.
    By(GroupKey),
    /// Each block as a separate group.
    Block,
}

impl From<GroupKey> for TreeKey {
    fn from(key: GroupKey) -> Self {
        Self::By(key)
    }
}

impl TreeKey {
    /// Every key, in menu order.
    pub fn all() -> impl Iterator<Item = Self> {
        GroupKey::ALL.iter().copied().map(Self::By).chain([Self::Block])
    }

    /// The name of the key, as in `--by`.
    pub fn name(self) -> &'static str {
        match self {
            Self::By(key) => key.name(),
            Self::Block => "block",
        }
    }
}

/// The options of a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TreeQuery {
    /// The key of each level, from the root.
    pub keys: Vec<TreeKey>,
    /// Whether to hide stack lines of the allocator, of the framework and below Python code. If no other lines remain,
    /// the most informative line represents the stack.
    pub hides_internals: bool,
    /// Whether stacks start at their innermost line.
    pub is_inverted: bool,
}

/// Identifies a node of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u32);

impl NodeId {
    /// The node that contains everything.
    pub const ROOT: Self = Self(0);

    #[inline]
    fn row(self) -> usize {
        self.0 as usize
    }
}

/// The owner of the code at a line of a stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LineRole {
    /// The user's own code.
    Program,
    /// Code of a framework or a runtime, or a native frame below Python code.
    Framework,
    /// An allocator or a recorder.
    Allocator,
}

/// A node: the blocks of its parent that share a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// The shared value.
    pub part: Part,
    /// The index of the node's key in the query; 0 at the root.
    pub level: u8,
    /// The owner of the code, for a stack line.
    pub role: LineRole,
    /// The parent; the root is its own parent.
    pub parent: NodeId,
    /// Bytes of the node, including its children's, of blocks and outside of blocks.
    pub bytes: u64,
    /// Bytes of this node that are in none of its children.
    pub own_bytes: u64,
    /// Number of blocks in the node, including its children's.
    pub blocks: u32,
    /// Number of blocks at this node that are in none of its children.
    pub own_blocks: u32,
    first_child: u32,
    children: u32,
}

impl Node {
    /// The children, largest first, then by name.
    pub fn children(&self) -> impl DoubleEndedIterator<Item = NodeId> + ExactSizeIterator + use<> {
        (self.first_child..self.first_child + self.children).map(NodeId)
    }

    /// Returns whether the node has no children.
    pub fn is_leaf(&self) -> bool {
        self.children == 0
    }
}

/// A tree of bytes. The bytes of a node are its own bytes plus those of its children. The bytes of the root are the
/// total.
#[derive(Clone, Debug)]
pub struct Tree {
    query: TreeQuery,
    /// The nodes: parents before their children, siblings consecutively.
    nodes: Vec<Node>,
    lines: Lines,
    levels: Vec<Level>,
    blocks: Vec<BlockId>,
    /// The deepest node of each block.
    ends: Vec<NodeId>,
}

impl Tree {
    /// The query for which the tree was built.
    pub fn query(&self) -> &TreeQuery {
        &self.query
    }

    /// Number of nodes; at least 1, the root.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether the root is the only node.
    pub fn is_empty(&self) -> bool {
        self.nodes.len() < 2
    }

    /// The node `id`; the root if it does not exist.
    pub fn node(&self, id: NodeId) -> &Node {
        self.nodes.get(id.row()).unwrap_or(&self.nodes[0])
    }

    /// Returns every node, parents before their children, siblings ordered by size, the largest first.
    pub fn ids(&self) -> impl DoubleEndedIterator<Item = NodeId> + ExactSizeIterator + use<> {
        (0..self.nodes.len() as u32).map(NodeId)
    }

    /// The total bytes of the tree.
    pub fn total(&self) -> u64 {
        self.nodes[0].bytes
    }

    /// The nodes on the path to `id`, without the root.
    pub fn path(&self, id: NodeId) -> Vec<NodeId> {
        let above = |id: &NodeId| (*id != NodeId::ROOT).then(|| self.node(*id).parent);
        let mut path: Vec<NodeId> = std::iter::successors(Some(id), above).filter(|id| *id != NodeId::ROOT).collect();
        path.reverse();
        path
    }

    /// Returns whether `id` is `above` or one of its descendants.
    pub fn is_within(&self, id: NodeId, above: NodeId) -> bool {
        // A parent's row is always smaller.
        let mut at = id;
        while at > above {
            at = self.node(at).parent;
        }
        at == above
    }

    /// Returns the name of `id`, such as a category, a part of a module path, or a line of a stack.
    pub fn name(&self, tables: &Tables, id: NodeId) -> String {
        self.node(id).part.name(tables, &self.lines)
    }

    /// Returns `top` and its descendants that have bytes of their own (not only in children), from blocks or from
    /// memory outside of blocks, in the order of [`Self::ids`]. These bytes add up to the bytes of `top`.
    pub fn ends(&self, top: NodeId) -> Vec<NodeId> {
        let within = self.marked(top);
        let is_end = |id: &NodeId| {
            let node = self.node(*id);
            within[id.row()] && (node.own_blocks > 0 || node.own_bytes > 0)
        };
        self.ids().filter(is_end).collect()
    }

    /// The blocks, each with its deepest node.
    pub fn blocks(&self) -> impl Iterator<Item = (BlockId, NodeId)> {
        self.blocks.iter().copied().zip(self.ends.iter().copied())
    }

    /// The blocks of a node, in input order.
    pub fn blocks_of(&self, id: NodeId) -> Vec<BlockId> {
        let within = self.marked(id);
        self.blocks().filter(|(_, end)| within[end.row()]).map(|(block, _)| block).collect()
    }

    /// Returns, for each node, whether it is `top` or a descendant of `top`.
    fn marked(&self, top: NodeId) -> Vec<bool> {
        let mut within = vec![false; self.nodes.len()];
        within[top.row().min(self.nodes.len() - 1)] = true;
        for row in top.row() + 1..self.nodes.len() {
            within[row] = within[self.nodes[row].parent.row()];
        }
        within
    }

    /// Returns the stack of some block at `id`, or at one of its descendants or ancestors; `None` if the tree has no
    /// stacks.
    pub fn stack_of(&self, id: NodeId) -> Option<StackId> {
        let row = self.query.keys.iter().position(|key| *key == TreeKey::By(GroupKey::Stack))?;
        let level = self.levels.get(row)?;
        let stack = level.chains.iter().find(|chain| self.is_within(chain.end, id) || self.is_within(id, chain.end))?;
        Some(StackId(stack.row()))
    }
}

#[cfg(test)]
mod tests;
