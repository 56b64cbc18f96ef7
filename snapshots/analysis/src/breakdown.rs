//! Breaks the bytes of a set of blocks down by category, op, scope and other keys; the groups add up to the total.

use std::collections::HashMap;

use serde::Serialize;

use highwater_snapshots::ids::{BlockId, StackId};
use highwater_snapshots::trace::Trace;

use super::coder::{Code, Coder};
use super::group_key::GroupKey;
use super::metric::Metric;

/// Blocks that share the values of all keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Group {
    /// The key values, in the order of the keys.
    pub key: Vec<String>,
    /// Bytes of the blocks.
    pub bytes: u64,
    /// Number of blocks.
    pub blocks: u64,
    /// The call stack, if it is one of the keys.
    #[serde(skip)]
    pub stack: StackId,
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

impl Breakdown {
    /// Groups `blocks` by the keys of `grouping`, counting requested bytes if that is `metric`, else rounded bytes.
    pub fn of(trace: &Trace, metric: Metric, blocks: &[BlockId], grouping: &Grouping<'_>) -> Self {
        let keys = grouping.keys;
        let mut sums: HashMap<Vec<Code>, (u64, u64)> = HashMap::new();
        let mut coder = Coder::new(trace);
        let mut code = vec![0; keys.len()];
        for &id in blocks {
            let block = trace.blocks.get(id);
            for (slot, &key) in code.iter_mut().zip(keys) {
                *slot = coder.code(id, key);
            }
            let bytes = if metric == Metric::Requested { block.requested } else { block.allocated };
            match sums.get_mut(&code) {
                Some((sum, count)) => (*sum, *count) = (*sum + bytes, *count + 1),
                None => {
                    sums.insert(code.clone(), (bytes, 1));
                }
            }
        }
        let beside = grouping.beside.iter().filter(|(_, bytes)| *bytes > 0);
        let beside = beside.map(|&(name, bytes)| (Named::Beside(name), bytes, 0));
        let mut rows: Vec<(Named<'_>, u64, u64)> = beside.collect();
        rows.extend(sums.into_iter().map(|(code, (bytes, blocks))| (Named::Blocks(code), bytes, blocks)));
        rows.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let total = rows.iter().map(|(_, bytes, _)| bytes).sum();
        let rest = rows.split_off(grouping.top.min(rows.len()));
        let group = |(name, bytes, blocks): &(Named<'_>, u64, u64)| {
            // Names are built only for listed groups: a recording may have a million stacks.
            let key = match name {
                Named::Beside(name) => keys.iter().map(|_| (*name).to_owned()).collect(),
                Named::Blocks(code) => keys.iter().zip(code).map(|(&key, &code)| coder.label(key, code)).collect(),
            };
            let stack = match name {
                Named::Beside(_) => None,
                Named::Blocks(code) => {
                    keys.iter().zip(code).find(|(key, _)| **key == GroupKey::Stack).map(|(_, &code)| code)
                }
            };
            let stack = stack.map_or(StackId::NONE, |code| StackId(code as u32));
            Group { key, bytes: *bytes, blocks: *blocks, stack }
        };
        Self {
            total,
            groups: rows.iter().map(group).collect(),
            rest_bytes: rest.iter().map(|(_, bytes, _)| bytes).sum(),
            rest_groups: rest.len() as u64,
        }
    }
}

/// How blocks are grouped.
#[derive(Clone, Copy, Debug)]
pub struct Grouping<'a> {
    /// The keys to group by.
    pub keys: &'a [GroupKey],
    /// Bytes that belong to no block, each a group with this name.
    pub beside: &'a [(&'a str, u64)],
    /// Number of groups to list.
    pub top: usize,
}

/// A group before its names are built.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Named<'a> {
    Blocks(Vec<Code>),
    Beside(&'a str),
}
