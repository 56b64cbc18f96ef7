//! Computes the panel's content on a background thread: the tree, its rows in order, and the selected nodes.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use eframe::egui::Color32;
use highwater_analysis::beside::non_block_bytes;
use highwater_analysis::between::blocks_between;
use highwater_analysis::tree::Part;
use highwater_analysis::{
    Balance, Matches, Metric, NodeId, Question, Siblings, Tree, TreeQuery, bytes_of, leading_frame,
};
use highwater_snapshots::{BlockId, StackId, natural};
use rayon::slice::ParallelSliceMut as _;

use super::names;
use crate::Recording;
use crate::gui::colouring::Colouring;
use crate::gui::widgets::theme;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// The blocks live after this many events.
    Moment(usize),
    Between(usize, usize, Question),
}

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
            && self.matches == other.matches
    }
}

/// A step on the path from the root to a node. The path identifies the node in the tree of another moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Named(u8, String),
    Block(BlockId),
}

pub(super) type Place = Vec<Step>;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Order {
    Name,
    #[default]
    Bytes,
    Blocks,
}

/// The colours of the timeline above; `None` until it is drawn.
#[derive(Clone, Debug)]
pub(super) struct OfTimeline(pub(super) Option<Arc<Colouring>>);

impl PartialEq for OfTimeline {
    fn eq(&self, other: &Self) -> bool {
        self.0.as_ref().map(Arc::as_ptr) == other.0.as_ref().map(Arc::as_ptr)
    }
}

/// The key of the background query: the blocks, their grouping, and the order of the rows.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Request {
    pub(super) source: Source,
    pub(super) query: TreeQuery,
    pub(super) focus: Place,
    /// The selected node, whose blocks are listed.
    pub(super) chosen: Option<Place>,
    /// The sort order of rows, and whether it is descending.
    pub(super) order: (Order, bool),
    pub(super) siblings: Siblings,
    pub(super) colouring: OfTimeline,
}

#[derive(Clone, Debug)]
pub(super) struct Chosen {
    pub(super) node: NodeId,
    /// The search condition that selects exactly the group's blocks; `None` if there is none.
    pub(super) condition: Option<String>,
    /// The stack of one of the group's blocks.
    pub(super) stack: Option<StackId>,
}

#[derive(Debug)]
pub(super) struct Answer {
    pub(super) request: Request,
    pub(super) tree: Arc<Tree>,
    pub(super) focus: NodeId,
    /// The nodes within the focus that have blocks, in the requested order; of identical modules, only the first.
    pub(super) rows: Arc<Vec<NodeId>>,
    /// The modules of each row that combines several, by the node of the first one.
    pub(super) members: Arc<HashMap<NodeId, Vec<NodeId>>>,
    /// Labels for rows of identical modules, of categories that leak, and for rows whose labels would otherwise be
    /// equal.
    pub(super) labels: Arc<HashMap<NodeId, String>>,
    pub(super) chosen: Option<Chosen>,
    /// The blocks of the selected group, or of the focus, each with the number of similar blocks, by their bytes in
    /// all, largest first.
    pub(super) blocks: Arc<Vec<(BlockId, u64)>>,
    /// For each node, the timeline colour of most of its bytes; empty until the timeline is drawn, and for very large
    /// trees.
    pub(super) colours: Arc<Vec<Color32>>,
    /// For a range, the sums of all classes of blocks.
    pub(super) balance: Option<Balance>,
}

impl Answer {
    pub(super) fn nodes<'a>(&'a self, id: &'a NodeId) -> &'a [NodeId] {
        self.members.get(id).map_or(std::slice::from_ref(id), Vec::as_slice)
    }

    /// The full names of the nodes combined in the row of `id`, with one line for each level and frame.
    pub(super) fn in_full(&self, id: NodeId) -> String {
        let name = |id: &NodeId| names::in_full(&self.request.source.recording, &self.tree, *id).join("\n");
        self.nodes(&id).iter().map(name).collect::<Vec<_>>().join("\n").replace("; ", "\n")
    }

    /// The timeline's colour of a block; that of its category until the timeline is drawn.
    pub(super) fn colour(&self, block: BlockId) -> Option<Color32> {
        let colouring = self.request.colouring.0.as_ref();
        let entry = colouring.and_then(|colouring| colouring.entries.get(colouring.entry(block)));
        let category = self.request.source.recording.trace.blocks.category.get(block.0 as usize);
        entry.map(|entry| entry.colour).or(category.copied().map(theme::category))
    }

    /// Returns the bytes and the number of blocks in the row of `id`, without those of its descendants.
    pub(super) fn own(&self, id: NodeId) -> (u64, u64) {
        let node = self.tree.node(id);
        let count = self.nodes(&id).len() as u64;
        (node.own_bytes * count, u64::from(node.own_blocks) * count)
    }
}

/// Computes answers, and reuses the parts of the last answer whose inputs did not change.
#[derive(Clone, Debug, Default)]
pub(super) struct Answerer {
    last: Option<Arc<Answer>>,
}

impl Answerer {
    pub(super) fn answer(&mut self, request: &Request) -> Arc<Answer> {
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
        // What leaks is known together with the colours.
        let same_colours = last.as_ref().filter(|last| last.request.colouring == request.colouring);
        let same_focus = same_colours.filter(|last| last.focus == focus && last.request.siblings == request.siblings);
        let recording = &request.source.recording;
        let (members, labels) = match same_focus {
            Some(last) => (Arc::clone(&last.members), Arc::clone(&last.labels)),
            None => {
                let ends = tree.ends(focus);
                let mut labels = names::labels_apart(recording, &tree, &ends);
                labels.extend(names::leak_labels(
                    (recording, request.source.device, request.source.metric),
                    &tree,
                    &ends,
                ));
                let mut members = HashMap::new();
                if request.siblings == Siblings::Merged {
                    for (label, nodes) in names::siblings(recording, &tree, &ends) {
                        labels.insert(nodes[0], label);
                        members.insert(nodes[0], nodes);
                    }
                }
                (Arc::new(members), Arc::new(labels))
            }
        };
        let colours = match (same_colours, &request.colouring.0) {
            (Some(last), _) => Arc::clone(&last.colours),
            (None, Some(colouring)) => Arc::new(colours_of(&tree, &request.source, colouring)),
            (None, None) => Arc::default(),
        };
        let same_rows = same_focus.filter(|last| last.request.order == request.order);
        let rows = match same_rows {
            Some(last) => Arc::clone(&last.rows),
            None => Arc::new(rows_of(&tree, request, focus, (&members, &labels))),
        };
        let (chosen, blocks) = match same_focus.filter(|last| last.request.chosen == request.chosen) {
            Some(last) => (last.chosen.clone(), Arc::clone(&last.blocks)),
            None => {
                let chosen = chosen_of(&tree, request, &members);
                let node = chosen.as_ref().map_or(focus, |chosen| chosen.node);
                let nodes = members.get(&node).map_or(std::slice::from_ref(&node), Vec::as_slice);
                (chosen, Arc::new(blocks_of(&tree, &request.source, nodes)))
            }
        };
        let request = request.clone();
        let answer = Answer { request, tree, focus, rows, members, labels, chosen, blocks, colours, balance };
        let answer = Arc::new(answer);
        self.last = Some(Arc::clone(&answer));
        answer
    }
}

fn balance_of(source: &Source) -> Option<Balance> {
    let When::Between(a, b, _) = source.when else { return None };
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
                let (is_split, bytes) = non_block_bytes(trace, (&index.series, &index.live), source.metric, position);
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

/// Maximum number of sums computed for colours; larger trees do without the timeline's colours.
const MAX_SUMS: usize = 1 << 22;

/// Returns, for each node, the colour of the legend entry with most of its bytes, the first one in a tie; empty if the
/// tree is too large.
fn colours_of(tree: &Tree, source: &Source, colouring: &Colouring) -> Vec<Color32> {
    let count = colouring.entries.len();
    if tree.len() * count > MAX_SUMS {
        return Vec::new();
    }
    let mut bytes = vec![0; tree.len() * count];
    for (block, end) in tree.blocks() {
        let entry = colouring.entry(block);
        if entry < count {
            bytes[end.0 as usize * count + entry] += bytes_of(&source.recording.trace, source.metric, block);
        }
    }
    // Parents precede their children.
    for id in tree.ids().skip(1).rev() {
        let (row, parent) = (id.0 as usize * count, tree.node(id).parent.0 as usize * count);
        for entry in 0..count {
            bytes[parent + entry] += bytes[row + entry];
        }
    }
    let colour = |id: NodeId| {
        let own = &bytes[id.0 as usize * count..][..count];
        let largest = (0..count).rev().max_by_key(|entry| own[*entry]).filter(|entry| own[*entry] > 0);
        largest.map_or(theme::NEUTRAL, |entry| colouring.entries[entry].colour)
    };
    tree.ids().map(colour).collect()
}

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

/// Returns the node at the path `place`, or its deepest existing ancestor, and whether the node itself was found.
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

fn rows_of(
    tree: &Tree,
    request: &Request,
    focus: NodeId,
    (members, labels): (&HashMap<NodeId, Vec<NodeId>>, &HashMap<NodeId, String>),
) -> Vec<NodeId> {
    let mut rows = tree.ends(focus);
    if !members.is_empty() {
        let others: HashSet<NodeId> = members.values().flat_map(|nodes| &nodes[1..]).copied().collect();
        rows.retain(|id| !others.contains(id));
    }
    let (order, is_falling) = request.order;
    // A row ends at its own blocks: nodes below have their own rows.
    let count = |id: &NodeId| members.get(id).map_or(1, |nodes| nodes.len() as u64);
    let bytes = |id: &NodeId| tree.node(*id).own_bytes * count(id);
    match order {
        Order::Bytes => rows.par_sort_by_key(|id| std::cmp::Reverse(bytes(id))),
        Order::Blocks => {
            let blocks = |id: &NodeId| u64::from(tree.node(*id).own_blocks) * count(id);
            rows.par_sort_by_key(|id| (std::cmp::Reverse(blocks(id)), std::cmp::Reverse(bytes(id))));
        }
        Order::Name => sort_by_name(tree, request, labels, &mut rows),
    }
    // Names are ascending by default, numbers descending.
    if is_falling == (order == Order::Name) {
        rows.reverse();
    }
    rows
}

/// Sorts by name. Individual blocks, of which there may be millions, are sorted by their parent's name and their id.
fn sort_by_name(tree: &Tree, request: &Request, labels: &HashMap<NodeId, String>, rows: &mut [NodeId]) {
    let holder = |id: &NodeId| match tree.node(*id).part {
        Part::Block(block) => (tree.node(*id).parent, block.0),
        _ => (*id, 0),
    };
    let mut holders: Vec<NodeId> = rows.iter().map(|id| holder(id).0).collect();
    holders.sort_unstable();
    holders.dedup();
    let recording = &request.source.recording;
    let label = |id: NodeId| labels.get(&id).cloned().unwrap_or_else(|| names::label(recording, tree, id));
    let mut named: Vec<(String, NodeId)> = holders.into_iter().map(|id| (label(id), id)).collect();
    named.sort_by(|(a, one), (b, other)| natural::compare(a, b).then_with(|| one.cmp(other)));
    let rank: HashMap<NodeId, usize> = named.iter().enumerate().map(|(rank, (_, id))| (*id, rank)).collect();
    rows.sort_by_key(|id| {
        let (holder, block) = holder(id);
        (rank.get(&holder).copied(), block)
    });
}

fn chosen_of(tree: &Tree, request: &Request, members: &HashMap<NodeId, Vec<NodeId>>) -> Option<Chosen> {
    let (node, is_meant) = find(tree, request, request.chosen.as_ref()?);
    if !is_meant {
        return None;
    }
    let nodes = members.get(&node).map_or(std::slice::from_ref(&node), Vec::as_slice);
    let condition = tree.condition_of(&request.source.recording.trace, nodes);
    Some(Chosen { node, condition, stack: tree.stack_of(node).filter(|stack| stack.is_some()) })
}

/// Returns the blocks of `nodes`. Blocks with equal size, category, operation and line (or module, if the line is
/// unknown) are listed once, with their number, sorted by their bytes in all, largest first.
fn blocks_of(tree: &Tree, source: &Source, nodes: &[NodeId]) -> Vec<(BlockId, u64)> {
    let trace = &source.recording.trace;
    let bytes = |id: &BlockId| bytes_of(trace, source.metric, *id);
    let mut blocks: Vec<BlockId> = nodes.iter().flat_map(|node| tree.blocks_of(*node)).collect();
    let stacks: HashSet<StackId> = blocks.iter().map(|id| trace.blocks.get(*id).stack).collect();
    let line = |stack: StackId| Some((stack, leading_frame(&trace.tables, stack)?.text(&trace.tables)));
    let lines: HashMap<StackId, String> = stacks.into_iter().filter_map(line).collect();
    let kind = |id: &BlockId| {
        let block = trace.blocks.get(*id);
        let line = lines.get(&block.stack);
        (bytes(id), block.category, trace.tables.op_name(block.op), line, line.is_none().then_some(block.scope))
    };
    blocks.par_sort_by_key(|id| (kind(id), *id));
    let alike = blocks.chunk_by(|one, other| kind(one) == kind(other));
    let mut rows: Vec<(BlockId, u64)> = alike.map(|alike| (alike[0], alike.len() as u64)).collect();
    rows.par_sort_by_key(|(id, count)| (std::cmp::Reverse(bytes(id) * count), *id));
    rows
}

#[cfg(test)]
mod tests {
    use highwater_analysis::{GroupKey, TreeKey};
    use highwater_notation::trace_from_text;
    use highwater_snapshots::Category;

    use super::*;
    use crate::colour_by::ColourBy;

    #[test]
    fn a_group_has_the_colour_of_most_of_its_bytes_in_the_timeline() {
        let text = "baseline w 400 parameter @a\nalloc x 300 activation @a\nalloc y 200 activation @a\n\
                    alloc z 100 gradient @b\nalloc v 100 input @b\nalloc n 0 input @c";
        let recording = Arc::new(Recording::new("test", None, trace_from_text(text).unwrap()));
        let (metric, matches) = (Metric::Requested, Arc::default());
        let colouring = Colouring::build(&recording, 0, ColourBy(GroupKey::Category), metric, &matches);
        let source = Source { recording: Arc::clone(&recording), device: 0, metric, when: When::Moment(5), matches };
        let keys = vec![TreeKey::By(GroupKey::Scope)];
        let tree = tree_of(&source, TreeQuery { keys, hides_internals: false, is_inverted: false });
        let colours = colours_of(&tree, &source, &colouring);
        let of = |name: &str| {
            let id = tree.ids().find(|id| tree.name(&recording.trace.tables, *id) == name).unwrap();
            colours[id.0 as usize]
        };
        assert_eq!(of("a"), theme::category(Category::Activation));
        let first = colouring.entries.iter().find(|entry| ["gradient", "input"].contains(&&*entry.name)).unwrap();
        assert_eq!(of("b"), first.colour, "of equal ones, that of the first entry");
        assert_eq!(of("c"), theme::NEUTRAL);
        assert_eq!(colours[0], theme::category(Category::Activation));
    }
}
