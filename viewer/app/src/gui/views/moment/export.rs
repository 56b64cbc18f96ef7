//! Writes the panel's content as CSV, in full, with a last line for the total.

use highwater_analysis::tree::NodeId;

use super::job::Answer;
use super::names;

/// The rows of the table in their order, each of equal modules: a column for each key, then bytes and blocks, which add up to the total.
pub(super) fn rows_csv(answer: &Answer) -> String {
    let (recording, tree) = (&answer.request.source.recording, &answer.tree);
    let keys: Vec<&str> = tree.query().keys.iter().map(|key| key.name()).collect();
    let mut out = format!("{},bytes,blocks\n", keys.join(","));
    for &id in answer.rows.iter() {
        for id in answer.nodes(&id) {
            let node = tree.node(*id);
            push_names(&mut out, &names::in_full(recording, tree, *id), keys.len());
            out += &format!("{},{}\n", node.own_bytes, node.own_blocks);
        }
    }
    let focus = tree.node(answer.focus);
    push_names(&mut out, &["total".to_owned()], keys.len());
    out + &format!("{},{}\n", focus.bytes, focus.blocks)
}

/// Every node below the focus with its full path; own bytes add up to the total, bytes include the nodes below.
pub(super) fn nodes_csv(answer: &Answer) -> String {
    let (recording, tree) = (&answer.request.source.recording, &answer.tree);
    let mut out = "path,bytes,own_bytes,blocks\n".to_owned();
    let mut open = vec![answer.focus];
    while let Some(id) = open.pop() {
        let node = tree.node(id);
        open.extend(node.children().rev());
        if id != NodeId::ROOT {
            push_names(&mut out, &[names::in_full(recording, tree, id).join("; ")], 1);
            out += &format!("{},{},{}\n", node.bytes, node.own_bytes, node.blocks);
        }
    }
    let focus = tree.node(answer.focus);
    out + &format!("\"total\",{},{},{}\n", focus.bytes, focus.bytes, focus.blocks)
}

/// Each name in quotes followed by a comma, padded to `columns`.
fn push_names(out: &mut String, names: &[String], columns: usize) {
    for column in 0..columns {
        let name = names.get(column).map_or("", String::as_str);
        out.push_str(&format!("\"{}\",", name.replace('"', "\"\"")));
    }
}
