//! Lists the groups that differ most from those of a baseline.

use crate::question::diff::{Diff, DiffGroup};

/// The differences by group: the rows and the rest add up to the totals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Differences {
    /// The largest differences, in either direction.
    pub rows: Vec<DiffGroup>,
    /// Number of groups that are not listed, including unchanged ones.
    pub rest_groups: u64,
    /// The bytes of these groups in the baseline and now.
    pub rest_bytes: [u64; 2],
    /// The totals in the baseline and now.
    pub bytes: [u64; 2],
}

impl Differences {
    /// Takes the `top` largest rows of `diff`, which must list all its groups.
    pub fn of(diff: &Diff, top: usize) -> Self {
        let changed = diff.groups.iter().filter(|group| group.delta() != 0);
        let rows: Vec<DiffGroup> = changed.take(top).cloned().collect();
        let bytes = [diff.a_bytes, diff.b_bytes];
        let listed = |of: fn(&DiffGroup) -> u64| rows.iter().map(of).sum::<u64>();
        Self {
            rest_groups: diff.groups.len() as u64 + diff.rest_groups - rows.len() as u64,
            rest_bytes: [bytes[0] - listed(|row| row.a_bytes), bytes[1] - listed(|row| row.b_bytes)],
            bytes,
            rows,
        }
    }
}
