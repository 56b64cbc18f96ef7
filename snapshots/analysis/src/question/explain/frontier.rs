//! Finds the points of a window at which the total can be largest after the blocks of some causes are removed. A cause
//! is a category and the phase of allocation.
//!
//! At each point, every cause has some number of bytes. Regardless of the excluded causes, the sum of the others is
//! largest at a point that no other point equals or exceeds in every cause (the Pareto frontier). Since training
//! repeats itself, the frontier is small.

use hashbrown::HashSet;
use highwater_snapshots::ids::DeviceId;
use highwater_snapshots::trace::Trace;

use crate::index::counterfactual::NO_GROUP;
use crate::index::replay::{Effect, baseline_effects, effects};
use crate::metric::Metric;
use crate::question::explain::CategoryAndPhase;

#[derive(Clone, Debug)]
pub(super) struct Frontier {
    /// The causes that may be excluded, one column each, after a column for the sum of all others.
    causes: Vec<CategoryAndPhase>,
    /// The points of the frontier: the bytes of each column.
    rows: HashSet<Vec<u64>>,
}

impl Frontier {
    /// Returns the frontier of `metric` on `device` over all events of `trace`; `causes` contains the index of each
    /// block's cause. `None` if there are too many points.
    pub(super) fn of(trace: &Trace, device: DeviceId, metric: Metric, causes: &[u32]) -> Option<Self> {
        let mut is_there = [false; CategoryAndPhase::COUNT];
        for cause in causes.iter().filter(|cause| **cause != NO_GROUP) {
            is_there[*cause as usize] = true;
        }
        let found: Vec<CategoryAndPhase> =
            CategoryAndPhase::all().filter(|cause| is_there[cause.number()] && cause.is_dispensable()).collect();
        let mut column_of = [0; CategoryAndPhase::COUNT];
        found.iter().enumerate().for_each(|(column, cause)| column_of[cause.number()] = column + 1);
        let column_of: Vec<usize> =
            causes.iter().map(|cause| column_of.get(*cause as usize).copied().unwrap_or(0)).collect();

        let sizes = trace.blocks.sizes(metric);
        let mut moments = Moments { now: vec![0; found.len() + 1], has_grown: true, rows: HashSet::new() };
        let change = |effect: Effect| {
            let (row, begins) = effect.of_block(metric)?;
            Some((column_of[row], sizes[row], begins))
        };
        baseline_effects(trace, device, |effect| change(effect).into_iter().for_each(|change| moments.apply(change)));
        for index in (0..trace.events.len()).filter(|index| trace.events.device[*index] == device) {
            // One event may begin a block and end another: only the state after it counts.
            let (mut begun, mut ended) = (None, None);
            effects(trace, index, |effect| match change(effect) {
                Some(change @ (.., true)) => begun = Some(change),
                Some(change) => ended = Some(change),
                None => {}
            });
            if ended.is_some() && !moments.before_end() {
                return None;
            }
            begun.into_iter().chain(ended).for_each(|change| moments.apply(change));
        }
        (moments.before_end() && moments.reduce()).then_some(Self { causes: found, rows: moments.rows })
    }

    /// The largest total without the blocks of the causes `gone`, which must be dispensable.
    pub(super) fn largest_without(&self, gone: &[CategoryAndPhase]) -> u64 {
        let is_left: Vec<bool> =
            std::iter::once(true).chain(self.causes.iter().map(|cause| !gone.contains(cause))).collect();
        let sum =
            |row: &Vec<u64>| row.iter().zip(&is_left).filter(|(_, is_left)| **is_left).map(|(bytes, _)| bytes).sum();
        self.rows.iter().map(sum).max().unwrap_or(0)
    }
}

/// Number of collected points that triggers the removal of dominated points.
const MAX_ROWS: usize = 1 << 14;
/// Maximum number of points in a frontier. A window whose frontier has more points is read again for each question.
const MAX_LEFT: usize = 1 << 11;

struct Moments {
    now: Vec<u64>,
    has_grown: bool,
    rows: HashSet<Vec<u64>>,
}

impl Moments {
    fn apply(&mut self, (column, bytes, grows): (usize, u64, bool)) {
        let now = &mut self.now[column];
        *now = if grows { *now + bytes } else { *now - bytes };
        self.has_grown |= grows;
    }

    /// Adds the current point before a block is freed. Points after which another block is allocated need not be added,
    /// since the next point exceeds them. Returns whether few enough points remain for comparing them to be worthwhile.
    fn before_end(&mut self) -> bool {
        if std::mem::take(&mut self.has_grown) && !self.rows.contains(&self.now) {
            self.rows.insert(self.now.clone());
        }
        self.rows.len() <= MAX_ROWS || self.reduce()
    }

    /// Removes the points that another point equals or exceeds in every column. Returns whether few points remain.
    fn reduce(&mut self) -> bool {
        let mut rows: Vec<Vec<u64>> = self.rows.drain().collect();
        // A moment can only be exceeded by one of a larger sum.
        rows.sort_by_cached_key(|row| std::cmp::Reverse(row.iter().map(|bytes| u128::from(*bytes)).sum::<u128>()));
        let mut kept: Vec<Vec<u64>> = Vec::new();
        for row in rows {
            let is_exceeded = |by: &Vec<u64>| by.iter().zip(&row).all(|(by, own)| by >= own);
            if !kept.iter().any(is_exceeded) {
                kept.push(row);
            }
            if kept.len() > MAX_LEFT {
                return false;
            }
        }
        self.rows.extend(kept);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::counterfactual::peaks_without;
    use crate::question::explain::cause::causes;
    use highwater_notation::trace_from_text;
    use highwater_snapshots::ids::BlockId;

    #[test]
    fn without_any_causes_it_has_the_peak_of_the_definition() {
        let mut text = String::from("baseline w 1000/1024 parameter\n");
        for step in 0..3_u32 {
            text += &format!("step {step}\nphase forward\nalloc a{step} 700 activation\nalloc t{step} 300 temporary\n");
            text += &format!(
                "free t{step}\nphase backward\nalloc u{step} 100 temporary\nalloc g{step} {} gradient\n",
                500 + step
            );
            text += &format!(
                "free u{step}\nfree a{step}\nphase optimizer\nalloc o{step} 600 temporary\nfree o{step}\nfree g{step}\n"
            );
        }
        let trace = trace_from_text(&text).unwrap();
        let device = DeviceId(0);
        let group_of = causes(&trace, device);
        let frontier = Frontier::of(&trace, device, Metric::Requested, &group_of).expect("few moments are left");
        let found: Vec<CategoryAndPhase> =
            CategoryAndPhase::all().filter(|cause| group_of.contains(&(cause.number() as u32))).collect();
        let dispensable: Vec<CategoryAndPhase> = found.into_iter().filter(|cause| cause.is_dispensable()).collect();
        assert_eq!((dispensable.len(), frontier.rows.len()), (5, 3), "steps that repeat add no moments");
        for set in 0_u32..1 << dispensable.len() {
            let gone: Vec<CategoryAndPhase> = dispensable
                .iter()
                .enumerate()
                .filter(|(row, _)| set >> row & 1 == 1)
                .map(|(_, cause)| *cause)
                .collect();
            let is_gone = |id: BlockId| gone.iter().any(|cause| cause.number() as u32 == group_of[id.0 as usize]);
            let (expected, _) = peaks_without(&trace, device, Metric::Requested, &[], is_gone);
            assert_eq!(frontier.largest_without(&gone), expected.bytes, "without {gone:?}");
        }
    }

    #[test]
    fn moments_none_of_which_exceeds_another_are_too_many() {
        let falls: String = (0..3000).map(|n| format!("alloc a{n} 1 activation\n")).collect();
        let rises = (0..3000).map(|n| format!("alloc g{n} 1 gradient\nfree a{n}\n"));
        let trace = trace_from_text(&(falls + &rises.collect::<String>())).unwrap();
        let group_of = causes(&trace, DeviceId(0));
        assert!(Frontier::of(&trace, DeviceId(0), Metric::Requested, &group_of).is_none());
    }
}
