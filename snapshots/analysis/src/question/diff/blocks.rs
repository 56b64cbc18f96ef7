//! The individual blocks that only one side of a comparison has.

use std::collections::HashMap;

use super::key_aligner::KeyAligner;
use super::{Asked, found_at};
use crate::grouping::dimension::GroupKey;
use crate::grouping::key_encoder::KeyEncoder;
use crate::question::between::bytes_of;
use crate::question::listed_blocks::ListedBlock;
use crate::question::peak::{Moment, Query};
use highwater_snapshots::ids::BlockId;

/// The keys, in addition to size, in which two blocks must agree to match.
const SAME_BY: [GroupKey; 4] = [GroupKey::Category, GroupKey::Op, GroupKey::Scope, GroupKey::Stack];

/// A block without a match on the other side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoneBlock {
    /// The side: 0 for A, 1 for B.
    pub side: usize,
    /// The unmatched block and its facts.
    pub listed: ListedBlock,
}

/// The blocks that only one side has. Blocks of the two sides that agree in category, operation, module, call stack and
/// size are omitted in pairs. The bytes of B minus those of A are the part of the difference that consists of blocks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnmatchedBlocks {
    /// The listed blocks, largest first.
    pub blocks: Vec<LoneBlock>,
    /// Number of blocks on each side, listed or not.
    pub counts: [u64; 2],
    /// Bytes of these blocks on each side.
    pub bytes: [u64; 2],
}

impl UnmatchedBlocks {
    /// Compares the blocks that pass the query's filter at two points of one metric, and lists the `top` largest.
    pub fn of(sides: [Asked<'_>; 2], moments: &[Moment; 2], query: &Query<'_>, top: usize) -> Self {
        let metric = moments[0].metric;
        let found = [0, 1].map(|side| found_at(sides[side], &moments[side], query.filter).blocks);
        let mut combine = KeyAligner::of(sides.map(|asked| asked.trace), [&found[0], &found[1]], &SAME_BY);
        let mut alike: HashMap<Vec<u64>, [Vec<BlockId>; 2]> = HashMap::new();
        let mut code = Vec::with_capacity(SAME_BY.len() + 1);
        for side in [0, 1] {
            for &id in &found[side] {
                combine.code(side, id, &mut code);
                code.push(bytes_of(sides[side].trace, metric, id));
                match alike.get_mut(&code) {
                    Some(rows) => rows[side].push(id),
                    None => alike.entry(code.clone()).or_default()[side].push(id),
                }
            }
        }
        let mut lone: Vec<(u64, usize, BlockId)> = Vec::new();
        let mut all = Self::default();
        for (code, rows) in &alike {
            let bytes = code.last().copied().unwrap_or(0);
            let pairs = rows[0].len().min(rows[1].len());
            for (side, rows) in rows.iter().enumerate() {
                let left = &rows[pairs..];
                all.counts[side] += left.len() as u64;
                all.bytes[side] += bytes * left.len() as u64;
                lone.extend(left.iter().map(|id| (bytes, side, *id)));
            }
        }
        lone.sort_unstable_by_key(|(bytes, side, id)| (std::cmp::Reverse(*bytes), *side, *id));
        lone.truncate(top);
        let mut coders = sides.map(|asked| KeyEncoder::new(asked.trace));
        all.blocks = lone
            .into_iter()
            .map(|(bytes, side, id)| {
                let listed = ListedBlock::of(&mut coders[side], sides[side].trace, id, bytes);
                LoneBlock { side, listed }
            })
            .collect();
        all
    }
}
