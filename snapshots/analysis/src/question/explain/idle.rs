//! Finds blocks that are live at a peak but not used again, and the peak if each were freed after its last use.
//!
//! Needs a recording with use events; see [`LastUses`].

use highwater_snapshots::event::EventKind;
use highwater_snapshots::ids::{BlockId, DeviceId, EventId};
use highwater_snapshots::trace::Trace;
use highwater_snapshots::units::format_bytes;
use highwater_snapshots::{Category, Error, Result};

use crate::grouping::breakdown::{Breakdown, Grouping};
use crate::grouping::dimension::GroupKey;
use crate::grouping::siblings::Siblings;
use crate::index::counterfactual::Counterfactual;
use crate::index::last_uses::LastUses;
use crate::index::replay::{Effect, baseline_effects, effects};
use crate::metric::Metric;
use crate::question::peak::Moment;
use crate::question::source::{Source, Window};

const MAX_LISTED: usize = 3;

/// Blocks that are live at a peak but not used after it. Sizes are in bytes of the peak's metric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idle {
    /// The blocks, in block order.
    pub blocks: Vec<BlockId>,
    /// The bytes by category, without a limit on the number of categories.
    pub by_category: Breakdown,
    /// The largest groups by category and module.
    pub breakdown: Breakdown,
    /// The peak if every block of the recording, including those not live at this peak, were freed immediately after
    /// its last use, without waiting for a stream.
    pub without: Moment,
}

impl Idle {
    /// Returns the idle blocks at `peak`, with the `top` largest groups. `None` if the device has no use events, or if
    /// the recording is too long.
    ///
    /// # Errors
    /// Fails like [`Source::window`].
    pub(super) fn of(source: &Source<'_>, peak: &Moment, top: usize) -> Result<Option<Self>> {
        match source.whole() {
            Err(Error::TooLong { .. }) => Ok(None),
            whole => Ok(Self::in_whole(&whole?, peak, top)),
        }
    }

    fn in_whole(whole: &Window<'_>, peak: &Moment, top: usize) -> Option<Self> {
        let (trace, device) = (&*whole.trace, peak.device);
        let uses = LastUses::of(trace, device)?;
        let position = peak.number().map_or(0, |event| (event - trace.start.events) as usize + 1);
        let at_peak = whole.index(device).live.before_position(trace, peak.metric, position);
        let is_idle = |id: BlockId| {
            let row = id.0 as usize;
            let is_live = trace.blocks.free_requested[row].index().is_none_or(|event| event >= position);
            is_live && uses.end(row).is_some_and(|end| end.index().is_none_or(|event| event < position))
        };
        let blocks: Vec<BlockId> = at_peak.iter().copied().filter(|id| is_idle(*id)).collect();
        let sums = |keys: &[GroupKey], top: usize| {
            Breakdown::of(trace, peak.metric, &blocks, &Grouping { keys, beside: &[], top, siblings: Siblings::Each })
        };
        let by_category = sums(&[GroupKey::Category], Category::ALL.len());
        let breakdown = sums(&[GroupKey::Category, GroupKey::Scope], top);
        let shortened = shortened_peak(trace, device, &uses, peak.metric);
        let without = Moment::of(trace, device, peak.metric, shortened.bytes, shortened.after);
        Some(Self { by_category, breakdown, without, blocks })
    }

    /// The bytes of the blocks.
    pub fn bytes(&self) -> u64 {
        self.breakdown.total
    }

    /// The largest categories and the sum of the others, such as `gradient 1 GiB, temporary 3 MiB`.
    pub fn categories(&self) -> String {
        let groups = &self.by_category.groups;
        let listed =
            groups.iter().take(MAX_LISTED).map(|group| format!("{} {}", group.key.join(""), format_bytes(group.bytes)));
        let left: u64 = groups.iter().skip(MAX_LISTED).map(|group| group.bytes).sum();
        let left = (left > 0).then(|| format!("others {}", format_bytes(left)));
        listed.chain(left).collect::<Vec<_>>().join(", ")
    }
}

/// Returns the largest total if each block ended at its last use in `uses`.
fn shortened_peak(trace: &Trace, device: DeviceId, uses: &LastUses<'_>, metric: Metric) -> Counterfactual {
    let sizes = trace.blocks.sizes(metric);
    let mut total = 0_u64;
    let take = |total: &mut u64, effect: Effect| match effect.of_block(metric) {
        // Blocks that are never used would not be allocated.
        Some((row, true)) if trace.blocks.last_use[row].is_some() || uses.end(row).is_none() => *total += sizes[row],
        Some((row, false)) if uses.end(row).is_none() => *total -= sizes[row],
        _ => {}
    };
    baseline_effects(trace, device, |effect| take(&mut total, effect));
    let mut most = Counterfactual { bytes: total, after: None };
    for index in 0..trace.events.len() {
        if trace.events.device[index] != device {
            continue;
        }
        effects(trace, index, |effect| take(&mut total, effect));
        let block = BlockId(trace.events.subject[index]);
        if trace.events.kind[index] == EventKind::Used
            && let Some(row) = block.index()
            && trace.blocks.last_use[row] == EventId(index as u32)
            && uses.end(row).is_some()
        {
            total -= sizes[row];
        }
        most.raise(total, Some(EventId(index as u32)));
    }
    most
}
