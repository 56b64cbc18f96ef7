//! The call stacks of one side as a tree of functions, outermost first, ignoring lines and files.

use std::collections::HashMap;

use highwater_snapshots::ids::StackId;
use highwater_snapshots::intern::Interner;
use highwater_snapshots::tables::Tables;

use super::function::comparable_name;

pub(super) type Names = Interner<String>;

#[derive(Debug, Default)]
pub(super) struct PathNode {
    /// The id of the function's name in [`Names`].
    pub(super) name: u32,
    /// The nodes of the called functions, by name.
    pub(super) calls: HashMap<u32, u32>,
    /// The stacks that end at this function, ordered by line.
    pub(super) ends: Vec<StackId>,
}

#[derive(Debug)]
pub(super) struct Paths {
    /// The root, which is not a function, followed by the functions, callers first.
    pub(super) nodes: Vec<PathNode>,
}

impl Paths {
    /// Builds the tree of `stacks`, which must be distinct.
    pub(super) fn of(tables: &Tables, stacks: impl Iterator<Item = StackId>, names: &mut Names) -> Self {
        let mut paths = Self { nodes: vec![PathNode { name: u32::MAX, ..PathNode::default() }] };
        let mut known: HashMap<(u32, u32), u32> = HashMap::new();
        for stack in stacks {
            let mut at = 0;
            for name in functions(tables, stack, names, &mut known) {
                at = paths.call(at, name);
            }
            paths.nodes[at as usize].ends.push(stack);
        }
        for node in &mut paths.nodes {
            node.ends.sort_by_cached_key(|stack| lines(tables, *stack));
        }
        paths
    }

    fn call(&mut self, from: u32, name: u32) -> u32 {
        if let Some(&node) = self.nodes[from as usize].calls.get(&name) {
            return node;
        }
        let node = self.nodes.len() as u32;
        self.nodes.push(PathNode { name, ..PathNode::default() });
        self.nodes[from as usize].calls.insert(name, node);
        node
    }
}

/// Returns the functions of a stack, outermost first. `known` caches their names, by function or, for a frame without
/// lines, by frame.
fn functions(tables: &Tables, stack: StackId, names: &mut Names, known: &mut HashMap<(u32, u32), u32>) -> Vec<u32> {
    let mut out = Vec::new();
    for frame in tables.stack_frames(stack) {
        let lines = tables.frame_lines(frame);
        for line in lines {
            let name = *known
                .entry((0, line.function.0))
                .or_insert_with(|| names.intern(comparable_name(tables.string(line.function))));
            out.push(name);
        }
        if lines.is_empty() {
            // Addresses change with each build, so they only match for the same build.
            let name = *known.entry((1, frame.0)).or_insert_with(|| names.intern(tables.address_text(frame)));
            out.push(name);
        }
    }
    out.reverse();
    out
}

/// The sort key of stacks with the same functions: their line numbers, outermost first.
fn lines(tables: &Tables, stack: StackId) -> Vec<u32> {
    let frames = tables.stack_frames(stack);
    let mut lines: Vec<u32> = frames.flat_map(|frame| tables.frame_lines(frame).iter().map(|line| line.line)).collect();
    lines.reverse();
    lines
}
