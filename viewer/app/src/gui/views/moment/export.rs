//! Writes the panel's content as CSV, with all rows and a last line for the total.

use highwater_analysis::NodeId;

use super::job::Answer;
use super::names;
use crate::report::{Column, Table};

/// Returns the rows of the table in order, with a row for each identical module: the columns are the keys, bytes and
/// blocks, and the last two add up to the total.
pub(super) fn rows_csv(answer: &Answer) -> String {
    let tree = &answer.tree;
    let nodes: Vec<NodeId> = answer.rows.iter().flat_map(|row| answer.nodes(row)).copied().collect();
    let value = &|row: usize, at: usize| match nodes.get(row) {
        Some(id) => name(answer, *id).into_iter().nth(at).unwrap_or_default(),
        None if at == 0 => "total".to_owned(),
        None => String::new(),
    };
    let keys = tree.query().keys.iter().enumerate();
    let keys = keys.map(|(at, key)| Column::text(key.name(), "", move |row| value(row, at)));
    let (own, total) = (|row: usize| nodes.get(row).map(|id| tree.node(*id)), tree.node(answer.focus));
    let numbers = [
        Column::bytes("bytes", "", |row| own(row).map_or(total.bytes, |node| node.own_bytes)),
        Column::count("blocks", "", |row| own(row).map_or(total.blocks, |node| node.own_blocks)),
    ];
    Table::new(nodes.len() + 1, keys.chain(numbers)).csv()
}

/// Returns the focus, unless it is the root, and every node below it, each with its full path, and a last line for the
/// total. Own bytes add up to the total; bytes and blocks include the nodes below.
pub(super) fn nodes_csv(answer: &Answer) -> String {
    let tree = &answer.tree;
    let (mut nodes, mut open) = (Vec::new(), vec![answer.focus]);
    while let Some(id) = open.pop() {
        open.extend(tree.node(id).children().rev());
        nodes.extend((id != NodeId::ROOT).then_some(id));
    }
    let node = |row: usize| tree.node(nodes.get(row).copied().unwrap_or(answer.focus));
    let columns = [
        Column::text("path", "", |row| match nodes.get(row) {
            Some(id) => name(answer, *id).join("; "),
            None => "total".to_owned(),
        }),
        Column::bytes("bytes", "", |row| node(row).bytes),
        Column::bytes("own_bytes", "", |row| if row < nodes.len() { node(row).own_bytes } else { node(row).bytes }),
        Column::count("blocks", "", |row| node(row).blocks),
    ];
    Table::new(nodes.len() + 1, columns).csv()
}

fn name(answer: &Answer, id: NodeId) -> Vec<String> {
    names::in_full(&answer.request.source.recording, &answer.tree, id)
}
