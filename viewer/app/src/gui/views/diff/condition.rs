//! Builds the search condition for a group of both sides.

use highwater_analysis::diff::DiffGroup;
use highwater_analysis::{GroupKey, condition};

/// The conditions for the blocks of `group` in A and B; `None` if they cannot be expressed.
pub(super) fn of_group(group: &DiffGroup, keys: &[GroupKey]) -> Option<[String; 2]> {
    let of = |values: &[String]| condition::of_group(keys, values, &group.members);
    let b = of(&group.key)?;
    let a = group.former_key.as_deref().map_or_else(|| Some(b.clone()), of)?;
    Some([a, b])
}

#[cfg(test)]
mod tests {
    use highwater_analysis::diff::Asked;
    use highwater_analysis::peak::Query;
    use highwater_analysis::{Diff, Filter, LiveIndex, Matches, Metric, Moment, Series, Siblings};
    use highwater_snapshots::text::trace_from_text;
    use highwater_snapshots::{BlockId, DeviceId};

    use super::*;

    #[test]
    fn the_words_for_a_group_find_its_blocks_on_both_sides() {
        let a = trace_from_text("alloc w 1536 parameter #fc @net.fc < net.py:10 forward < main\nalloc x 10").unwrap();
        let b = trace_from_text("alloc w 1000 parameter #fc @net.fc < net.py:12 forward < main\nalloc y 10").unwrap();
        let index = |trace| (Series::build(trace, DeviceId(0)), LiveIndex::build(trace, DeviceId(0)));
        let indices = [index(&a), index(&b)];
        let asked = [
            Asked { trace: &a, series: &indices[0].0, live: &indices[0].1 },
            Asked { trace: &b, series: &indices[1].0, live: &indices[1].1 },
        ];
        for key in GroupKey::ALL {
            let filter = Filter::default();
            let query = Query { keys: &[*key], top: usize::MAX, filter: &filter, siblings: Siblings::Each };
            let moments = asked.map(|asked| Moment::peak(asked.trace, asked.series, Metric::Requested));
            let diff = Diff::of(asked, moments, &query);
            for group in &diff.groups {
                let Some(words) = of_group(group, &[*key]) else {
                    assert!(matches!(key, GroupKey::Frame | GroupKey::Step), "{key:?} {group:?}");
                    continue;
                };
                for (side, trace) in [&a, &b].into_iter().enumerate() {
                    let filter: Filter = words[side].parse().unwrap_or_else(|why| panic!("{words:?}: {why}"));
                    let matches = Matches::of(trace, &filter);
                    let found: u64 = (0..trace.blocks.len())
                        .filter(|row| matches.contains(BlockId(*row as u32)))
                        .map(|row| trace.blocks.requested[row])
                        .sum();
                    assert_eq!(found, [group.a_bytes, group.b_bytes][side], "{key:?} {words:?}");
                }
            }
        }
    }
}
