//! Breaks down the bytes of a set of blocks by category, op, scope and other keys; the groups add up to the total.

use std::collections::HashMap;

use highwater_snapshots::ids::{BlockId, StackId};
use highwater_snapshots::trace::Trace;
use highwater_snapshots::yielding::tick;

use super::dimension::GroupKey;
use super::key_encoder::{Code, KeyEncoder, code_beside, stack_of};
use super::siblings::{Merged, Siblings, merge, module_at};
use crate::index::beside::Beside;
use crate::metric::Metric;

/// Blocks that share the values of all keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The key values, in the order of the keys.
    pub key: Vec<String>,
    /// Bytes of the blocks.
    pub bytes: u64,
    /// Number of blocks.
    pub blocks: u64,
    /// The part of the bytes that is free in segments.
    pub free_bytes: u64,
    /// The call stack, if the blocks are grouped by stack.
    pub stack: StackId,
    /// The key values of each of the identical modules combined into this group; empty if none were combined.
    pub members: Vec<Vec<String>>,
}

/// The groups of a set of blocks, largest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Breakdown {
    /// Bytes of all groups, listed or not.
    pub total: u64,
    /// The listed groups.
    pub groups: Vec<Group>,
    /// Bytes of the groups that are not listed.
    pub rest_bytes: u64,
    /// Number of groups that are not listed.
    pub rest_groups: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Sum {
    pub(crate) bytes: u64,
    pub(crate) blocks: u64,
    pub(crate) free_bytes: u64,
}

/// Groups that are listed as a single row.
pub(crate) struct Row {
    /// The codes of each group, one per key.
    pub(crate) codes: Vec<Vec<Code>>,
    /// The common module path, if several groups are combined.
    path: Option<String>,
    pub(crate) sum: Sum,
}

impl Row {
    /// The codes of the first group.
    pub(crate) fn first(&self) -> &[Code] {
        self.codes.first().map_or(&[], Vec::as_slice)
    }

    /// Returns the listed group of the row. Only listed groups get names, since a recording may have a million stacks.
    pub(crate) fn group(&self, coder: &KeyEncoder<'_>, keys: &[GroupKey]) -> Group {
        let named = |codes: &Vec<Code>| -> Vec<String> {
            keys.iter().zip(codes).map(|(&key, &code)| coder.label(key, code)).collect()
        };
        let mut members: Vec<Vec<String>> = self.codes.iter().map(named).collect();
        let mut key = members.first().cloned().unwrap_or_default();
        match (&self.path, module_at(keys)) {
            (Some(path), Some(at)) => key[at].clone_from(path),
            _ => members.clear(),
        }
        let Sum { bytes, blocks, free_bytes } = self.sum;
        Group { key, bytes, blocks, free_bytes, stack: stack_of(keys, self.first()), members }
    }
}

/// Groups `blocks`, largest group first. Counts requested bytes for `Requested`, otherwise rounded bytes.
pub(crate) fn rows(
    coder: &mut KeyEncoder<'_>,
    trace: &Trace,
    metric: Metric,
    blocks: &[BlockId],
    grouping: &Grouping<'_>,
) -> Vec<Row> {
    let keys = grouping.keys;
    let mut sums: HashMap<Vec<Code>, Sum> = HashMap::new();
    let bytes = trace.blocks.sizes(metric);
    let mut code = vec![0; keys.len()];
    for &id in blocks {
        tick();
        for (slot, &key) in code.iter_mut().zip(keys) {
            *slot = coder.code(id, key);
        }
        if !sums.contains_key(&code) {
            sums.insert(code.clone(), Sum::default());
        }
        if let Some(sum) = sums.get_mut(&code) {
            sum.bytes += bytes[id.0 as usize];
            sum.blocks += 1;
        }
    }
    for &(beside, bytes) in grouping.beside.iter().filter(|(_, bytes)| *bytes > 0) {
        let sum = sums.entry(keys.iter().map(|key| code_beside(beside, *key)).collect()).or_default();
        sum.bytes += bytes;
        sum.free_bytes += if beside.is_free() { bytes } else { 0 };
    }
    let mut groups: Vec<(Vec<Code>, Sum)> = sums.into_iter().collect();
    groups.sort_by(|a, b| b.1.bytes.cmp(&a.1.bytes).then_with(|| a.0.cmp(&b.0)));
    joined(coder, groups, grouping)
}

impl Breakdown {
    /// Groups `blocks` by the keys of `grouping`. Counts requested bytes if `metric` is `Requested`, otherwise rounded
    /// bytes.
    pub fn of(trace: &Trace, metric: Metric, blocks: &[BlockId], grouping: &Grouping<'_>) -> Self {
        let mut coder = KeyEncoder::new(trace);
        let mut rows = rows(&mut coder, trace, metric, blocks, grouping);
        let total = rows.iter().map(|row| row.sum.bytes).sum();
        let rest = rows.split_off(grouping.top.min(rows.len()));
        Self {
            total,
            rest_bytes: rest.iter().map(|row| row.sum.bytes).sum(),
            rest_groups: rest.len() as u64,
            groups: rows.iter().map(|row| row.group(&coder, grouping.keys)).collect(),
        }
    }
}

/// Converts sorted `groups` to rows, combining identical modules if requested.
fn joined(coder: &KeyEncoder<'_>, groups: Vec<(Vec<Code>, Sum)>, grouping: &Grouping<'_>) -> Vec<Row> {
    let keys = grouping.keys;
    let Some(at) = module_at(keys).filter(|_| grouping.siblings == Siblings::Merged) else {
        return groups.into_iter().map(|(codes, sum)| Row { codes: vec![codes], path: None, sum }).collect();
    };
    let paths = groups.iter().map(|(codes, sum)| {
        let mut others = codes.clone();
        let path = coder.label(keys[at], others.swap_remove(at));
        (path, (others, *sum))
    });
    let row = |Merged { path, rows }: Merged| {
        let Sum { bytes, blocks, free_bytes } = groups[rows[0]].1;
        let count = rows.len() as u64;
        Row {
            codes: rows.iter().map(|row| groups[*row].0.clone()).collect(),
            path: (count > 1).then_some(path),
            sum: Sum { bytes: bytes * count, blocks: blocks * count, free_bytes: free_bytes * count },
        }
    };
    let mut rows: Vec<Row> = merge(paths).into_iter().map(row).collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.sum.bytes));
    rows
}

/// Settings for grouping blocks: keys, number of groups, and bytes outside of blocks.
#[derive(Clone, Copy, Debug)]
pub struct Grouping<'a> {
    /// The keys to group by.
    pub keys: &'a [GroupKey],
    /// Bytes outside of blocks.
    pub beside: &'a [(Beside, u64)],
    /// Number of groups to list.
    pub top: usize,
    /// Whether identical modules are combined into one group.
    pub siblings: Siblings,
}
