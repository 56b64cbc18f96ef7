//! The names of tree nodes: short in tiles and rows, in full in tooltips and files.

use std::collections::HashMap;

use highwater_analysis::siblings::{Merged, merge};
use highwater_analysis::tree::Part;
use highwater_analysis::{GroupKey, Metric, NO_LABEL, NodeId, Tree, TreeKey, bytes_of, leading_frame};
use highwater_snapshots::{BlockId, Category, Trace, format_share};

use crate::Recording;
use crate::gui::colouring::short_line;
use crate::gui::widgets::{name_of_none, title};

pub(super) fn short(recording: &Recording, tree: &Tree, id: NodeId) -> String {
    let trace = &recording.trace;
    match tree.node(id).part {
        Part::Block(block) => title(recording, block),
        Part::Line(Some(_)) => short_line(&tree.name(&trace.tables, id)),
        Part::Value(key, Some(_)) => key.with_name(own(recording, tree, id)),
        Part::Value(key, None) if !recording.absent.is_only_before(key) => format!("no {}", key.name()),
        _ => own(recording, tree, id),
    }
}

/// Returns the name of the node without its ancestors. Blocks without a category that are nearly all leaked have the
/// name of the leaks.
fn own(recording: &Recording, tree: &Tree, id: NodeId) -> String {
    let (name, node) = (tree.name(&recording.trace.tables, id), tree.node(id));
    match tree.query().keys.get(usize::from(node.level)) {
        Some(TreeKey::By(key)) if name == NO_LABEL => name_of_none(recording, *key).to_owned(),
        Some(TreeKey::By(GroupKey::Category)) => {
            let device = tree.blocks().next().map(|(block, _)| recording.trace.blocks.device[block.0 as usize]);
            let index = recording.devices.iter().find(|index| Some(index.device) == device);
            index.and_then(|index| index.leak_of(&name)).map(str::to_owned).unwrap_or(name)
        }
        _ => name,
    }
}

/// Returns the name of a node with its ancestors, for a row, in order; of a stack only the innermost frame.
pub(super) fn label(recording: &Recording, tree: &Tree, id: NodeId) -> String {
    label_with(recording, tree, id, |lines| plain(recording, tree, lines[0]))
}

/// Like [`label`], but names each stack level with `of_lines`, which receives the frames, innermost first.
fn label_with(recording: &Recording, tree: &Tree, id: NodeId, of_lines: impl Fn(&[NodeId]) -> String) -> String {
    let levels = levels(tree, id);
    if levels.is_empty() {
        return "all".to_owned();
    }
    let name = |nodes: &Vec<NodeId>| match nodes.as_slice() {
        [.., last] if matches!(tree.node(*last).part, Part::Line(_)) => of_lines(&innermost_first(tree, nodes)),
        [.., last] if !matches!(tree.node(*last).part, Part::Scope(_)) => plain(recording, tree, *last),
        nodes => joined(recording, tree, nodes),
    };
    levels.iter().map(name).collect::<Vec<String>>().join(" · ")
}

fn innermost_first(tree: &Tree, lines: &[NodeId]) -> Vec<NodeId> {
    let mut lines = lines.to_vec();
    if !tree.query().is_inverted {
        lines.reverse();
    }
    lines
}

/// Returns labels for those of `rows` whose labels would otherwise be equal: with the first caller that differs, if
/// there is one.
pub(super) fn labels_apart(recording: &Recording, tree: &Tree, rows: &[NodeId]) -> HashMap<NodeId, String> {
    let stack = TreeKey::By(GroupKey::Stack);
    // Single blocks, of which there may be millions, are distinguished by their facts.
    if !tree.query().keys.contains(&stack) || tree.query().keys.contains(&TreeKey::Block) {
        return HashMap::new();
    }
    let mut alike: HashMap<String, Vec<NodeId>> = HashMap::new();
    for id in rows {
        alike.entry(label(recording, tree, *id)).or_default().push(*id);
    }
    let mut labels = HashMap::new();
    for group in alike.into_values().filter(|group| group.len() > 1) {
        let stacks: Vec<Vec<String>> = group.iter().map(|id| stack_of(recording, tree, *id)).collect();
        for (id, stack) in group.iter().zip(&stacks) {
            let in_common = |other: &Vec<String>| stack.iter().zip(other).take_while(|(a, b)| a == b).count();
            let others = stacks.iter().filter(|other| *other != stack);
            let caller =
                others.map(in_common).max().and_then(|depth| stack.get(depth.max(1)).map(|line| (depth, line)));
            let more = match caller {
                Some((depth, line)) if depth > 1 => format!(" < … < {line}"),
                Some((_, line)) => format!(" < {line}"),
                // All of its frames are the innermost ones of another stack.
                None => String::new(),
            };
            let name = |lines: &[NodeId]| {
                let line = plain(recording, tree, lines[0]);
                if lines.len() == stack.len() { format!("{line}{more}") } else { line }
            };
            labels.insert(*id, label_with(recording, tree, *id, name));
        }
    }
    labels
}

/// Returns groups of modules whose paths differ only in a number, each with a label. Each group has at least two rows.
pub(super) fn siblings(recording: &Recording, tree: &Tree, rows: &[NodeId]) -> Vec<(String, Vec<NodeId>)> {
    let is_module = |key: &TreeKey| matches!(key, TreeKey::By(GroupKey::Scope | GroupKey::ScopeTo(_)));
    let keys = &tree.query().keys;
    // Single blocks are rows of their own.
    let Some(at) = keys.iter().position(is_module).filter(|_| !keys.contains(&TreeKey::Block)) else {
        return Vec::new();
    };
    let row = |id: &NodeId| {
        let node = tree.node(*id);
        let mut names = in_full(recording, tree, *id);
        let path = if at < names.len() { names.remove(at) } else { String::new() };
        (path, (names, node.own_bytes, node.own_blocks, node.level))
    };
    let merged = merge(rows.iter().map(row)).into_iter().filter(|merged| merged.rows.len() > 1);
    let named = |Merged { path, rows: members }: Merged| {
        let nodes: Vec<NodeId> = members.into_iter().map(|row| rows[row]).collect();
        let mut names: Vec<String> = levels(tree, nodes[0])
            .iter()
            .map(|level| match level.as_slice() {
                [.., last] if matches!(tree.node(*last).part, Part::Line(_)) => {
                    plain(recording, tree, innermost_first(tree, level)[0])
                }
                [.., last] => plain(recording, tree, *last),
                [] => String::new(),
            })
            .collect();
        if let Some(name) = names.get_mut(at) {
            *name = path;
        }
        (names.join(" · "), nodes)
    };
    merged.map(named).collect()
}

/// Returns labels for the `rows` of a tree by category, which state the leaked share of each category, since the
/// timeline's legend has them apart.
pub(super) fn leak_labels(
    (recording, device, metric): (&Recording, usize, Metric),
    tree: &Tree,
    rows: &[NodeId],
) -> Vec<(NodeId, String)> {
    let (trace, index) = (&recording.trace, &recording.devices[device]);
    let is_by_category = tree.query().keys == [TreeKey::By(GroupKey::Category)];
    let Some(leaks) = index.known_leaks().filter(|_| is_by_category) else { return Vec::new() };
    let label = |id: &NodeId| {
        let blocks = tree.blocks_of(*id).into_iter().filter(|block| leaks.has(trace, *block));
        let name = tree.name(&trace.tables, *id);
        let label = match blocks.map(|block| bytes_of(trace, metric, block)).sum::<u64>() {
            0 if index.leak_of(&name).is_none() => return None,
            0 => name,
            all if all == tree.node(*id).bytes && name == Category::Unknown.name() => leaks.name(),
            part => format!("{name}, {} leaks", format_share(part, tree.node(*id).bytes)),
        };
        Some((*id, label))
    };
    rows.iter().filter_map(label).collect()
}

/// The frames of the stack that leads to `id`, the innermost first.
fn stack_of(recording: &Recording, tree: &Tree, id: NodeId) -> Vec<String> {
    let levels = levels(tree, id).into_iter();
    let of_lines = levels.filter(|nodes| matches!(tree.node(nodes[0]).part, Part::Line(_)));
    let stack = of_lines.max_by_key(Vec::len).unwrap_or_default();
    innermost_first(tree, &stack).into_iter().map(|line| plain(recording, tree, line)).collect()
}

/// The full name of a node, one text per level: module paths with dots, stacks with semicolons.
pub(super) fn in_full(recording: &Recording, tree: &Tree, id: NodeId) -> Vec<String> {
    levels(tree, id).iter().map(|nodes| joined(recording, tree, nodes)).collect()
}

/// Returns the name of the node without its ancestors, for rows.
fn plain(recording: &Recording, tree: &Tree, id: NodeId) -> String {
    match tree.node(id).part {
        Part::Block(_) | Part::Line(_) => short(recording, tree, id),
        _ => own(recording, tree, id),
    }
}

fn joined(recording: &Recording, tree: &Tree, nodes: &[NodeId]) -> String {
    let is_path = nodes.iter().all(|id| matches!(tree.node(*id).part, Part::Scope(_)));
    let names: Vec<String> = nodes.iter().map(|id| tree.name(&recording.trace.tables, *id)).collect();
    names.join(if is_path { "." } else { "; " })
}

/// The nodes on the path to `id`, which is the last, grouped by level.
fn levels(tree: &Tree, id: NodeId) -> Vec<Vec<NodeId>> {
    let mut levels: Vec<Vec<NodeId>> = Vec::new();
    for at in tree.path(id) {
        match levels.last_mut() {
            Some(nodes) if tree.node(nodes[0]).level == tree.node(at).level => nodes.push(at),
            _ => levels.push(vec![at]),
        }
    }
    levels
}

/// Returns the origin of a block: its line of user code, or otherwise its module, such as `module net.0`; empty if both
/// are unknown.
pub(super) fn maker(trace: &Trace, id: BlockId) -> String {
    let block = trace.blocks.get(id);
    match leading_frame(&trace.tables, block.stack) {
        Some(frame) => short_line(&frame.text(&trace.tables)),
        None => match trace.tables.scope_path(block.scope) {
            path if path.is_empty() => path,
            path => format!("module {path}"),
        },
    }
}

/// The grouping keys of a tree, for the accessibility label of its picture.
pub(super) fn keys(tree: &Tree) -> String {
    tree.query().keys.iter().map(|key| key.name()).collect::<Vec<_>>().join(" and ")
}
