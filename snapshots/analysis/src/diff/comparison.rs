//! A full comparison of two recordings: settings, totals, phases, groups.

use super::{Asked, Diff, DiffQuery, PhasePair, Setting, phase_pairs, settings};
use crate::metric::Metric;
use crate::peak::Moment;
use crate::phases::phases;

/// A comparison of two recordings, or of two moments of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// The settings of both recordings, including equal ones.
    pub settings: Vec<Setting>,
    /// The peaks of A and B in bytes, for each total that one of them has.
    pub totals: Vec<(Metric, [u64; 2])>,
    /// The phases of both side by side; empty if both are the same recording.
    pub phases: Vec<PhasePair>,
    /// The differences by group.
    pub diff: Diff,
}

impl Comparison {
    /// Compares two moments of the same metric. The filter only affects the groups: settings, totals and phases cover
    /// the whole recordings.
    pub fn of(sides: [Asked<'_>; 2], moments: [Moment; 2], query: &DiffQuery<'_>) -> Self {
        let [a, b] = sides;
        let metric = moments[0].metric;
        let is_one = std::ptr::eq(a.trace, b.trace);
        let rows = |side: usize| phases(sides[side].trace, moments[side].device, metric);
        let beside = || {
            if is_one {
                return Vec::new();
            }
            let (rows_a, rows_b) = rayon::join(|| rows(0), || rows(1));
            phase_pairs(&rows_a, &rows_b)
        };
        let (diff, phases) = rayon::join(|| Diff::of(sides, moments, query), beside);
        let peak = |asked: &Asked<'_>, metric| Moment::peak(asked.trace, asked.series, metric).bytes;
        let totals = Metric::ALL.map(|metric| (metric, [peak(&a, metric), peak(&b, metric)]));
        Self {
            settings: settings([(a.trace, moments[0].device), (b.trace, moments[1].device)]),
            totals: totals.into_iter().filter(|(_, bytes)| *bytes != [0, 0]).collect(),
            phases,
            diff,
        }
    }
}
