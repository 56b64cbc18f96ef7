//! DiffTree: the groups of a comparison as a tree, key within key and function within function, for a flame graph.

use std::collections::HashMap;

use super::function::bare_name;
use super::{Change, DiffGroup};
use crate::analysis::group_key::GroupKey;

/// Blocks of both sides that share a path. All sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiffNode {
    /// The last part of the path: a value of a key, or a line of a stack; empty for the root.
    pub name: String,
    /// What it is part of; the root is part of itself.
    pub parent: u32,
    /// What it is made of, widest first.
    pub children: Vec<u32>,
    /// The bytes in A and B.
    pub bytes: [u64; 2],
    /// The blocks in A and B.
    pub blocks: [u64; 2],
    /// The sum, over its groups, of the bytes of the side that has more: what a picture of both needs.
    pub extent: u64,
    /// The group that ends here, by its row among those the tree was made of.
    pub group: Option<u32>,
}

impl DiffNode {
    /// B's bytes less A's.
    pub fn delta(&self) -> i128 {
        i128::from(self.bytes[1]) - i128::from(self.bytes[0])
    }

    /// What became of it.
    pub fn change(&self) -> Change {
        Change::of(self.bytes, self.blocks)
    }
}

/// Groups as a tree. Stacks are laid out from their outermost function; functions are told apart by their names alone,
/// so that a caller whose lines moved is one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiffTree {
    /// The root, then every node after what it is part of.
    pub nodes: Vec<DiffNode>,
}

impl DiffTree {
    /// The root.
    pub const ROOT: u32 = 0;

    /// The tree of `groups`, which were made by `keys`.
    pub fn of(groups: &[DiffGroup], keys: &[GroupKey]) -> Self {
        let mut tree = Self { nodes: vec![node(String::new(), Self::ROOT)] };
        let mut known: HashMap<(u32, String), u32> = HashMap::new();
        for (row, group) in groups.iter().enumerate() {
            tree.add(Self::ROOT, group);
            let mut at = Self::ROOT;
            for (part, name) in parts(group, keys) {
                at = match known.get(&(at, part.clone())) {
                    Some(&below) => below,
                    None => {
                        let below = tree.nodes.len() as u32;
                        tree.nodes.push(node(name, at));
                        tree.nodes[at as usize].children.push(below);
                        known.insert((at, part), below);
                        below
                    }
                };
                tree.add(at, group);
            }
            // Stacks of the same functions by other lines end in one place: the first, which differs most, stands for it.
            let end = &mut tree.nodes[at as usize];
            end.group = end.group.or(Some(row as u32));
        }
        let extents: Vec<u64> = tree.nodes.iter().map(|node| node.extent).collect();
        for node in &mut tree.nodes {
            node.children.sort_by_key(|child| (std::cmp::Reverse(extents[*child as usize]), *child));
        }
        tree
    }

    /// The node `id`.
    pub fn node(&self, id: u32) -> &DiffNode {
        &self.nodes[id as usize]
    }

    /// The way from the root to `id`, without the root.
    pub fn path(&self, id: u32) -> Vec<u32> {
        let mut path = Vec::new();
        let mut at = id;
        while at != Self::ROOT {
            path.push(at);
            at = self.node(at).parent;
        }
        path.reverse();
        path
    }

    fn add(&mut self, id: u32, group: &DiffGroup) {
        let node = &mut self.nodes[id as usize];
        let (bytes, blocks) = ([group.a_bytes, group.b_bytes], [group.a_blocks, group.b_blocks]);
        for side in [0, 1] {
            node.bytes[side] += bytes[side];
            node.blocks[side] += blocks[side];
        }
        node.extent = node.extent.saturating_add(group.a_bytes.max(group.b_bytes));
    }
}

fn node(name: String, parent: u32) -> DiffNode {
    DiffNode { name, parent, children: Vec::new(), bytes: [0; 2], blocks: [0; 2], extent: 0, group: None }
}

/// The parts of a group's path: by what each is told apart, and what it is called.
fn parts(group: &DiffGroup, keys: &[GroupKey]) -> Vec<(String, String)> {
    let mut out = Vec::new();
    for (key, value) in keys.iter().zip(&group.key) {
        if *key != GroupKey::Stack {
            out.push((value.clone(), value.clone()));
            continue;
        }
        // Innermost line first.
        out.extend(value.lines().rev().map(|line| (function_of(line), line.to_owned())));
    }
    out
}

/// The function of a line `function (file:line)`, as it is called whatever was built anew.
fn function_of(line: &str) -> String {
    let name = line.rsplit_once(" (").filter(|(_, place)| place.ends_with(')')).map_or(line, |(name, _)| name);
    bare_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::diff::Likeness;

    fn group(key: &[&str], bytes: [u64; 2]) -> DiffGroup {
        let [a_blocks, b_blocks] = bytes.map(|bytes| u64::from(bytes > 0));
        DiffGroup {
            key: key.iter().map(|&value| value.to_owned()).collect(),
            former_key: None,
            a_bytes: bytes[0],
            b_bytes: bytes[1],
            a_blocks,
            b_blocks,
            likeness: Likeness::Equal,
        }
    }

    #[test]
    fn what_lies_below_a_node_adds_up_to_it_on_both_sides_and_in_width() {
        let groups = [
            group(&["gradient", "layer.0"], [100, 0]),
            group(&["gradient", "layer.1"], [50, 80]),
            group(&["parameter", "layer.0"], [70, 70]),
        ];
        let tree = DiffTree::of(&groups, &[GroupKey::Category, GroupKey::Scope]);
        let root = tree.node(DiffTree::ROOT);
        assert_eq!((root.bytes, root.extent, root.delta()), ([220, 150], 250, -70));
        for id in 0..tree.nodes.len() as u32 {
            let node = tree.node(id);
            if node.children.is_empty() {
                continue;
            }
            let sum = |of: fn(&DiffNode) -> u64| node.children.iter().map(|child| of(tree.node(*child))).sum::<u64>();
            assert_eq!([sum(|child| child.bytes[0]), sum(|child| child.bytes[1])], node.bytes);
            assert_eq!(sum(|child| child.extent), node.extent);
        }
        let gradient = root.children[0];
        assert_eq!((tree.node(gradient).name.as_str(), tree.node(gradient).change()), ("gradient", Change::Shrunk));
        let changes = tree.node(gradient).children.iter().map(|child| tree.node(*child).change());
        assert_eq!(changes.collect::<Vec<_>>(), [Change::OnlyInA, Change::Grown]);
        assert_eq!(tree.path(tree.node(gradient).children[1]).len(), 2);
    }

    #[test]
    fn stacks_grow_from_their_outermost_function_and_callers_whose_lines_moved_are_one() {
        let groups = [
            group(&["forward (net.py:12)\nmain (train.py:3)"], [10, 0]),
            group(&["backward (net.py:40)\nmain (train.py:4)"], [0, 30]),
        ];
        let tree = DiffTree::of(&groups, &[GroupKey::Stack]);
        let main = tree.node(tree.node(DiffTree::ROOT).children[0]);
        assert_eq!((main.name.as_str(), main.bytes, main.extent), ("main (train.py:3)", [10, 30], 40));
        let inner: Vec<(&str, Option<u32>)> =
            main.children.iter().map(|child| (tree.node(*child).name.as_str(), tree.node(*child).group)).collect();
        assert_eq!(inner, [("backward (net.py:40)", Some(1)), ("forward (net.py:12)", Some(0))]);
    }

    #[test]
    fn nothing_gives_a_root_alone() {
        let tree = DiffTree::of(&[], &[GroupKey::Category]);
        assert_eq!((tree.nodes.len(), tree.node(DiffTree::ROOT).extent), (1, 0));
    }
}
