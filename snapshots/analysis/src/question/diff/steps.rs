//! Aligns the steps and phases of two recordings, even if one has more steps.

use hashbrown::{HashMap, HashSet};
use highwater_snapshots::Phase;

use crate::question::phases::PhaseRow;

/// The compared part of a phase. It is small, since a recording may have a million phases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhasePeak {
    /// The step; `None` before the first step.
    pub step: Option<u32>,
    /// The phase on this side.
    pub phase: Phase,
    /// The largest total from start to end.
    pub peak_bytes: u64,
}

impl From<PhaseRow> for PhasePeak {
    fn from(row: PhaseRow) -> Self {
        Self { step: row.step, phase: row.phase, peak_bytes: row.peak_bytes }
    }
}

/// The same phase of the same step on both sides; `None` for a side without this phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhasePair {
    /// The phase in A.
    pub a: Option<PhasePeak>,
    /// The phase in B.
    pub b: Option<PhasePeak>,
}

impl PhasePair {
    /// Returns the phase, which is the same on both sides.
    pub fn phase(&self) -> Option<Phase> {
        self.a.or(self.b).map(|row| row.phase)
    }

    /// Returns the peak in B minus the peak in A, in bytes; `None` if one side lacks the phase.
    pub fn delta(&self) -> Option<i128> {
        let (a, b) = (self.a?, self.b?);
        Some(i128::from(b.peak_bytes) - i128::from(a.peak_bytes))
    }

    /// The step numbers, such as `3`, or `3 and 5` if they differ; `None` outside steps.
    pub fn steps(&self) -> Option<String> {
        let [a, b] = [self.a, self.b].map(|row| row?.step);
        match (a, b) {
            (Some(a), Some(b)) if a != b => Some(format!("{a} and {b}")),
            (step, other) => step.or(other).map(|step| step.to_string()),
        }
    }
}

/// Pairs steps with the same number; without common numbers, pairs the last steps. Steps of only one side are unpaired.
pub(crate) fn paired_steps(a: &[u32], b: &[u32]) -> Vec<(Option<u32>, Option<u32>)> {
    let in_b: HashSet<u32> = b.iter().copied().collect();
    let last = match (a.last(), b.last()) {
        (Some(&last_a), Some(&last_b)) if !a.iter().any(|step| in_b.contains(step)) => Some((last_a, last_b)),
        _ => None,
    };
    let alone = |step: &u32, last: Option<u32>| last != Some(*step);
    let mut left_a = a.iter().copied().filter(|step| alone(step, last.map(|(a, _)| a))).peekable();
    let mut left_b = b.iter().copied().filter(|step| alone(step, last.map(|(_, b)| b))).peekable();
    let mut pairs = Vec::new();
    loop {
        let pair = match (left_a.peek().copied(), left_b.peek().copied()) {
            (None, None) => break,
            (Some(a), Some(b)) if a == b => (Some(a), Some(b)),
            (Some(a), b) if b.is_none_or(|b| a < b) => (Some(a), None),
            (_, b) => (None, b),
        };
        pair.0.and_then(|_| left_a.next());
        pair.1.and_then(|_| left_b.next());
        pairs.push(pair);
    }
    pairs.extend(last.map(|(a, b)| (Some(a), Some(b))));
    pairs
}

/// Pairs the phases of both sides, step by step. Phases outside of steps come first.
pub(crate) fn phase_pairs(a: &[PhasePeak], b: &[PhasePeak]) -> Vec<PhasePair> {
    let steps = |rows: &[PhasePeak]| {
        let mut steps: Vec<u32> = rows.iter().filter_map(|row| row.step).collect();
        steps.dedup();
        steps
    };
    let (of_a, of_b) = (by_step(a), by_step(b));
    let of = |rows: &[PhasePeak], by_step: &ByStep, step: Option<u32>| -> Vec<PhasePeak> {
        by_step.get(&step).map_or(&[][..], Vec::as_slice).iter().map(|row| rows[*row]).collect()
    };
    let mut pairs = join(of(a, &of_a, None), of(b, &of_b, None));
    for (step_a, step_b) in paired_steps(&steps(a), &steps(b)) {
        let of = |rows, by_step, step: Option<u32>| step.map_or_else(Vec::new, |_| of(rows, by_step, step));
        pairs.extend(join(of(a, &of_a, step_a), of(b, &of_b, step_b)));
    }
    pairs
}

/// The indexes of each step's rows; `None` is for rows outside of steps.
type ByStep = HashMap<Option<u32>, Vec<usize>>;

/// Groups the rows by step in one pass, since a recording may have a million rows.
fn by_step(rows: &[PhasePeak]) -> ByStep {
    let mut by_step = ByStep::new();
    rows.iter().enumerate().for_each(|(at, row)| by_step.entry(row.step).or_default().push(at));
    by_step
}

/// Pairs the phases of one step by kind and order, such as the second forward with the second forward.
fn join(a: Vec<PhasePeak>, b: Vec<PhasePeak>) -> Vec<PhasePair> {
    let mut left: Vec<Option<PhasePeak>> = b.into_iter().map(Some).collect();
    let mut pairs: Vec<PhasePair> = Vec::new();
    let mut next = 0;
    for row in a {
        let is_same = |other: &Option<PhasePeak>, phase: Phase| other.is_some_and(|other| other.phase == phase);
        let found = (next..left.len()).find(|&at| is_same(&left[at], row.phase));
        if let Some(found) = found {
            // Phases that B has before it are placed before it.
            for skipped in &mut left[next..found] {
                pairs.extend(skipped.take().map(|b| PhasePair { a: None, b: Some(b) }));
            }
            next = found + 1;
        }
        pairs.push(PhasePair { b: found.and_then(|found| left[found].take()), a: Some(row) });
    }
    pairs.extend(left.into_iter().flatten().map(|b| PhasePair { a: None, b: Some(b) }));
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_pair_by_number_or_else_the_last_ones_do() {
        let both = |a: u32, b: u32| (Some(a), Some(b));
        assert_eq!(paired_steps(&[0, 1, 2], &[0, 1, 2]), [both(0, 0), both(1, 1), both(2, 2)]);
        assert_eq!(
            paired_steps(&[0, 1, 2], &[0, 1, 2, 3, 4]),
            [both(0, 0), both(1, 1), both(2, 2), (None, Some(3)), (None, Some(4))]
        );
        assert_eq!(paired_steps(&[500, 501], &[0]), [(Some(500), None), both(501, 0)]);
        assert_eq!(paired_steps(&[], &[7]), [(None, Some(7))]);
        assert_eq!(
            paired_steps(&[1, 3, 4], &[2, 3, 9]),
            [(Some(1), None), (None, Some(2)), both(3, 3), (Some(4), None), (None, Some(9))]
        );
    }
}
