//! Classifies blocks by two points in time, according to whether they are live at each.

use std::ops::Range;

use highwater_snapshots::ids::BlockId;
use highwater_snapshots::trace::Trace;

use crate::index::live::LiveIndex;
use crate::metric::Metric;

highwater_snapshots::vocabulary!(
    /// A class of blocks relative to two points in time, A and B, where A is not later than B.
    #[derive(Default)]
    Question {
        /// Live at A.
        AliveAtA = "live at A",
        /// Live at B.
        AliveAtB = "live at B",
        /// Live at A and at B.
        Kept = "kept",
        /// Allocated between A and B and live at B.
        #[default]
        Born = "born",
        /// Live at A and freed by B.
        Freed = "freed",
        /// Allocated after A and freed by B.
        ShortLived = "short-lived",
    }
);

impl Question {
    /// Describes the blocks of the class.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::AliveAtA => "live at A, whether freed later or not",
            Self::AliveAtB => "live at B, whenever allocated",
            Self::Kept => "live at A and still live at B",
            Self::Born => "allocated between A and B and live at B: the growth",
            Self::Freed => "live at A and freed by B",
            Self::ShortLived => "allocated after A and freed by B",
        }
    }
}

/// Returns the blocks of the class `question` on the device of `live`, in block order. `moments` are A and B in either
/// order, each as the number of events before it. Whether a block is live depends on `metric`; for metrics that are
/// not sums over blocks, active blocks count as live.
///
/// The running time depends on the blocks live at A or B and those allocated in between, not on the length of the
/// recording.
pub fn blocks_between(
    trace: &Trace,
    live: &LiveIndex,
    metric: Metric,
    moments: Range<usize>,
    question: Question,
) -> Vec<BlockId> {
    let (a, b) = ordered(trace, moments);
    let has_ended = |id: &BlockId| has_ended(trace, metric, *id, b);
    match question {
        Question::AliveAtA => live.before_position(trace, metric, a),
        Question::AliveAtB => live.before_position(trace, metric, b),
        Question::Kept => live.before_position(trace, metric, a).into_iter().filter(|id| !has_ended(id)).collect(),
        Question::Freed => live.before_position(trace, metric, a).into_iter().filter(has_ended).collect(),
        Question::Born => born(trace, live, a, b).filter(|id| !has_ended(id)).collect(),
        Question::ShortLived => born(trace, live, a, b).filter(has_ended).collect(),
    }
}

/// A number of blocks and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum {
    /// Bytes of the blocks: requested or rounded, depending on the metric.
    pub bytes: u64,
    /// Number of blocks.
    pub blocks: u64,
}

impl Sum {
    pub(crate) fn add(&mut self, bytes: u64) {
        self.join(&Self { bytes, blocks: 1 });
    }

    pub(crate) fn join(&mut self, other: &Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.blocks = self.blocks.saturating_add(other.blocks);
    }

    pub(crate) fn plus(mut self, other: Self) -> Self {
        self.join(&other);
        self
    }
}

/// The sums of all classes. The blocks live at A, minus the freed, plus the born, are those live at B.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Balance {
    /// See [`Question::Kept`].
    pub kept: Sum,
    /// See [`Question::Born`].
    pub born: Sum,
    /// See [`Question::Freed`].
    pub freed: Sum,
    /// See [`Question::ShortLived`].
    pub short_lived: Sum,
}

impl Balance {
    /// Adds up the blocks for which `is_counted` is true. The running time depends on the blocks live at A and those
    /// allocated between A and B.
    pub fn of(
        trace: &Trace,
        live: &LiveIndex,
        metric: Metric,
        moments: Range<usize>,
        is_counted: impl Fn(BlockId) -> bool,
    ) -> Self {
        let (a, b) = ordered(trace, moments);
        let mut balance = Self::default();
        for id in live.before_position(trace, metric, a).into_iter().filter(|id| is_counted(*id)) {
            let sum = if has_ended(trace, metric, id, b) { &mut balance.freed } else { &mut balance.kept };
            sum.add(bytes_of(trace, metric, id));
        }
        for id in born(trace, live, a, b).filter(|id| is_counted(*id)) {
            let sum = if has_ended(trace, metric, id, b) { &mut balance.short_lived } else { &mut balance.born };
            sum.add(bytes_of(trace, metric, id));
        }
        balance
    }

    /// The sum of one class.
    pub fn get(&self, question: Question) -> Sum {
        match question {
            Question::AliveAtA => self.kept.plus(self.freed),
            Question::AliveAtB => self.kept.plus(self.born),
            Question::Kept => self.kept,
            Question::Born => self.born,
            Question::Freed => self.freed,
            Question::ShortLived => self.short_lived,
        }
    }
}

/// Returns a block's bytes: requested bytes for [`Metric::Requested`], otherwise rounded bytes.
#[inline]
pub fn bytes_of(trace: &Trace, metric: Metric, id: BlockId) -> u64 {
    trace.blocks.sizes(metric)[id.0 as usize]
}

fn ordered(trace: &Trace, moments: Range<usize>) -> (usize, usize) {
    let last = trace.events.len();
    let (a, b) = (moments.start.min(last), moments.end.min(last));
    (a.min(b), a.max(b))
}

/// Returns whether one of the events `0..position` frees `id`, which must be allocated by then.
fn has_ended(trace: &Trace, metric: Metric, id: BlockId, position: usize) -> bool {
    let ends_at_request = matches!(metric, Metric::Requested | Metric::Allocated);
    let ends = if ends_at_request { &trace.blocks.free_requested } else { &trace.blocks.free_completed };
    ends[id.0 as usize].index().is_some_and(|event| event < position)
}

/// The blocks of the device of `live` that events `a..b` allocate, in allocation order.
fn born(trace: &Trace, live: &LiveIndex, a: usize, b: usize) -> impl Iterator<Item = BlockId> {
    let blocks = &trace.blocks;
    let first = blocks.alloc.partition_point(|alloc| alloc.index().is_none_or(|event| event < a));
    let end = blocks.alloc.partition_point(|alloc| alloc.index().is_none_or(|event| event < b));
    let device = live.device();
    (first..end).filter(move |row| blocks.device[*row] == device).map(BlockId::from_index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Series;
    use highwater_notation::trace_from_text;
    use highwater_snapshots::DeviceId;

    /// Two devices, a block that waits for a stream, a baseline block that waits, a missing free, and a short-lived
    /// block.
    const LIVES: &str = "
        baseline w 1000/1024
        baseline v 30/512 waiting
        alloc a 100/512
        alloc x 7 device=1
        alloc g 400/512
        free_requested a
        free_completed v
        alloc s 50/512
        free s
        free_completed a
        alloc g 600/1024
        free w
        alloc y 9 device=1
        alloc z 5/512
    ";

    fn names(blocks: &[BlockId]) -> Vec<u32> {
        blocks.iter().map(|id| id.0).collect()
    }

    #[test]
    fn each_question_gives_its_blocks_in_block_order() {
        let trace = trace_from_text(LIVES).unwrap();
        let live = LiveIndex::build(&trace, DeviceId(0));
        // Rows: w 0, v 1, a 2, x 3, g 4, s 5, g again 6, y 7, z 8.
        let ask = |metric, question| names(&blocks_between(&trace, &live, metric, 3..12, question));
        assert_eq!(ask(Metric::Requested, Question::AliveAtA), [0, 2, 4]);
        assert_eq!(ask(Metric::Requested, Question::AliveAtB), [6]);
        assert_eq!(ask(Metric::Requested, Question::Kept), [0_u32; 0]);
        assert_eq!(ask(Metric::Requested, Question::Born), [6]);
        assert_eq!(ask(Metric::Requested, Question::Freed), [0, 2, 4]);
        assert_eq!(ask(Metric::Requested, Question::ShortLived), [5]);
        assert_eq!(ask(Metric::Active, Question::AliveAtA), [0, 1, 2, 4]);
        let backwards = blocks_between(&trace, &live, Metric::Requested, Range { start: 12, end: 3 }, Question::Born);
        assert_eq!(names(&backwards), [6], "whichever mark was set first");
    }

    #[test]
    fn alive_at_a_and_born_less_freed_is_alive_at_b_to_the_byte() {
        let trace = trace_from_text(LIVES).unwrap();
        for device in [DeviceId(0), DeviceId(1)] {
            let (live, series) = (LiveIndex::build(&trace, device), Series::build(&trace, device));
            for metric in Metric::OF_BLOCKS {
                for a in 0..=trace.events.len() {
                    for b in a..=trace.events.len() {
                        let balance = Balance::of(&trace, &live, metric, a..b, |_| true);
                        let [at_a, at_b] = [Question::AliveAtA, Question::AliveAtB].map(|of| balance.get(of));
                        assert_eq!(at_a.bytes, series.before_position(&trace, a).get(metric), "{metric} at {a}");
                        assert_eq!(at_b.bytes, series.before_position(&trace, b).get(metric), "{metric} at {b}");
                        assert_eq!(at_a.bytes + balance.born.bytes - balance.freed.bytes, at_b.bytes);
                        for &question in Question::ALL {
                            let blocks = blocks_between(&trace, &live, metric, a..b, question);
                            let bytes: u64 = blocks.iter().map(|id| bytes_of(&trace, metric, *id)).sum();
                            let sum = Sum { bytes, blocks: blocks.len() as u64 };
                            assert_eq!(sum, balance.get(question), "{question:?} of {metric} from {a} to {b}");
                            assert!(blocks.is_sorted());
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_condition_narrows_every_sum() {
        let trace = trace_from_text(LIVES).unwrap();
        let live = LiveIndex::build(&trace, DeviceId(0));
        let balance = Balance::of(&trace, &live, Metric::Requested, 3..12, |id| id.0 >= 4);
        assert_eq!(balance.get(Question::Freed), Sum { bytes: 400, blocks: 1 });
        assert_eq!(balance.get(Question::Born), Sum { bytes: 600, blocks: 1 });
    }
}
