//! Writes the panel's content as CSV, in full, with a last line for the total.

use highwater_analysis::tree::NodeId;

use super::job::Answer;
use super::names;
use crate::gui::widgets::table::{Column, csv};

/// The rows of the table in their order, each of equal modules: a column for each key, then bytes and blocks, which add up to the total.
pub(super) fn rows_csv(answer: &Answer) -> String {
    let tree = &answer.tree;
    let keys: Vec<&'static str> = tree.query().keys.iter().map(|key| key.name()).collect();
    let numbers = [Column::of_file("bytes", true), Column::of_file("blocks", true)];
    let columns: Vec<Column> = keys.iter().map(|key| Column::of_file(key, false)).chain(numbers).collect();
    let nodes: Vec<NodeId> = answer.rows.iter().flat_map(|row| answer.nodes(row)).copied().collect();
    let total = tree.node(answer.focus);
    csv(&columns, nodes.len() + 1, |row, column| {
        let own = nodes.get(row).map(|id| tree.node(*id));
        match (nodes.get(row), column.checked_sub(keys.len())) {
            (Some(id), None) => name(answer, *id).into_iter().nth(column).unwrap_or_default(),
            (None, None) => {
                if column == 0 {
                    "total".to_owned()
                } else {
                    String::new()
                }
            }
            (_, Some(0)) => own.map_or(total.bytes, |node| node.own_bytes).to_string(),
            _ => own.map_or(total.blocks, |node| node.own_blocks).to_string(),
        }
    })
}

/// Every node below the focus with its full path; own bytes add up to the total, bytes include the nodes below.
pub(super) fn nodes_csv(answer: &Answer) -> String {
    let tree = &answer.tree;
    let numbers = ["bytes", "own_bytes", "blocks"].map(|name| Column::of_file(name, true));
    let columns: Vec<Column> = [Column::of_file("path", false)].into_iter().chain(numbers).collect();
    let (mut nodes, mut open) = (Vec::new(), vec![answer.focus]);
    while let Some(id) = open.pop() {
        open.extend(tree.node(id).children().rev());
        nodes.extend((id != NodeId::ROOT).then_some(id));
    }
    csv(&columns, nodes.len() + 1, |row, column| {
        let node = tree.node(nodes.get(row).copied().unwrap_or(answer.focus));
        match (nodes.get(row), column) {
            (Some(id), 0) => name(answer, *id).join("; "),
            (None, 0) => "total".to_owned(),
            (_, 1) | (None, 2) => node.bytes.to_string(),
            (_, 2) => node.own_bytes.to_string(),
            _ => node.blocks.to_string(),
        }
    })
}

fn name(answer: &Answer, id: NodeId) -> Vec<String> {
    names::in_full(&answer.request.source.recording, &answer.tree, id)
}
