//! The parts of a peak, by category and phase of allocation, and the peak without one or several of them.

use highwater_snapshots::ids::{BlockId, DeviceId};
use highwater_snapshots::trace::Trace;
use highwater_snapshots::{Category, Phase};

use super::{after, sums};
use crate::counterfactual::{Counterfactual, Grouped, NO_GROUP, absences};
use crate::live::LiveIndex;
use crate::origin::Origin;
use crate::peak::Moment;
use crate::series::Series;

/// A removal that saves less than one part in this many of the peak is left out.
const LEAST_SHARE: u64 = 100;
/// Maximum number of removals; after more, little of the program is left.
const MOST_REMOVALS: usize = 4;

/// A category and when blocks of it were allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cause {
    /// The category.
    pub category: Category,
    /// When they were allocated.
    pub origin: Origin,
}

impl Cause {
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

    fn number(self) -> usize {
        self.category as usize * Origin::COUNT + self.origin.code()
    }

    /// Whether a program can run without such blocks. It cannot without parameters or optimizer state.
    fn is_dispensable(self) -> bool {
        use Category::{Buffer, Input, OptimizerState, Parameter};
        !matches!(self.category, Parameter | Buffer | Input | OptimizerState)
    }
}

/// One further part of the peak that is removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removal {
    /// The part.
    pub cause: Cause,
    /// Its bytes at the peak left by the previous removals.
    pub bytes_at_peak: u64,
    /// The remaining peak.
    pub left: Moment,
}

/// The blocks of a device by cause.
pub(super) struct Parts {
    grouped: Grouped,
}

impl Parts {
    pub(super) fn of(trace: &Trace, device: DeviceId) -> Self {
        let of_block = |id: BlockId| {
            let block = trace.blocks.get(id);
            if block.device != device {
                return NO_GROUP;
            }
            Cause { category: block.category, origin: Origin::of(trace, &block) }.number() as u32
        };
        let groups = Category::ALL.len() * Origin::COUNT;
        Self { grouped: Grouped { group_of: trace.blocks.ids().map(of_block).collect(), groups } }
    }

    pub(super) fn grouped(&self) -> &Grouped {
        &self.grouped
    }

    /// The cause of a block; `None` for other devices.
    pub(super) fn cause(&self, id: BlockId) -> Option<Cause> {
        let number = self.grouped.group_of[id.0 as usize];
        all().find(|cause| cause.number() as u32 == number)
    }

    /// The peak without `cause`.
    pub(super) fn without<'a>(&self, cause: Cause, found: &'a [Counterfactual]) -> &'a Counterfactual {
        &found[cause.number()]
    }

    /// The parts to remove, each the one that saves most of the peak left by the previous ones. `found` has the peaks
    /// without single parts.
    pub(super) fn removals(
        &self,
        trace: &Trace,
        (series, live): (&Series, &LiveIndex),
        peak: &Moment,
        found: &[Counterfactual],
    ) -> Vec<Removal> {
        let metric = peak.metric;
        let held_at = |position| sums(trace, metric, &self.grouped, &live.before_position(trace, metric, position));
        let mut removals: Vec<Removal> = Vec::new();
        let mut found = found.to_vec();
        let (mut left, mut bytes_at_left) = (*peak, held_at(peak.position()));
        while removals.len() < MOST_REMOVALS {
            let is_left = |cause: &Cause| {
                cause.is_dispensable()
                    && bytes_at_left[cause.number()].0 > 0
                    && removals.iter().all(|one| one.cause != *cause)
            };
            let Some(cause) = all().filter(is_left).min_by_key(|cause| found[cause.number()].bytes) else { break };
            let absence = found[cause.number()];
            if left.bytes - absence.bytes < peak.bytes / LEAST_SHARE {
                break;
            }
            let bytes_at_peak = bytes_at_left[cause.number()].0;
            left = after(trace, series, metric, &absence);
            removals.push(Removal { cause, bytes_at_peak, left });
            let gone: Vec<u32> = removals.iter().map(|one| one.cause.number() as u32).collect();
            let is_gone = |id: BlockId| gone.contains(&self.grouped.group_of[id.0 as usize]);
            found = absences(trace, series.device(), metric, &[&self.grouped], is_gone).remove(0);
            bytes_at_left = held_at(left.position());
        }
        removals
    }
}

pub(super) fn all() -> impl Iterator<Item = Cause> {
    let of = |&category: &Category| Origin::all().map(move |origin| Cause { category, origin });
    Category::ALL.iter().flat_map(of)
}
