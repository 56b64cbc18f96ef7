//! Breaks the bytes of a set of blocks down by category, op, scope and other keys; the groups add up to the total.

use std::collections::HashMap;

use serde::Serialize;

use highwater_snapshots::ids::{BlockId, StackId};
use highwater_snapshots::trace::Trace;

use super::beside::Beside;
use super::group_key::GroupKey;
use super::key_encoder::{Code, KeyEncoder, code_beside, stack_of};
use super::metric::Metric;
use super::siblings::{Merged, Siblings, merge, module_at};

/// Blocks that share the values of all keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Group {
    /// The key values, in the order of the keys.
    pub key: Vec<String>,
    /// Bytes of the blocks.
    pub bytes: u64,
    /// Number of blocks.
    pub blocks: u64,
    /// Of the bytes, those that are free in segments.
    #[serde(skip)]
    pub free_bytes: u64,
    /// The call stack, if it is one of the keys.
    #[serde(skip)]
    pub stack: StackId,
    /// The key values of each of the equal modules that are one group; empty if it is of one.
    #[serde(skip)]
    pub members: Vec<Vec<String>>,
}

/// The groups of a set of blocks, largest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
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

/// The sums of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Sum {
    bytes: u64,
    blocks: u64,
    free_bytes: u64,
}

/// Groups that are listed as one: the codes of each, and the sums of all.
struct Row {
    codes: Vec<Vec<Code>>,
    /// The value of the module path, if the groups are of several.
    path: Option<String>,
    sum: Sum,
}

impl Breakdown {
    /// Groups `blocks` by the keys of `grouping`, counting requested bytes if that is `metric`, else rounded bytes.
    pub fn of(trace: &Trace, metric: Metric, blocks: &[BlockId], grouping: &Grouping<'_>) -> Self {
        let keys = grouping.keys;
        let mut sums: HashMap<Vec<Code>, Sum> = HashMap::new();
        let mut coder = KeyEncoder::new(trace);
        let mut code = vec![0; keys.len()];
        for &id in blocks {
            let block = trace.blocks.get(id);
            for (slot, &key) in code.iter_mut().zip(keys) {
                *slot = coder.code(id, key);
            }
            if !sums.contains_key(&code) {
                sums.insert(code.clone(), Sum::default());
            }
            if let Some(sum) = sums.get_mut(&code) {
                sum.bytes += if metric == Metric::Requested { block.requested } else { block.allocated };
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
        let mut rows = rows_of(&coder, groups, grouping);
        let total = rows.iter().map(|row| row.sum.bytes).sum();
        let rest = rows.split_off(grouping.top.min(rows.len()));
        // Names are built only for listed groups: a recording may have a million stacks.
        let named = |codes: &Vec<Code>| -> Vec<String> {
            keys.iter().zip(codes).map(|(&key, &code)| coder.label(key, code)).collect()
        };
        let group = |Row { codes, path, sum: Sum { bytes, blocks, free_bytes } }: Row| {
            let mut members: Vec<Vec<String>> = codes.iter().map(named).collect();
            let mut key = members.first().cloned().unwrap_or_default();
            match (path, module_at(keys)) {
                (Some(path), Some(at)) => key[at] = path,
                _ => members.clear(),
            }
            let stack = codes.first().map_or(StackId::NONE, |codes| stack_of(keys, codes));
            Group { key, bytes, blocks, free_bytes, stack, members }
        };
        Self {
            total,
            rest_bytes: rest.iter().map(|row| row.sum.bytes).sum(),
            rest_groups: rest.len() as u64,
            groups: rows.into_iter().map(group).collect(),
        }
    }
}

/// The rows of `groups`, which are sorted: one for each, or one for equal modules.
fn rows_of(coder: &KeyEncoder<'_>, groups: Vec<(Vec<Code>, Sum)>, grouping: &Grouping<'_>) -> Vec<Row> {
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

/// How blocks are grouped.
#[derive(Clone, Copy, Debug)]
pub struct Grouping<'a> {
    /// The keys to group by.
    pub keys: &'a [GroupKey],
    /// Bytes that belong to no block.
    pub beside: &'a [(Beside, u64)],
    /// Number of groups to list.
    pub top: usize,
    /// Whether equal modules are one group.
    pub siblings: Siblings,
}
