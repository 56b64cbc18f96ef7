//! Builds a tree from blocks. Blocks with equal values of all keys are merged before any path is walked.

use hashbrown::HashMap;
use rayon::slice::ParallelSliceMut;

use crate::grouping::dimension::{GroupKey, Lookups, NO_VALUE, Values};
use crate::index::beside::Beside;
use crate::metric::Metric;
use crate::question::between::bytes_of;
use highwater_snapshots::ids::{BlockId, ScopeId, StackId, StringId};
use highwater_snapshots::trace::Trace;

use super::lines::Lines;
use super::{LineRole, Node, NodeId, Part, Tree, TreeKey, TreeQuery};

/// A value of a level's key below a chain of values of the previous levels.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chain {
    /// The chain of the previous level; 0 at the first level.
    pub(super) before: u32,
    /// The value as the index of a dimension's value, a line or a block; [`NO_VALUE`] for blocks without a value.
    pub(super) number: u64,
    /// The node at which the value's path starts.
    pub(super) start: NodeId,
    /// The node at which the value's path ends.
    pub(super) end: NodeId,
}

impl Chain {
    pub(super) fn row(&self) -> u32 {
        self.number as u32
    }
}

/// Number of blocks whose values are looked up together.
const RUN: usize = 1024;

/// The values of the blocks for one grouping key.
#[derive(Clone, Debug)]
pub(super) struct Level {
    pub(super) key: TreeKey,
    pub(super) chains: Vec<Chain>,
    /// The user line of each stack seen, if the key is the user line.
    pub(super) line_of: HashMap<StackId, u64>,
}

impl Tree {
    /// Builds the tree of `blocks`, which must be distinct, with the bytes that `metric` counts. `beside` has the bytes
    /// outside of blocks; their nodes are below those of their segment's values, such as its pool, or below the root.
    ///
    /// Takes one step per block and key, and one per line or part of each distinct stack or module path.
    pub fn of(trace: &Trace, metric: Metric, blocks: Vec<BlockId>, beside: &[(Beside, u64)], query: TreeQuery) -> Self {
        let mut builder = Builder::new(trace, &query);
        let mut chains = vec![0_u32; blocks.len()];
        for &key in &query.keys {
            builder.add_level(key, &blocks, &mut chains);
        }
        // Blocks that end at a chain of the last level, or without levels, at the root.
        let last = builder.levels.last();
        let ends: Vec<NodeId> = match last {
            Some(level) => chains.iter().map(|chain| level.chains[*chain as usize].end).collect(),
            None => vec![NodeId::ROOT; blocks.len()],
        };
        for (&id, end) in blocks.iter().zip(&ends) {
            let node = &mut builder.nodes[end.row()];
            node.own_bytes += bytes_of(trace, metric, id);
            node.own_blocks += 1;
        }
        for &(beside, bytes) in beside.iter().filter(|(_, bytes)| *bytes > 0) {
            let row = builder.beside(beside);
            builder.nodes[row.row()].own_bytes += bytes;
        }
        let Builder { mut nodes, lines, mut levels, .. } = builder;
        for row in (0..nodes.len()).rev() {
            let Node { own_bytes, own_blocks, .. } = nodes[row];
            nodes[row].bytes += own_bytes;
            nodes[row].blocks += own_blocks;
            let Node { bytes, blocks, parent, .. } = nodes[row];
            if row > 0 {
                nodes[parent.row()].bytes += bytes;
                nodes[parent.row()].blocks += blocks;
            }
        }
        let (nodes, place) = in_order(trace, &lines, &nodes);
        for chain in levels.iter_mut().flat_map(|level| &mut level.chains) {
            (chain.start, chain.end) = (place[chain.start.row()], place[chain.end.row()]);
        }
        let ends = ends.into_iter().map(|end| place[end.row()]).collect();
        Self { query, nodes, lines, levels, blocks, ends }
    }
}

/// The nodes in their final order (siblings together, largest first, parents before children), and the new positions.
fn in_order(trace: &Trace, lines: &Lines, nodes: &[Node]) -> (Vec<Node>, Vec<NodeId>) {
    let mut first_of = vec![0_u32; nodes.len() + 1];
    for node in &nodes[1..] {
        first_of[node.parent.row() + 1] += 1;
    }
    for row in 0..nodes.len() {
        first_of[row + 1] += first_of[row];
    }
    let mut next = first_of.clone();
    let mut children = vec![0_u32; nodes.len() - 1];
    for (row, node) in nodes.iter().enumerate().skip(1) {
        let slot = &mut next[node.parent.row()];
        children[*slot as usize] = row as u32;
        *slot += 1;
    }
    let mut order = vec![0_u32];
    let mut place = vec![NodeId::ROOT; nodes.len()];
    let mut out: Vec<Node> = Vec::with_capacity(nodes.len());
    while let Some(&row) = order.get(out.len()) {
        let row = row as usize;
        let mut node = nodes[row];
        node.parent = place[node.parent.row()];
        let own = &mut children[first_of[row] as usize..first_of[row + 1] as usize];
        own.par_sort_unstable_by(|a, b| {
            let (a, b) = (&nodes[*a as usize], &nodes[*b as usize]);
            b.bytes.cmp(&a.bytes).then_with(|| a.part.compare(b.part, &trace.tables, lines))
        });
        node.first_child = order.len() as u32;
        node.children = own.len() as u32;
        for &child in &*own {
            place[child as usize] = NodeId(order.len() as u32);
            order.push(child);
        }
        out.push(node);
    }
    (out, place)
}

struct Builder<'a> {
    trace: &'a Trace,
    query: &'a TreeQuery,
    lookups: Lookups<'a>,
    lines: Lines,
    nodes: Vec<Node>,
    child_of: HashMap<(NodeId, Part, u8), NodeId>,
    levels: Vec<Level>,
}

impl<'a> Builder<'a> {
    fn new(trace: &'a Trace, query: &'a TreeQuery) -> Self {
        let (lines, child_of, levels) = (Lines::default(), HashMap::new(), Vec::new());
        let lookups = Lookups::new(trace);
        let root = new_node(NodeId::ROOT, Part::All, 0, LineRole::Program);
        Self { trace, query, lookups, lines, nodes: vec![root], child_of, levels }
    }

    /// Splits the chains of `blocks` by `key`, and creates a path of nodes for each new chain.
    fn add_level(&mut self, key: TreeKey, blocks: &[BlockId], chain_of: &mut [u32]) {
        let mut level = Level { key, chains: Vec::new(), line_of: HashMap::new() };
        let mut known: HashMap<(u32, u64), u32> = HashMap::new();
        let mut last = None;
        let mut numbers = Vec::new();
        for (ids, chain_of) in blocks.chunks(RUN).zip(chain_of.chunks_mut(RUN)) {
            self.numbers(&mut level, ids, &mut numbers);
            for (&number, chain) in numbers.iter().zip(chain_of) {
                let value = (*chain, number);
                *chain = match last {
                    // Blocks of one kind often follow each other.
                    Some((same, chain)) if same == value => chain,
                    _ => {
                        let next = level.chains.len() as u32;
                        // Every block is its own value.
                        let chain = if key == TreeKey::Block { next } else { *known.entry(value).or_insert(next) };
                        if chain == next {
                            let before = value.0;
                            level.chains.push(Chain { before, number, start: NodeId::ROOT, end: NodeId::ROOT });
                        }
                        last = Some((value, chain));
                        chain
                    }
                };
            }
        }
        let row = self.levels.len() as u8;
        let mut lines = Vec::new();
        for chain in &mut level.chains {
            let ending = self.levels.last().and_then(|before| before.chains.get(chain.before as usize));
            chain.start = ending.map_or(NodeId::ROOT, |before| before.end);
            chain.end = self.walk(chain.start, key, chain.number, row, &mut lines);
        }
        self.levels.push(level);
    }

    fn numbers(&mut self, level: &mut Level, ids: &[BlockId], numbers: &mut Vec<u64>) {
        let TreeKey::By(key) = level.key else {
            numbers.clear();
            numbers.extend(ids.iter().map(|id| u64::from(id.0)));
            return;
        };
        key.numbers(&mut self.lookups, ids, numbers);
        if matches!(key.dimension().values, Values::Line) {
            let (tables, lines) = (&self.trace.tables, &mut self.lines);
            for number in numbers {
                let stack = StackId(*number as u32);
                *number = *level.line_of.entry(stack).or_insert_with(|| {
                    lines.add_stack(tables, stack);
                    lines.leading_of(tables, stack).map_or(NO_VALUE, u64::from)
                });
            }
        }
    }

    /// Returns the last node of a value's path that begins at `start`.
    fn walk(
        &mut self,
        start: NodeId,
        key: TreeKey,
        number: u64,
        level: u8,
        lines: &mut Vec<(u32, LineRole)>,
    ) -> NodeId {
        let trace = self.trace;
        let tables = &trace.tables;
        let row = number as u32;
        let value = (number != NO_VALUE).then_some(number);
        let TreeKey::By(key) = key else {
            return self.child(start, Part::Block(BlockId(row)), level, LineRole::Program);
        };
        match key.dimension().values {
            Values::Line => self.child(start, Part::Line(value.map(|line| line as u32)), level, LineRole::Program),
            Values::Path => {
                let mut names: Vec<StringId> = tables.scope_rows(ScopeId(row)).map(|scope| scope.name).collect();
                if names.is_empty() {
                    names.push(StringId::NONE);
                }
                let step = |at, name: &StringId| self.child(at, Part::Scope(*name), level, LineRole::Program);
                names.iter().rev().fold(start, step)
            }
            Values::Stack => {
                self.lines.of_stack(tables, StackId(row), self.query.hides_internals, lines);
                if lines.is_empty() {
                    return self.child(start, Part::Line(None), level, LineRole::Program);
                }
                if !self.query.is_inverted {
                    lines.reverse();
                }
                let step = |at, (line, role): &(u32, LineRole)| self.child(at, Part::Line(Some(*line)), level, *role);
                lines.iter().fold(start, step)
            }
            _ => self.child(start, Part::Value(key, value), level, LineRole::Program),
        }
    }

    /// Returns the node of bytes outside of blocks. Consecutive levels without a value for these bytes share one node.
    fn beside(&mut self, beside: Beside) -> NodeId {
        let keys = &self.query.keys;
        let (mut at, mut is_named) = (NodeId::ROOT, false);
        for (level, key) in keys.iter().enumerate() {
            let value = match key {
                TreeKey::By(key) => beside.segment().and_then(|segment| (key.dimension().of_segment)(&segment)),
                TreeKey::Block => None,
            };
            let part = match (key, value) {
                (TreeKey::By(GroupKey::Size), Some(bytes)) => Part::FreeIn(bytes),
                (TreeKey::By(key), Some(_)) => Part::Value(*key, value),
                _ if is_named => continue,
                _ => Part::Beside(beside.name()),
            };
            is_named |= matches!(part, Part::Beside(_) | Part::FreeIn(_));
            at = self.child(at, part, level as u8, LineRole::Program);
        }
        if is_named { at } else { self.child(at, Part::Beside(beside.name()), keys.len() as u8, LineRole::Program) }
    }

    fn child(&mut self, parent: NodeId, part: Part, level: u8, role: LineRole) -> NodeId {
        let nodes = &mut self.nodes;
        let mut make = || {
            nodes.push(new_node(parent, part, level, role));
            NodeId(nodes.len() as u32 - 1)
        };
        match part {
            // Each occurs once, so a lookup would find nothing.
            Part::Block(_) => make(),
            _ => *self.child_of.entry((parent, part, level)).or_insert_with(make),
        }
    }
}

fn new_node(parent: NodeId, part: Part, level: u8, role: LineRole) -> Node {
    Node { part, level, role, parent, bytes: 0, own_bytes: 0, blocks: 0, own_blocks: 0, first_child: 0, children: 0 }
}
