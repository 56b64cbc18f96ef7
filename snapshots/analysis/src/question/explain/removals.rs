//! Computes the peak after removing its parts one after another.

use super::cause::CategoryAndPhase;
use super::recorded::{Left, Recorded};
use super::selection::PeaksWithout;
use crate::question::peak::Moment;
use highwater_snapshots::Result;

/// The removals end before one that saves less than the peak divided by this.
const MIN_SHARE: u64 = 100;
/// Maximum number of removals; after more, too little of the program is left.
const MAX_REMOVALS: usize = 4;

/// One removed part of the peak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Removal {
    /// The category and phase of the removed blocks.
    pub cause: CategoryAndPhase,
    /// The bytes at the peak that remained after the previous removals.
    pub bytes_at_peak: u64,
    /// The remaining peak.
    pub left: Moment,
}

/// Chooses the parts to remove. Each round chooses the part that lowers the remaining peak most. `at_peak` has the
/// bytes of each cause at `peak`, and `found` the peaks without single causes.
pub(super) fn removals(
    recorded: &Recorded<'_, '_>,
    peak: &Moment,
    at_peak: Vec<u64>,
    found: &PeaksWithout,
) -> Result<Vec<Removal>> {
    let dispensable: Vec<CategoryAndPhase> = CategoryAndPhase::all().filter(|cause| cause.is_dispensable()).collect();
    let (mut removals, mut gone): (Vec<Removal>, Vec<CategoryAndPhase>) = (Vec::new(), Vec::new());
    let (mut left, mut bytes_at_left) = (*peak, at_peak);
    let mut found: Vec<u64> = dispensable.iter().map(|cause| found.without(&cause.key()).bytes).collect();
    while removals.len() < MAX_REMOVALS {
        let is_left = |cause: &CategoryAndPhase| bytes_at_left[cause.number()] > 0 && !gone.contains(cause);
        let choices = dispensable.iter().zip(&found).filter(|(cause, _)| is_left(cause));
        let Some((&cause, &bytes)) = choices.min_by_key(|(_, bytes)| **bytes) else { break };
        if left.bytes - bytes < peak.bytes / MIN_SHARE {
            break;
        }
        let bytes_at_peak = bytes_at_left[cause.number()];
        gone.push(cause);
        Left { peak: left, by_cause: bytes_at_left, further: found } = recorded.without_causes(&gone, &dispensable)?;
        removals.push(Removal { cause, bytes_at_peak, left });
    }
    Ok(removals)
}
