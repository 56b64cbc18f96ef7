//! The parts of a peak, by category and phase of allocation.

use highwater_snapshots::ids::{BlockId, DeviceId};
use highwater_snapshots::trace::{Block, Trace};
use highwater_snapshots::{Category, Phase, Result};

use crate::grouping::key_encoder::Code;
use crate::grouping::origin::{Origin, Origins};
use crate::index::counterfactual::NO_GROUP;
use crate::metric::Metric;
use crate::question::between::bytes_of;
use crate::question::peak::Moment;
use crate::question::source::Source;

/// A category and when blocks of it were allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CategoryAndPhase {
    /// The category.
    pub category: Category,
    /// The time at which they were allocated.
    pub origin: Origin,
}

impl CategoryAndPhase {
    /// The display name: `temporary from optimizer`; in a recording without phases only the category.
    pub fn name(&self) -> String {
        match self.origin {
            Origin::Unmarked => self.category.to_string(),
            Origin::BeforeRecording => format!("{} from before the recording", self.category),
            Origin::Phase(Phase::Other) => format!("{} outside all phases", self.category),
            Origin::Phase(phase) => format!("{} from {phase}", self.category),
        }
    }

    /// The `--where` condition for its blocks.
    pub fn condition(&self) -> String {
        format!("category={} phase={}", self.category, self.origin.word())
    }

    /// Number of possible causes: pairs of a category and an origin.
    pub(crate) const COUNT: usize = Category::ALL.len() * Origin::COUNT;

    /// Every cause, in the order of their numbers.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let of = |&category: &Category| Origin::all().map(move |origin| Self { category, origin });
        Category::ALL.iter().flat_map(of)
    }

    /// The cause of a block of `trace`.
    pub(crate) fn of(trace: &Trace, block: &Block) -> Self {
        Self { category: block.category, origin: Origin::of(trace, block) }
    }

    /// Its number, below [`CategoryAndPhase::COUNT`], by which arrays are indexed.
    pub(crate) fn number(self) -> usize {
        self.category as usize * Origin::COUNT + self.origin.code()
    }

    /// The key of its group in [`Selection::Causes`](super::selection::Selection::Causes).
    pub(super) fn key(self) -> [Code; 1] {
        [self.number() as Code]
    }

    /// Whether a program can run without such blocks. It cannot without parameters or optimizer state.
    pub(crate) fn is_dispensable(self) -> bool {
        use Category::{Buffer, Input, OptimizerState, Parameter};
        !matches!(self.category, Parameter | Buffer | Input | OptimizerState)
    }
}

/// The cause of most bytes at a peak, and its bytes; `None` if the metric is not a sum over blocks, or nothing is live.
///
/// # Errors
///
/// As [`Source::window_at`].
pub fn largest_cause(source: &Source<'_>, peak: &Moment) -> Result<Option<(CategoryAndPhase, u64)>> {
    if !peak.metric.is_of_blocks() {
        return Ok(None);
    }
    let window = source.window_at(peak.number())?;
    let at_peak = window.index(peak.device).live.before_position(&window.trace, peak.metric, window.events.end);
    let sums = sums_by_cause(&window.trace, peak.metric, &at_peak);
    let largest = CategoryAndPhase::all().zip(sums).max_by_key(|(_, bytes)| *bytes);
    Ok(largest.filter(|(_, bytes)| *bytes > 0))
}

/// The number of the cause of each block of `device`, or [`NO_GROUP`].
pub(crate) fn causes(trace: &Trace, device: DeviceId) -> Vec<u32> {
    let mut origins = Origins::new(trace);
    let of_block = |id: BlockId| {
        let row = id.0 as usize;
        if trace.blocks.device[row] != device {
            return NO_GROUP;
        }
        CategoryAndPhase { category: trace.blocks.category[row], origin: origins.of(id) }.number() as u32
    };
    trace.blocks.ids().map(of_block).collect()
}

/// The bytes of `blocks` by the number of their cause.
pub(crate) fn sums_by_cause(trace: &Trace, metric: Metric, blocks: &[BlockId]) -> Vec<u64> {
    let mut sums = vec![0; CategoryAndPhase::COUNT];
    for &id in blocks {
        sums[CategoryAndPhase::of(trace, &trace.blocks.get(id)).number()] += bytes_of(trace, metric, id);
    }
    sums
}

#[cfg(test)]
mod tests {
    use highwater_snapshots::text::trace_from_text;

    use super::*;

    fn cause(text: &str, metric: Metric) -> Option<(String, u64)> {
        let source = Source::in_memory(trace_from_text(text).unwrap());
        let peak = source.peak(DeviceId(0), metric).unwrap();
        largest_cause(&source, &peak).unwrap().map(|(cause, bytes)| (cause.name(), bytes))
    }

    #[test]
    fn the_cause_of_a_peak_is_what_most_of_its_bytes_are() {
        let text = "baseline w 300 parameter\nstep 0\nphase forward\nalloc a 250 activation\nalloc b 250 activation\n\
                    free a\nphase backward\nalloc g 200 gradient";
        assert_eq!(cause(text, Metric::Requested), Some(("activation from forward".to_owned(), 500)));
        assert_eq!(cause(text, Metric::Reserved), None);
        let baseline = Some(("parameter from before the recording".to_owned(), 300));
        assert_eq!(cause("baseline w 300 parameter\nphase forward\nfree w", Metric::Requested), baseline);
        assert_eq!(cause("", Metric::Requested), None);
    }
}
