//! Tests that comparisons of two recordings, or of two moments of one, are the same for recordings in memory and
//! recordings read in windows.

use std::ops::AddAssign as _;

use highwater_analysis::diff::{Comparison, DiffAt};
use highwater_analysis::peak::Query;
use highwater_analysis::{Filter, GroupKey, Metric, Siblings, Source};
use highwater_snapshots::DeviceId;

use super::counted::{both, watch};

/// The difference between a moment of each recording on device 0; `None` if one lacks it.
fn compare(sources: [&Source<'_>; 2], at: [DiffAt; 2], metric: Metric, filter: &Filter) -> Option<Comparison> {
    let device = DeviceId(0);
    let moment = |side: usize| at[side].find(sources[side], device, metric).unwrap();
    let keys = [GroupKey::Category, GroupKey::Op];
    let query = Query { keys: &keys, top: 6, filter, siblings: Siblings::Each };
    Some(Comparison::of(sources, [moment(0)?, moment(1)?], &query, watch()).unwrap())
}

#[test]
fn recordings_in_windows_differ_as_those_in_memory() {
    let filters = ["", "size>=1KiB", "category=gradient"].map(|text| text.parse::<Filter>().unwrap());
    let moments = [DiffAt::Peak, DiffAt::End, DiffAt::Step(3), DiffAt::StepEnd(5), DiffAt::StepEnd(99)];
    let (mut found, mut missing) = (0, 0);
    for seed in [1] {
        let [(whole_a, windows_a), (whole_b, windows_b)] = [seed, seed + 7].map(|seed| both(seed, 1000));
        for (metric, filter) in [Metric::Requested, Metric::Active]
            .into_iter()
            .flat_map(|metric| filters.iter().map(move |filter| (metric, filter)))
        {
            for at in moments.into_iter().map(|at| [at, at]).chain([[DiffAt::StepEnd(2), DiffAt::StepEnd(6)]]) {
                let two = compare([&windows_a, &windows_b], at, metric, filter);
                assert_eq!(two, compare([&whole_a, &whole_b], at, metric, filter), "seed {seed}, {at:?}");
                let one = compare([&windows_a, &windows_a], at, metric, filter);
                assert_eq!(one, compare([&whole_a, &whole_a], at, metric, filter), "seed {seed}, {at:?} of one");
                [&mut missing, &mut found][usize::from(two.is_some())].add_assign(1);
            }
        }
    }
    assert!(found >= 30 && missing > 0, "{found} comparisons, {missing} without one");
}
