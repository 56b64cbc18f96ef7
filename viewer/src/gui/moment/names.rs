//! Names: what to call the nodes of a tree: short on tiles and rows, in full in tooltips and files.

use highwater_snapshots::analysis::frames::user_line;
use highwater_snapshots::analysis::tree::{NodeId, Part};
use highwater_snapshots::analysis::{GroupKey, Tree, TreeKey};
use highwater_snapshots::{BlockId, Trace};

use crate::gui::colouring::short_line;
use crate::session::Recording;

/// A node by itself, as a tile shows it.
pub(super) fn short(recording: &Recording, tree: &Tree, id: NodeId) -> String {
    let trace = &recording.trace;
    match tree.node(id).part {
        Part::Block(block) => block_title(trace, block),
        Part::Line(_) => short_line(&tree.name(&trace.tables, id)),
        Part::Stream(stream) => format!("stream {stream}"),
        Part::Step(Some(step)) => format!("step {step}"),
        Part::Step(None) => "no step".to_owned(),
        _ => tree.name(&trace.tables, id),
    }
}

/// A node with all that leads to it, as a row shows it: the levels after each other, of stacks the last line.
pub(super) fn label(recording: &Recording, tree: &Tree, id: NodeId) -> String {
    let levels = levels(tree, id);
    if levels.is_empty() {
        return "all".to_owned();
    }
    let name = |nodes: &Vec<NodeId>| match nodes.as_slice() {
        [.., last] if !matches!(tree.node(*last).part, Part::Scope(_)) => plain(recording, tree, *last),
        nodes => joined(recording, tree, nodes),
    };
    levels.iter().map(name).collect::<Vec<String>>().join(" · ")
}

/// A node with all that leads to it, one text for each level: module paths with dots, stacks with semicolons.
pub(super) fn in_full(recording: &Recording, tree: &Tree, id: NodeId) -> Vec<String> {
    levels(tree, id).iter().map(|nodes| joined(recording, tree, nodes)).collect()
}

/// A node by itself as rows and files have it, where its key stands beside it.
fn plain(recording: &Recording, tree: &Tree, id: NodeId) -> String {
    match tree.node(id).part {
        Part::Block(_) | Part::Line(_) => short(recording, tree, id),
        _ => tree.name(&recording.trace.tables, id),
    }
}

fn joined(recording: &Recording, tree: &Tree, nodes: &[NodeId]) -> String {
    let is_path = nodes.iter().all(|id| matches!(tree.node(*id).part, Part::Scope(_)));
    let names: Vec<String> = nodes.iter().map(|id| tree.name(&recording.trace.tables, *id)).collect();
    names.join(if is_path { "." } else { "; " })
}

/// The nodes that lead to `id`, those of each level together.
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

/// The blocks at hand in a name: `activation of linear`.
pub(super) fn block_title(trace: &Trace, id: BlockId) -> String {
    let block = trace.blocks.get(id);
    match trace.tables.op_name(block.op) {
        "" => block.category.to_string(),
        op => format!("{} of {op}", block.category),
    }
}

/// Who made a block: the line of the program, else the module; empty if neither is known.
pub(super) fn maker(trace: &Trace, id: BlockId) -> String {
    let block = trace.blocks.get(id);
    match user_line(&trace.tables, block.stack) {
        Some(line) => short_line(&trace.tables.line_text(&line)),
        None => trace.tables.scope_path(block.scope),
    }
}

/// The keys of a tree, as its picture is called.
pub(super) fn keys(tree: &Tree) -> String {
    tree.query().keys.iter().map(|key| key.name()).collect::<Vec<_>>().join(" and ")
}

/// What to call a key in menus.
pub(in crate::gui) fn key_label(key: TreeKey) -> &'static str {
    match key {
        TreeKey::By(GroupKey::Frame) => "line (frame)",
        TreeKey::By(GroupKey::Scope) => "module (scope)",
        key => key.name(),
    }
}

/// A number of things: `1 block`, `2,000 blocks`.
pub(super) fn counted(count: u64, thing: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {thing}{plural}", highwater_snapshots::units::format_count(count))
}
