//! Divides a peak by the category of the blocks and the phase in which they were allocated.

use highwater_snapshots::line_text::unique_suffixes;
use highwater_snapshots::trace::Block;
use highwater_snapshots::{BlockId, Category, DeviceId, Phase, Result, Trace};

use crate::grouping::dimension::GroupKey;
use crate::grouping::key_encoder::Code;
use crate::grouping::live_groups::{LiveGroup, LiveGroups};
use crate::grouping::origin::{Origin, Origins};
use crate::index::addresses::eviction_window::is_dispensable;
use crate::index::counterfactual::NO_GROUP;
use crate::metric::Metric;
use crate::question::between::bytes_of;
use crate::question::peak::Moment;
use crate::question::source::Source;

/// A category, and the phase in which its blocks were allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CategoryAndPhase {
    /// The category of the blocks.
    pub category: Category,
    /// The phase in which the blocks were allocated.
    pub origin: Origin,
}

impl CategoryAndPhase {
    /// The display name, such as `temporary from optimizer`; only the category if the recording has no phases.
    pub fn name(&self) -> String {
        match self.origin {
            Origin::Unmarked => self.category.to_string(),
            Origin::BeforeRecording => format!("{} from before the recording", self.category),
            Origin::Phase(Phase::Other) => format!("{} outside all phases", self.category),
            Origin::Phase(phase) => format!("{} from {phase}", self.category),
        }
    }

    /// Returns the `--where` condition for the blocks.
    pub fn condition(&self) -> String {
        format!("category={} phase={}", self.category, self.origin.word())
    }

    /// Number of possible causes: pairs of a category and an origin.
    pub(crate) const COUNT: usize = Category::ALL.len() * Origin::COUNT;

    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let of = |&category: &Category| Origin::all().map(move |origin| Self { category, origin });
        Category::ALL.iter().flat_map(of)
    }

    pub(crate) fn of(trace: &Trace, block: &Block) -> Self {
        Self { category: block.category, origin: Origin::of(trace, block) }
    }

    /// Returns the index, below [`CategoryAndPhase::COUNT`], for use with arrays.
    pub(crate) fn number(self) -> usize {
        self.category as usize * Origin::COUNT + self.origin.code()
    }

    pub(super) fn key(self) -> [Code; 1] {
        [self.number() as Code]
    }

    pub(crate) fn is_dispensable(self) -> bool {
        is_dispensable(self.category)
    }
}

/// The cause of a total's peak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeakCause {
    /// The category of the blocks, and the phase of their allocation.
    pub cause: CategoryAndPhase,
    /// The bytes at the peak.
    pub bytes: u64,
    /// Whether the blocks were allocated in the step of the peak, or in the recording if the peak is outside of steps.
    /// If false, this step allocated no blocks that are live at the peak.
    pub is_rise: bool,
    /// The operation, or otherwise the line, that allocated more than half of the bytes; `None` if there is none.
    pub allocated_by: Option<String>,
    /// Whether `allocated_by` allocated all of the blocks.
    pub is_by_one: bool,
}

impl PeakCause {
    /// Returns the largest cause among the blocks that the step of a peak allocated, or among all live blocks if it
    /// allocated none. Blocks of the peak's own phase count twice. `None` if the metric is not a sum over blocks, or if
    /// no
    /// blocks are live.
    ///
    /// # Errors
    /// Fails like [`Source::window_at`].
    pub fn of(source: &Source<'_>, peak: &Moment) -> Result<Option<Self>> {
        if !peak.metric.is_of_blocks() {
            return Ok(None);
        }
        let window = source.window_at(peak.number())?;
        let trace = &*window.trace;
        let at_peak = window.index(peak.device).live.before_position(trace, peak.metric, window.events.end);
        let mut origins = Origins::new(trace);
        let is_new = |id: &BlockId| match peak.step {
            Some(step) => origins.step(*id) == Some(step),
            None => origins.of(*id) != Origin::BeforeRecording,
        };
        let new: Vec<BlockId> = at_peak.iter().copied().filter(is_new).collect();
        let is_rise = !new.is_empty();
        let mut blocks = if is_rise { new } else { at_peak };
        let sums = CategoryAndPhase::all().zip(sums_by_cause(trace, peak.metric, &blocks));
        let weight = |(cause, bytes): &(CategoryAndPhase, u64)| {
            if cause.origin == Origin::Phase(peak.phase) { bytes.saturating_mul(2) } else { *bytes }
        };
        let Some((cause, bytes)) = sums.max_by_key(weight).filter(|(_, bytes)| *bytes > 0) else { return Ok(None) };
        blocks.retain(|id| CategoryAndPhase::of(trace, &trace.blocks.get(*id)) == cause);
        let sum = |group: &LiveGroup| group.blocks.iter().map(|id| bytes_of(trace, peak.metric, *id)).sum::<u64>();
        let most = largest_allocator(trace, &blocks).filter(|(_, group)| sum(group) > bytes / 2);
        let is_by_one = most.as_ref().is_some_and(|(_, group)| group.blocks.len() == blocks.len());
        let allocated_by = most.map(|(_, group)| unique_suffixes(&group.key).join(" "));
        Ok(Some(Self { cause, bytes, is_rise, allocated_by, is_by_one }))
    }
}

/// Returns the operation, or otherwise the line, that allocated the most bytes of `blocks`, and its blocks.
pub(super) fn largest_allocator(trace: &Trace, blocks: &[BlockId]) -> Option<(GroupKey, LiveGroup)> {
    [GroupKey::Op, GroupKey::Frame].into_iter().find_map(|key| {
        let groups = LiveGroups::of(trace, blocks, &[key], 2).groups;
        Some((key, groups.into_iter().find(|group| group.key != ["(none)"])?))
    })
}

/// Returns the index of the cause of each block of `device`; [`NO_GROUP`] for other blocks.
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

pub(crate) fn sums_by_cause(trace: &Trace, metric: Metric, blocks: &[BlockId]) -> Vec<u64> {
    let mut sums = vec![0; CategoryAndPhase::COUNT];
    for &id in blocks {
        sums[CategoryAndPhase::of(trace, &trace.blocks.get(id)).number()] += bytes_of(trace, metric, id);
    }
    sums
}

#[cfg(test)]
mod tests {
    use highwater_notation::trace_from_text;

    use super::*;

    fn cause(text: &str, metric: Metric) -> Option<(String, u64, bool, Option<String>, bool)> {
        let source = Source::in_memory(trace_from_text(text).unwrap());
        let peak = source.peak(DeviceId(0), metric).unwrap();
        let cause = PeakCause::of(&source, &peak).unwrap();
        cause.map(|of| (of.cause.name(), of.bytes, of.is_rise, of.allocated_by, of.is_by_one))
    }

    #[test]
    fn the_cause_of_a_peak_is_what_its_step_allocated_most_of() {
        let text = "baseline w 900 parameter\nstep 0\nphase forward\nalloc a 250/512 activation #linear\n\
                    alloc b 250/512 activation #linear\nfree a\nphase backward\nalloc g 200 gradient";
        let activations = ("activation from forward".to_owned(), 500, true, Some("linear".to_owned()), true);
        assert_eq!(cause(text, Metric::Requested), Some(activations));
        assert_eq!(cause(text, Metric::Reserved), None);
        assert_eq!(cause("", Metric::Requested), None);
        let baseline = ("parameter from before the recording".to_owned(), 300, false, None, false);
        assert_eq!(cause("baseline w 300 parameter\nphase forward\nfree w", Metric::Requested), Some(baseline));
    }

    #[test]
    fn what_the_peaks_own_phase_allocates_leads_if_it_is_at_least_half_as_much() {
        let text = |bytes: u64| {
            format!(
                "alloc w 900 parameter\nstep 0\nphase backward\nalloc g 200 gradient\nphase optimizer\n\
                 alloc t {bytes} temporary #sqrt\nalloc u 9 temporary #add\nfree t\nfree u"
            )
        };
        let temporaries = ("temporary from optimizer".to_owned(), 109, true, Some("sqrt".to_owned()), false);
        assert_eq!(cause(&text(100), Metric::Requested), Some(temporaries));
        assert_eq!(
            cause(&text(90), Metric::Requested),
            Some(("gradient from backward".to_owned(), 200, true, None, false))
        );
    }
}
