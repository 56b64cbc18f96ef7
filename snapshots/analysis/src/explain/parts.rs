//! Parts: the causes of a peak, blocks by what they are for and the phase that made them, and what is left without one,
//! two, three of them.

use highwater_snapshots::ids::{BlockId, DeviceId};
use highwater_snapshots::trace::Trace;
use highwater_snapshots::{Category, Phase};

use super::{after, sums};
use crate::absence::{Absence, Grouped, NO_GROUP, absences};
use crate::lifetime::phase_of;
use crate::live::LiveIndex;
use crate::peak::Moment;
use crate::series::Series;

/// A removal that saves less than this share of the peak is not worth a line.
const LEAST_SHARE: u64 = 100;
/// More removals than this, and little is left of the program.
const MOST_REMOVALS: usize = 4;

/// What blocks are for, and the phase in which they were made; the baseline counts as made in setup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cause {
    /// What they are for.
    pub category: Category,
    /// When they were made.
    pub phase: Phase,
}

impl Cause {
    /// In words: `temporary made in optimizer`.
    pub fn name(&self) -> String {
        format!("{} made in {}", self.category, self.phase)
    }

    /// The condition that picks its blocks, as `--where` has it.
    pub fn condition(&self) -> String {
        format!("category={} phase={}", self.category, self.phase)
    }

    fn number(self) -> usize {
        self.category as usize * Phase::ALL.len() + self.phase as usize
    }

    /// Whether a program could do without such blocks. Parameters are what is trained, and an optimizer needs its state.
    fn is_dispensable(self) -> bool {
        use Category::{Buffer, Input, OptimizerState, Parameter};
        !matches!(self.category, Parameter | Buffer | Input | OptimizerState)
    }
}

/// One more part of the peak that is done without.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removal {
    /// Which.
    pub cause: Cause,
    /// Its bytes at the peak that is left by the removals before it.
    pub bytes_at_peak: u64,
    /// The peak that is left.
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
            Cause { category: block.category, phase: phase_of(trace, &block) }.number() as u32
        };
        let groups = Category::ALL.len() * Phase::ALL.len();
        Self { grouped: Grouped { group_of: trace.blocks.ids().map(of_block).collect(), groups } }
    }

    pub(super) fn grouped(&self) -> &Grouped {
        &self.grouped
    }

    /// The cause of a block of the device.
    pub(super) fn cause(&self, id: BlockId) -> Option<Cause> {
        let number = self.grouped.group_of[id.0 as usize];
        all().find(|cause| cause.number() as u32 == number)
    }

    /// What the peak would be without `cause`.
    pub(super) fn without<'a>(&self, cause: Cause, found: &'a [Absence]) -> &'a Absence {
        &found[cause.number()]
    }

    /// Which parts to do without, each time the one that saves most of what the ones before have left. `found` are the
    /// absences of single parts.
    pub(super) fn removals(
        &self,
        trace: &Trace,
        (series, live): (&Series, &LiveIndex),
        peak: &Moment,
        found: &[Absence],
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

fn all() -> impl Iterator<Item = Cause> {
    let of = |&category: &Category| Phase::ALL.iter().map(move |&phase| Cause { category, phase });
    Category::ALL.iter().flat_map(of)
}
