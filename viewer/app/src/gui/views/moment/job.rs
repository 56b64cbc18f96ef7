//! Computes the panel's content on a background thread: the tree, its rows in order, and the selected nodes.

use std::collections::HashMap;
use std::sync::Arc;

use highwater_analysis::between::{Balance, Question, blocks_between, bytes_of};
use highwater_analysis::peak::beside_blocks;
use highwater_analysis::tree::{NodeId, Part};
use highwater_analysis::{Matches, Metric, Tree, TreeQuery};
use highwater_snapshots::{BlockId, StackId};
use rayon::slice::ParallelSliceMut as _;

use super::names;
use crate::session::Recording;

/// The blocks of interest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// The blocks live after this many events.
    Moment(usize),
    /// The blocks of a question about the range between two moments.
    Between(usize, usize, Question),
}

/// A set of blocks of a recording, and the total to count.
#[derive(Clone, Debug)]
pub(super) struct Source {
    pub(super) recording: Arc<Recording>,
    pub(super) device: usize,
    pub(super) metric: Metric,
    pub(super) when: When,
    pub(super) matches: Arc<Matches>,
}

impl PartialEq for Source {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.recording, &other.recording)
            && self.device == other.device
            && self.metric == other.metric
            && self.when == other.when
            && Arc::ptr_eq(&self.matches, &other.matches)
    }
}

/// A step of the path to a node, by which it is found in the tree of another moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Named(u8, String),
    Block(BlockId),
}

/// The path from the root to a node.
pub(super) type Place = Vec<Step>;

/// The sort key of rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    Name,
    #[default]
    Bytes,
    Blocks,
}

/// The request to compute.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Request {
    pub(super) source: Source,
    pub(super) query: TreeQuery,
    /// The node whose content is shown.
    pub(super) focus: Place,
    /// The node whose blocks are listed.
    pub(super) chosen: Option<Place>,
    /// The order of rows, and whether it is descending.
    pub(super) order: (Order, bool),
}

/// The selected node.
#[derive(Clone, Debug)]
pub(super) struct Chosen {
    pub(super) node: NodeId,
    /// Its blocks, largest first.
    pub(super) blocks: Vec<BlockId>,
    /// The condition that selects them, if there is one.
    pub(super) condition: Option<String>,
    /// A stack of its blocks.
    pub(super) stack: Option<StackId>,
}

/// The computed answer.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) request: Request,
    pub(super) tree: Arc<Tree>,
    pub(super) focus: NodeId,
    /// The nodes within the focus that have own blocks, in the requested order.
    pub(super) rows: Arc<Vec<NodeId>>,
    /// Distinct labels for rows that would otherwise have equal ones.
    pub(super) labels: Arc<HashMap<NodeId, String>>,
    /// The bytes of the largest row.
    pub(super) most: u64,
    pub(super) chosen: Option<Chosen>,
    /// The sums of all questions, for a range.
    pub(super) balance: Option<Balance>,
}

/// Computes answers; reuses parts of the last one that did not change.
#[derive(Clone, Debug, Default)]
pub(super) struct Clerk {
    last: Option<Answer>,
}

impl Clerk {
    /// The answer to `request`.
    pub(super) fn answer(&mut self, request: &Request) -> Answer {
        let last = self.last.take().filter(|last| last.request.source == request.source);
        let balance = match &last {
            Some(last) => last.balance,
            None => balance_of(&request.source),
        };
        let last = last.filter(|last| last.request.query == request.query);
        let tree = match &last {
            Some(last) => Arc::clone(&last.tree),
            None => Arc::new(tree_of(&request.source, request.query.clone())),
        };
        let focus = find(&tree, request, &request.focus).0;
        let same_rows = last.as_ref().filter(|last| last.focus == focus && last.request.order == request.order);
        let rows = match same_rows {
            Some(last) => Arc::clone(&last.rows),
            None => Arc::new(rows_of(&tree, request, focus)),
        };
        let same_labels = last.as_ref().filter(|last| last.focus == focus);
        let labels = match same_labels {
            Some(last) => Arc::clone(&last.labels),
            None => Arc::new(names::labels_apart(&request.source.recording, &tree, &rows)),
        };
        let same_choice = last.filter(|last| last.request.chosen == request.chosen);
        let chosen = match same_choice {
            Some(last) => last.chosen,
            None => chosen_of(&tree, request),
        };
        let most = rows.iter().map(|id| tree.node(*id).own_bytes).max().unwrap_or(0);
        let answer = Answer { request: request.clone(), tree, focus, rows, labels, most, chosen, balance };
        self.last = Some(answer.clone());
        answer
    }
}

fn balance_of(source: &Source) -> Option<Balance> {
    let When::Between(a, b, _) = source.when else {
        return None;
    };
    let (trace, index) = (&source.recording.trace, source.recording.devices.get(source.device)?);
    Some(Balance::of(trace, &index.live, source.metric, a..b, |id| source.matches.contains(id)))
}

fn tree_of(source: &Source, query: TreeQuery) -> Tree {
    let trace = &source.recording.trace;
    let mut beside = Vec::new();
    let blocks = source.recording.devices.get(source.device).map(|index| match source.when {
        When::Moment(position) => {
            let mut blocks = index.live.before_position(trace, source.metric, position);
            if source.matches.is_all() {
                let (is_split, bytes) = beside_blocks(source.metric, &index.series.before_position(trace, position));
                beside = bytes;
                if !is_split {
                    blocks.clear();
                }
            }
            blocks
        }
        When::Between(a, b, question) => blocks_between(trace, &index.live, source.metric, a..b, question),
    });
    let mut blocks = blocks.unwrap_or_default();
    if !source.matches.is_all() {
        blocks.retain(|id| source.matches.contains(*id));
    }
    Tree::of(trace, source.metric, blocks, &beside, query)
}

/// The path to `id`.
pub(super) fn place_of(tree: &Tree, request: &Request, id: NodeId) -> Place {
    let step = |id: &NodeId| step_of(tree, request, *id);
    tree.path(id).iter().map(step).collect()
}

fn step_of(tree: &Tree, request: &Request, id: NodeId) -> Step {
    let node = tree.node(id);
    match node.part {
        Part::Block(block) => Step::Block(block),
        _ => Step::Named(node.level, tree.name(&request.source.recording.trace.tables, id)),
    }
}

/// The node at the end of `place`, or its deepest existing ancestor; and whether it is the node itself.
fn find(tree: &Tree, request: &Request, place: &Place) -> (NodeId, bool) {
    let mut at = NodeId::ROOT;
    for step in place {
        let is_meant = |child: &NodeId| match step {
            Step::Block(block) => tree.node(*child).part == Part::Block(*block),
            Step::Named(..) => step_of(tree, request, *child) == *step,
        };
        match tree.node(at).children().find(is_meant) {
            Some(child) => at = child,
            None => return (at, false),
        }
    }
    (at, true)
}

fn rows_of(tree: &Tree, request: &Request, focus: NodeId) -> Vec<NodeId> {
    let mut rows = tree.ends(focus);
    let (order, is_falling) = request.order;
    // A row ends at its own blocks: nodes below have their own rows.
    let bytes = |id: &NodeId| tree.node(*id).own_bytes;
    match order {
        Order::Bytes => rows.par_sort_by_key(|id| std::cmp::Reverse(bytes(id))),
        Order::Blocks => {
            rows.par_sort_by_key(|id| (std::cmp::Reverse(tree.node(*id).own_blocks), std::cmp::Reverse(bytes(id))));
        }
        Order::Name => sort_by_name(tree, request, &mut rows),
    }
    // Names are ascending by default, numbers descending.
    if is_falling == (order == Order::Name) {
        rows.reverse();
    }
    rows
}

/// Sorts by name; single blocks, of which there may be millions, by the name of their parent and their number.
fn sort_by_name(tree: &Tree, request: &Request, rows: &mut [NodeId]) {
    let holder = |id: &NodeId| match tree.node(*id).part {
        Part::Block(block) => (tree.node(*id).parent, block.0),
        _ => (*id, 0),
    };
    let mut holders: Vec<NodeId> = rows.iter().map(|id| holder(id).0).collect();
    holders.sort_unstable();
    holders.dedup();
    let recording = &request.source.recording;
    let mut named: Vec<(String, NodeId)> =
        holders.into_iter().map(|id| (names::label(recording, tree, id), id)).collect();
    named.sort();
    let rank: HashMap<NodeId, usize> = named.iter().enumerate().map(|(rank, (_, id))| (*id, rank)).collect();
    rows.sort_by_key(|id| {
        let (holder, block) = holder(id);
        (rank.get(&holder).copied(), block)
    });
}

fn chosen_of(tree: &Tree, request: &Request) -> Option<Chosen> {
    let (node, is_meant) = find(tree, request, request.chosen.as_ref()?);
    if !is_meant {
        return None;
    }
    let (trace, metric) = (&request.source.recording.trace, request.source.metric);
    let mut blocks = tree.blocks_of(node);
    blocks.par_sort_by_key(|id| (std::cmp::Reverse(bytes_of(trace, metric, *id)), *id));
    let condition = tree.condition(trace, node);
    Some(Chosen { node, blocks, condition, stack: tree.stack_of(node).filter(|stack| stack.is_some()) })
}
