//! Lists of individual blocks: the largest live blocks at some event, or the blocks of only one side of a comparison.

use std::cmp::Reverse;

use highwater_snapshots::ids::BlockId;
use highwater_snapshots::shown::{MAX_SHOWN, shown};
use highwater_snapshots::trace::Trace;

use super::between::bytes_of;
use super::peak::{Found, Moment};
use crate::grouping::dimension::GroupKey;
use crate::grouping::filter::Filter;
use crate::grouping::key_encoder::KeyEncoder;
use crate::index::live::LiveIndex;
use crate::index::series::Series;

/// A block in a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedBlock {
    /// The block's id in the whole recording.
    pub block: BlockId,
    /// The bytes in the list's metric.
    pub bytes: u64,
    /// The name of the block's category.
    pub category: String,
    /// The operation that allocated the block; `(none)` if unknown.
    pub op: String,
    /// The module that allocated the block; `(none)` if unknown.
    pub scope: String,
    /// The line of user code that allocated the block; `(none)` if unknown.
    pub frame: String,
    /// The shape and dtype of its tensor, such as `[4096, 4096] bfloat16`; `None` if not recorded.
    pub shape: Option<String>,
    /// The index of the event that allocated the block; `None` if allocated before the recording.
    pub made: Option<u64>,
}

impl ListedBlock {
    /// Describes block `id` of the trace of `coder`; `bytes` is its size in the list's metric.
    pub(crate) fn of(coder: &mut KeyEncoder<'_>, trace: &Trace, id: BlockId, bytes: u64) -> Self {
        let mut label = |key: GroupKey| {
            let code = coder.code(id, key);
            coder.label(key, code)
        };
        let (category, op) = (label(GroupKey::Category), label(GroupKey::Op));
        let (scope, frame) = (label(GroupKey::Scope), label(GroupKey::Frame));
        let (block, made) = (trace.block_number(id), trace.alloc_number(id));
        let shape = trace.shape(id).map(|shape| shown(shape, MAX_SHOWN).into_owned());
        Self { block, bytes, category, op, scope, frame, shape, made }
    }
}

/// The largest blocks that are live at some event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LargestBlocks {
    /// The listed blocks, largest first.
    pub blocks: Vec<ListedBlock>,
    /// Number of blocks that are not listed.
    pub rest_blocks: u64,
    /// Bytes of the blocks that are not listed.
    pub rest_bytes: u64,
}

impl LargestBlocks {
    /// Lists the `top` largest blocks at `moment` that pass `filter`. Blocks of equal size are in order of allocation.
    pub fn at(
        trace: &Trace,
        (live, series): (&LiveIndex, &Series),
        moment: &Moment,
        filter: &Filter,
        top: usize,
    ) -> Self {
        let bytes = |id: BlockId| bytes_of(trace, moment.metric, id);
        let mut blocks = Found::at(trace, live, series, moment, filter).blocks;
        blocks.sort_unstable_by_key(|id| (Reverse(bytes(*id)), *id));
        let rest = blocks.split_off(top.min(blocks.len()));
        let mut coder = KeyEncoder::new(trace);
        Self {
            blocks: blocks.iter().map(|id| ListedBlock::of(&mut coder, trace, *id, bytes(*id))).collect(),
            rest_blocks: rest.len() as u64,
            rest_bytes: rest.iter().map(|id| bytes(*id)).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Metric;
    use crate::tests::fixture::Fixture;

    #[test]
    fn the_largest_blocks_of_a_moment_are_listed_and_the_others_are_summed_up() {
        let text = "alloc w 100 parameter @net\nattribute shape \"[5, 5] float32\"\n\
                    alloc x 30 activation @net.fc < net.rs:7 run < main\nalloc y 30 gradient\nalloc z 7 input\nfree x";
        let held = Fixture::of(text);
        let asked = held.asked();
        let peak = held.peak(Metric::Requested);
        let at = |filter: &str, top: usize| {
            let filter = filter.parse().unwrap();
            LargestBlocks::at(asked.trace, (asked.live, asked.series), &peak, &filter, top)
        };
        let largest = at("", 2);
        let listed: Vec<_> = largest.blocks.iter().map(|one| (one.block.0, one.bytes, one.made)).collect();
        assert_eq!(listed, [(0, 100, Some(0)), (1, 30, Some(1))]);
        assert_eq!((largest.rest_blocks, largest.rest_bytes), (2, 37));
        let shapes: Vec<_> = largest.blocks.iter().map(|one| one.shape.as_deref()).collect();
        assert_eq!(shapes, [Some("[5, 5] float32"), None]);
        let second = &largest.blocks[1];
        assert_eq!((second.category.as_str(), second.scope.as_str()), ("activation", "net.fc"));
        assert!(second.frame.contains("net.rs:7"), "{}", second.frame);
        let smaller = at("size<=30", 9);
        assert_eq!(smaller.blocks.iter().map(|one| one.bytes).collect::<Vec<_>>(), [30, 30, 7]);
        assert_eq!((smaller.rest_blocks, smaller.rest_bytes), (0, 0));
    }
}
