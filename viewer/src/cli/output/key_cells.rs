//! Key cells: the columns and cells that name the groups of a table, one for each key.

use highwater_analysis::GroupKey;
use highwater_analysis::frames::short_stacks;
use highwater_snapshots::{StackId, Trace};

use crate::cli::output::table::Column;

/// A column for each key, which is shortened where the table is too wide.
pub fn key_columns(keys: &[GroupKey]) -> Vec<Column> {
    let column = |key: &GroupKey| match key {
        GroupKey::Frame | GroupKey::Stack => Column::text(key.name()).giving_way_within(),
        _ => Column::text(key.name()).giving_way(),
    };
    keys.iter().map(column).collect()
}

/// The cells of each group, of its `keys` values and its stack, which is none where stacks are no key. Stacks take a line
/// for each of their own lines.
pub fn key_cells<'a>(
    trace: &Trace,
    keys: &[GroupKey],
    groups: impl Iterator<Item = (&'a Vec<String>, StackId)>,
) -> Vec<Vec<String>> {
    let (mut rows, stacks): (Vec<Vec<String>>, Vec<StackId>) = groups.map(|(key, stack)| (key.clone(), stack)).unzip();
    let Some(at) = keys.iter().position(|key| *key == GroupKey::Stack) else { return rows };
    for ((row, stack), lines) in rows.iter_mut().zip(&stacks).zip(short_stacks(&trace.tables, &stacks)) {
        if stack.is_some() {
            row[at] = lines.join("\n");
        }
    }
    rows
}
