//! Groups a set of blocks and lists the largest groups with their blocks.

use std::collections::HashMap;

use highwater_snapshots::ids::{BlockId, ScopeId};
use highwater_snapshots::intern::Interner;
use highwater_snapshots::trace::Trace;

use super::dimension::{GroupKey, layer_pattern};
use super::key_encoder::{Code, KeyEncoder};

/// Blocks that share the values of all keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveGroup {
    /// The key values, in the order of the keys.
    pub key: Vec<String>,
    /// Bytes of the blocks, including the allocator's rounding.
    pub bytes: u64,
    /// The blocks, in the order of the input.
    pub blocks: Vec<BlockId>,
}

/// The groups of a set of blocks, largest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveGroups {
    /// The keys of the groups.
    pub keys: Vec<GroupKey>,
    /// The listed groups.
    pub groups: Vec<LiveGroup>,
    /// Bytes of all groups.
    pub total: u64,
    /// Number of groups that are not listed.
    pub rest_groups: u64,
    /// Bytes of the groups that are not listed.
    pub rest_bytes: u64,
}

/// Module paths in which layer numbers are replaced by a star.
#[derive(Default)]
struct Layers {
    names: Interner<String>,
    code_of: HashMap<ScopeId, Code>,
}

impl Layers {
    fn code(&mut self, trace: &Trace, scope: ScopeId) -> Code {
        let names = &mut self.names;
        *self.code_of.entry(scope).or_insert_with(|| {
            let mut parts: Vec<&str> = trace.tables.scope_names(scope).map(layer_pattern).collect();
            parts.reverse();
            let path = if parts.is_empty() { "(none)".to_owned() } else { parts.join(".") };
            Code::from(names.intern(path))
        })
    }
}

#[derive(Default)]
struct Sum {
    bytes: u64,
    blocks: Vec<BlockId>,
}

impl LiveGroups {
    /// Groups `blocks` by `keys` and lists the `top` largest groups. The same modules of all layers are combined, as in
    /// `blocks.*.mlp`.
    pub fn of(trace: &Trace, blocks: &[BlockId], keys: &[GroupKey], top: usize) -> Self {
        let mut coder = KeyEncoder::new(trace);
        let mut layers = Layers::default();
        let mut sums: HashMap<Vec<Code>, Sum> = HashMap::new();
        for &id in blocks {
            let block = trace.blocks.get(id);
            let code = |key: &GroupKey| match key {
                GroupKey::Scope => layers.code(trace, block.scope),
                key => coder.code(id, *key),
            };
            let code: Vec<Code> = keys.iter().map(code).collect();
            let sum = sums.entry(code).or_default();
            sum.bytes += block.allocated;
            sum.blocks.push(id);
        }
        let mut rows: Vec<(Vec<Code>, Sum)> = sums.into_iter().collect();
        rows.sort_by(|a, b| b.1.bytes.cmp(&a.1.bytes).then_with(|| a.0.cmp(&b.0)));
        let total = rows.iter().map(|(_, sum)| sum.bytes).sum();
        let rest = rows.split_off(top.min(rows.len()));
        let holder = |(code, Sum { bytes, blocks }): (Vec<Code>, Sum)| {
            // Names are built only for listed groups: a recording may have a million stacks.
            let label = |(key, code): (&GroupKey, Code)| match key {
                GroupKey::Scope => layers.names.rows()[code as usize].clone(),
                key => coder.label(*key, code),
            };
            LiveGroup { key: keys.iter().zip(code).map(label).collect(), bytes, blocks }
        };
        Self {
            keys: keys.to_vec(),
            groups: rows.into_iter().map(holder).collect(),
            total,
            rest_groups: rest.len() as u64,
            rest_bytes: rest.iter().map(|(_, sum)| sum.bytes).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_notation::trace_from_text;

    #[test]
    fn the_largest_groups_are_listed_and_the_rest_is_counted() {
        let text = "alloc a 100/512 activation\nalloc b 600/1024 gradient\nalloc c 512 activation\nalloc d 1 input";
        let trace = trace_from_text(text).unwrap();
        let blocks: Vec<BlockId> = trace.blocks.ids().collect();
        let holders = LiveGroups::of(&trace, &blocks, &[GroupKey::Category], 2);
        let listed: Vec<_> =
            holders.groups.iter().map(|one| (one.key[0].as_str(), one.bytes, one.blocks.clone())).collect();
        let both = vec![BlockId(0), BlockId(2)];
        // Of equal sizes, the category listed first in the list of categories.
        assert_eq!(listed, [("gradient", 1024, vec![BlockId(1)]), ("activation", 1024, both)]);
        assert_eq!((holders.rest_groups, holders.rest_bytes + 2048), (1, holders.total));
    }
}
