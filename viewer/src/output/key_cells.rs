//! The columns with the key values of the groups in a table, one per key.

use std::collections::BTreeMap;
use std::rc::Rc;

use highwater_analysis::GroupKey;
use highwater_analysis::frames::short_stacks;
use highwater_analysis::listed_blocks::ListedBlock;
use highwater_app::report::{Column, Value};
use highwater_snapshots::shown::printable;
use highwater_snapshots::tables::Tables;
use highwater_snapshots::{StackId, Trace, count_of, format_bytes, format_count};

/// The columns with the key values of groups by `keys`. Each group is given by its values and its stack in the given
/// tables (`NONE` if stacks are not a key); `sums` are the names of the rows of sums that follow. A stack has one line
/// of text per frame.
pub(crate) fn key_columns<'a>(
    keys: &'a [GroupKey],
    groups: impl Iterator<Item = (&'a Vec<String>, (&'a Tables, StackId))>,
    sums: &[String],
) -> Vec<Column<'a>> {
    let (values, stacks): (Vec<&'a Vec<String>>, Vec<(&Tables, StackId)>) = groups.unzip();
    let short = match keys.contains(&GroupKey::Stack) {
        true => short_stacks(&stacks),
        false => Vec::new(),
    };
    // A name must not become a further line.
    let short = short.into_iter().map(|lines| lines.iter().map(|line| printable(line)).collect::<Vec<_>>().join("\n"));
    let short: Rc<[String]> = short.collect();
    let has_stack: Rc<[bool]> = stacks.iter().map(|(_, stack)| stack.is_some()).collect();
    let (values, sums): (Rc<[_]>, Rc<[String]>) = (values.into(), sums.into());
    let of_key = |(at, key): (usize, &GroupKey)| {
        let (all, sums) = (Rc::clone(&values), Rc::clone(&sums));
        let full = move |row: usize| match all.get(row) {
            Some(values) => values[at].clone(),
            None if at == 0 => sums.get(row - all.len()).cloned().unwrap_or_default(),
            None => String::new(),
        };
        let column = Column::text(key.name(), key.name(), full.clone()).in_tables();
        match key {
            GroupKey::Frame => column.source_lines(),
            GroupKey::Stack => {
                let (short, has_stack) = (Rc::clone(&short), Rc::clone(&has_stack));
                let shown = move |row: usize| match has_stack.get(row) {
                    Some(true) => short[row].clone(),
                    _ => full(row),
                };
                column.shown(shown).source_lines().lines()
            }
            _ => column.cut(),
        }
    };
    let mut columns: Vec<Column<'a>> = keys.iter().enumerate().map(of_key).collect();
    let all = Rc::clone(&values);
    columns.push(Column::nested("key", move |row| all.get(row).map(|values| values.join(", "))));
    columns.push(Column::nested("keys", move |row| values.get(row).map(|values| named(keys, values))));
    columns
}

/// Returns the names of the rows after the groups: the groups that are not listed (if any), and the total.
pub(crate) fn sum_names(rest_groups: u64) -> Vec<String> {
    let rest = (rest_groups > 0).then(|| count_of(rest_groups, "more group"));
    rest.into_iter().chain(["total".to_owned()]).collect()
}

pub(crate) fn named(keys: &[GroupKey], values: &[String]) -> Value {
    let by_name: BTreeMap<&'static str, &String> = keys.iter().map(|key| key.name()).zip(values).collect();
    Value::Map(by_name.into_iter().map(|(name, value)| (name, value.clone().into())).collect())
}

/// Returns the size of each of `members` identical modules that have `bytes` in total, such as `32 × 416.83 MiB`. Empty
/// for a single module.
pub(crate) fn each_text(bytes: u64, members: usize) -> String {
    match members as u64 {
        0 | 1 => String::new(),
        members => format!("{} × {}", format_count(members), format_bytes(bytes / members)),
    }
}

/// Explains the value `(none)` for the first key that has this value in one of `groups`; `None` if no key has it.
pub(crate) fn none_note<'a>(
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
            "(none): no stack is recorded for these blocks, such as those live before the recording, or of PyTorch's \
             backward."
                .to_owned()
        }
        key => format!("(none): no {key} is recorded for these blocks, such as those live before the recording."),
    })
}

/// Returns the columns of a table with one block per row. A last row is for the `rest`, given as the number of further
/// blocks and their bytes.
pub(crate) fn block_columns<'a>(
    of: impl Fn(usize) -> Option<&'a ListedBlock> + Copy + 'a,
    (rest_blocks, rest_bytes): (u64, u64),
) -> Vec<Column<'a>> {
    let category =
        move |row: usize| of(row).map_or_else(|| count_of(rest_blocks, "more block"), |one| one.category.clone());
    let made = move |row: usize| {
        of(row).map_or_else(String::new, |one| one.made.map_or_else(|| "before".to_owned(), format_count))
    };
    vec![
        Column::number("block", "", move |row| of(row).map(|one| one.block.0)).in_files(),
        Column::bytes("bytes", "size", move |row| of(row).map_or(rest_bytes, |one| one.bytes)),
        Column::text("category", "category", category),
        Column::text("shape", "shape", move |row| of(row).map(|one| one.shape.clone())).optional(),
        Column::text("op", "op", move |row| of(row).map(|one| one.op.clone())).cut(),
        Column::text("scope", "scope", move |row| of(row).map(|one| one.scope.clone())).cut(),
        Column::number("event", "allocated at event", move |row| of(row).map(|one| one.made)).shown(made),
        Column::text("frame", "line", move |row| of(row).map(|one| one.frame.clone())).source_lines(),
    ]
}
