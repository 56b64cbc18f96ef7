//! The groups of a comparison as a tree of keys and functions, for a flame graph.

use std::collections::HashMap;

use super::function::comparable_name;
use super::{Change, DiffGroup};
use crate::grouping::dimension::GroupKey;
use crate::stacks::frames::{leading_frame, stack_lines};
use highwater_snapshots::line_text::LineText;
use highwater_snapshots::tables::Tables;

/// Blocks of both sides that share a path. All sizes in bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiffNode {
    /// The last part of the path: a key value or a line of a stack; empty for the root.
    pub name: String,
    /// The parent node; the root is its own parent.
    pub parent: u32,
    /// The child nodes, widest first.
    pub children: Vec<u32>,
    /// The bytes in A and B.
    pub bytes: [u64; 2],
    /// The blocks in A and B.
    pub blocks: [u64; 2],
    /// The width of the node in a drawing: the sum, over its groups, of the larger of both sides' bytes.
    pub extent: u64,
    /// The first group that ends at this node, as an index into the groups passed to [`DiffTree::of`]; `None` if none
    /// ends here.
    pub group: Option<u32>,
}

impl DiffNode {
    /// B's bytes minus A's.
    pub fn delta(&self) -> i128 {
        i128::from(self.bytes[1]) - i128::from(self.bytes[0])
    }

    /// The change from A to B.
    pub fn change(&self) -> Change {
        Change::of(self.bytes, self.blocks)
    }
}

/// A tree of groups. Stacks start at their outermost function; functions are identified only by name, so that a caller
/// whose lines moved is a single node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiffTree {
    /// The root, then every node after its parent.
    pub nodes: Vec<DiffNode>,
}

impl DiffTree {
    /// The index of the root.
    pub const ROOT: u32 = 0;

    /// Builds the tree of `groups`, which must be grouped by `keys`. `stacks` returns the lines of a stack.
    pub fn of(groups: &[DiffGroup], keys: &[GroupKey], stacks: &StackText<'_>) -> Self {
        let mut tree = Self { nodes: vec![node(String::new(), Self::ROOT)] };
        let mut known: HashMap<(u32, String), u32> = HashMap::new();
        for (row, group) in groups.iter().enumerate() {
            tree.add(Self::ROOT, group);
            let mut at = Self::ROOT;
            for (part, name) in parts(group, keys, stacks) {
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
            // Stacks of the same functions at other lines end in one node, represented by the first, which differs
            // most.
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

    /// The nodes on the path from the root to `id`, without the root.
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
        for side in [0, 1] {
            node.bytes[side] += group.bytes[side];
            node.blocks[side] += group.blocks[side];
        }
        node.extent = node.extent.saturating_add(group.bytes[0].max(group.bytes[1]));
    }
}

fn node(name: String, parent: u32) -> DiffNode {
    DiffNode { name, parent, children: Vec::new(), bytes: [0; 2], blocks: [0; 2], extent: 0, group: None }
}

/// Settings that determine the lines of a group's stack.
#[derive(Clone, Copy, Debug)]
pub struct StackText<'a> {
    /// The tables of A and B.
    pub tables: [&'a Tables; 2],
    /// Whether to hide lines of the allocator and the framework.
    pub hides_internals: bool,
}

impl StackText<'_> {
    /// Returns the lines of a group's stack, innermost first, in B, or in A if B has no stack; empty without a stack.
    pub fn lines(&self, group: &DiffGroup) -> Vec<String> {
        let [a, b] = group.stacks;
        let (tables, stack) = if b.is_some() { (self.tables[1], b) } else { (self.tables[0], a) };
        let lines = stack_lines(tables, stack);
        if !self.hides_internals {
            return lines.into_iter().map(|line| line.text).collect();
        }
        let program_lines: Vec<String> =
            lines.into_iter().filter(|line| line.is_program).map(|line| line.text).collect();
        if program_lines.is_empty() {
            leading_frame(tables, stack).map(|frame| frame.text(tables)).into_iter().collect()
        } else {
            program_lines
        }
    }
}

/// The parts of a group's path: an identifier and a label for each.
fn parts(group: &DiffGroup, keys: &[GroupKey], stacks: &StackText<'_>) -> Vec<(String, String)> {
    let mut out = Vec::new();
    for (key, value) in keys.iter().zip(&group.key) {
        let lines = if *key == GroupKey::Stack { stacks.lines(group) } else { Vec::new() };
        if lines.is_empty() {
            out.push((value.clone(), value.clone()));
        }
        out.extend(lines.into_iter().rev().map(|line| (function_of(&line), line)));
    }
    out
}

/// Returns the function of a line, without parts that differ between builds.
fn function_of(line: &str) -> String {
    comparable_name(LineText::parse(line).function)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::question::diff::Asked;
    use crate::question::peak::Query;
    use crate::{Diff, Filter, LiveIndex, Metric, Series, Siblings, Source};
    use highwater_notation::trace_from_text;
    use highwater_snapshots::{DeviceId, Trace};

    /// Compares the peaks of two recordings as groups and as a tree.
    fn of(traces: [&Trace; 2], keys: &[GroupKey], hides_internals: bool) -> (Diff, DiffTree) {
        let index = traces.map(|trace| (Series::build(trace, DeviceId(0)), LiveIndex::build(trace, DeviceId(0))));
        let sides = [0, 1].map(|side| Asked { trace: traces[side], series: &index[side].0, live: &index[side].1 });
        let peak = |trace| Source::in_memory(trace).peak(DeviceId(0), Metric::Requested).unwrap();
        let moments = traces.map(peak);
        let filter = Filter::default();
        let query = Query { keys, top: usize::MAX, filter: &filter, siblings: Siblings::Each };
        let diff = Diff::of(sides, moments, &query);
        let stacks = StackText { tables: traces.map(|trace| &trace.tables), hides_internals };
        let tree = DiffTree::of(&diff.groups, keys, &stacks);
        (diff, tree)
    }

    #[test]
    fn what_lies_below_a_node_adds_up_to_it_on_both_sides_and_in_width() {
        let a = trace_from_text("alloc x 100 gradient @net.0\nalloc y 50 gradient @net.1\nalloc z 70 parameter @net.0")
            .unwrap();
        let b = trace_from_text("alloc y 80 gradient @net.1\nalloc z 70 parameter @net.0").unwrap();
        let (diff, tree) = of([&a, &b], &[GroupKey::Category, GroupKey::Scope], true);
        let root = tree.node(DiffTree::ROOT);
        assert_eq!((root.bytes, root.extent, root.delta()), ([220, 150], 250, diff.delta()));
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
        let a = trace_from_text("alloc x 10 < net.py:1 forward < train.py:3 main").unwrap();
        let b = trace_from_text(
            "alloc x 5 < net.py:1 forward < train.py:4 main\nalloc y 30 < net.py:2 backward < train.py:4 main",
        );
        let (diff, tree) = of([&a, &b.unwrap()], &[GroupKey::Stack], true);
        let main = tree.node(tree.node(DiffTree::ROOT).children[0]);
        assert!(main.name.starts_with("train.py:"), "{main:?}");
        assert_eq!(main.bytes, diff.bytes);
        let inner: Vec<(&str, [u64; 2])> =
            main.children.iter().map(|child| (tree.node(*child).name.as_str(), tree.node(*child).bytes)).collect();
        assert_eq!(inner, [("net.py:2 backward", [0, 30]), ("net.py:1 forward", [10, 5])]);
        let backward = tree.node(main.children[0]);
        assert_eq!(diff.groups[backward.group.unwrap() as usize].bytes[1], 30);
    }

    #[test]
    fn lines_of_the_machinery_are_left_out_where_that_is_asked_for() {
        let text = "alloc x 10 < alloc.cpp:1 c10::cuda::alloc < net.py:12 forward < train.py:3 main";
        let trace = trace_from_text(text).unwrap();
        let depth = |hides| of([&trace, &trace], &[GroupKey::Stack], hides).1.nodes.len() - 1;
        assert_eq!((depth(true), depth(false)), (2, 3));
    }

    #[test]
    fn nothing_gives_a_root_alone() {
        let trace = Trace::default();
        let (_, tree) = of([&trace, &trace], &[GroupKey::Category], true);
        assert_eq!((tree.nodes.len(), tree.node(DiffTree::ROOT).extent), (1, 0));
    }
}
