//! The columns and cells that name the groups of a table, one for each key.

use highwater_analysis::GroupKey;
use highwater_analysis::frames::short_stacks;
use highwater_snapshots::shown::printable;
use highwater_snapshots::units::{format_bytes, format_count};
use highwater_snapshots::{StackId, Trace};

use crate::cli::output::table::Column;

/// Returns a column for each key, which is shortened if the table is too wide.
pub fn key_columns(keys: &[GroupKey]) -> Vec<Column> {
    let column = |key: &GroupKey| match key {
        GroupKey::Frame => Column::text(key.name()).source_lines(),
        GroupKey::Stack => Column::text(key.name()).source_lines().lines(),
        _ => Column::text(key.name()).cut(),
    };
    keys.iter().map(column).collect()
}

/// Returns the cells of each group, from its values of `keys` and its stack, which is none if stacks are not a key.
/// Stacks have one text line for each frame.
pub fn key_cells<'a>(
    trace: &Trace,
    keys: &[GroupKey],
    groups: impl Iterator<Item = (&'a Vec<String>, StackId)>,
) -> Vec<Vec<String>> {
    let (mut rows, stacks): (Vec<Vec<String>>, Vec<StackId>) = groups.map(|(key, stack)| (key.clone(), stack)).unzip();
    let Some(at) = keys.iter().position(|key| *key == GroupKey::Stack) else { return rows };
    for ((row, stack), lines) in rows.iter_mut().zip(&stacks).zip(short_stacks(&trace.tables, &stacks)) {
        if stack.is_some() {
            // A name must not become a further line.
            row[at] = lines.iter().map(|line| printable(line)).collect::<Vec<_>>().join("\n");
        }
    }
    rows
}

/// Returns the size of each of `members` equal modules that have `bytes` in all: `32 × 416.83 MiB`. Empty if the row is of
/// one.
pub fn each_text(bytes: u64, members: usize) -> String {
    match members as u64 {
        0 | 1 => String::new(),
        members => format!("{} × {}", format_count(members), format_bytes(bytes / members)),
    }
}

/// Explains the value `(none)` of the first key that has it in one of `groups`; `None` if there is none.
pub fn none_note<'a>(
    trace: &Trace,
    keys: &[GroupKey],
    groups: impl Iterator<Item = &'a Vec<String>>,
) -> Option<String> {
    let at = groups.filter_map(|key| key.iter().position(|value| value == "(none)")).min()?;
    let no_ops = trace.tables.ops.iter().all(|op| !op.name.is_some());
    Some(match keys.get(at)? {
        GroupKey::Op if no_ops => {
            "(none): the recording has no operations; --by frame groups by line of code.".to_owned()
        }
        GroupKey::Scope | GroupKey::ScopeTo(_) if trace.tables.scopes.is_empty() => {
            "(none): the recording has no modules; --by frame groups by line of code.".to_owned()
        }
        GroupKey::Scope | GroupKey::ScopeTo(_) if trace.spans.are_tagged() => {
            "(none): allocated outside of modules, as by the optimizer and the loss, or before the recording."
                .to_owned()
        }
        GroupKey::Phase => "(none): the recording has no phases such as forward and backward.".to_owned(),
        GroupKey::Step => "(none): allocated outside all steps.".to_owned(),
        GroupKey::Frame => {
            "(none): no stack is recorded for these blocks, such as those live before the recording.".to_owned()
        }
        key => format!("(none): no {key} is recorded for these blocks, such as those live before the recording."),
    })
}
