//! Blocks: the single blocks that one side of a comparison holds and the other does not.

use std::collections::HashMap;

use super::unite::Unite;
use super::{Asked, DiffQuery, blocks_at};
use crate::between::bytes_of;
use crate::coder::Coder;
use crate::group_key::GroupKey;
use crate::peak::Moment;
use highwater_snapshots::ids::{BlockId, EventId};

/// What two blocks share that are one and the same to a comparison; and their bytes.
const SAME_BY: [GroupKey; 4] = [GroupKey::Category, GroupKey::Op, GroupKey::Scope, GroupKey::Stack];

/// A block without its like on the other side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoneBlock {
    /// 0 for A, 1 for B.
    pub side: usize,
    /// The block, in that side's recording.
    pub block: BlockId,
    /// Its bytes, of the metric that is compared.
    pub bytes: u64,
    /// What it is for.
    pub category: String,
    /// The operation that asked for it; `(none)` if unknown.
    pub op: String,
    /// The module in which that was; `(none)` if unknown.
    pub scope: String,
    /// The line of the program that asked for it; `(none)` if unknown.
    pub frame: String,
    /// The event that made it; none for one from before the recording.
    pub made: Option<EventId>,
}

/// The blocks that only one side holds: each block that has its like on the other side, of the same category, operation,
/// module, stack and size, is left out together with it. B's bytes less A's are the difference of the moments, as far
/// as blocks make it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoneBlocks {
    /// The largest, largest first.
    pub blocks: Vec<LoneBlock>,
    /// How many each side has, of all.
    pub counts: [u64; 2],
    /// Their bytes, of all.
    pub bytes: [u64; 2],
}

impl LoneBlocks {
    /// Compares the blocks at two moments of the same metric, as far as they meet the query's filter, and lists the `top`
    /// largest.
    pub fn of(sides: [Asked<'_>; 2], moments: &[Moment; 2], query: &DiffQuery<'_>, top: usize) -> Self {
        let metric = moments[0].metric;
        let found = [0, 1].map(|side| blocks_at(sides[side], &moments[side], query.filter).blocks);
        let mut unite = Unite::of(sides.map(|asked| asked.trace), [&found[0], &found[1]], &SAME_BY);
        let mut alike: HashMap<Vec<u64>, [Vec<BlockId>; 2]> = HashMap::new();
        let mut code = Vec::with_capacity(SAME_BY.len() + 1);
        for side in [0, 1] {
            for &id in &found[side] {
                unite.code(side, id, &mut code);
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
        let mut coders = sides.map(|asked| Coder::new(asked.trace));
        all.blocks = lone
            .into_iter()
            .map(|(bytes, side, id)| {
                let block = sides[side].trace.blocks.get(id);
                let coder = &mut coders[side];
                let mut label = |key: GroupKey| {
                    let code = coder.code(&block, key);
                    coder.label(key, code)
                };
                let made = block.alloc.is_some().then_some(block.alloc);
                let (category, op) = (label(GroupKey::Category), label(GroupKey::Op));
                let (scope, frame) = (label(GroupKey::Scope), label(GroupKey::Frame));
                LoneBlock { side, block: id, bytes, category, op, scope, frame, made }
            })
            .collect();
        all
    }
}
