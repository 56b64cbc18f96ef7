//! Lists differences from a baseline, merging groups whose names differ only in numbers.

use std::collections::HashMap;

use crate::diff::{Diff, DiffGroup};
use crate::group_key::layer_pattern;

/// Groups of one category whose places differ only in numbers, and that have the same bytes before and now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AlikeGroups {
    /// The key values, with `*` for numbers if there are several groups.
    pub key: Vec<String>,
    /// Number of groups.
    pub groups: u64,
    /// Bytes in the baseline.
    pub before: u64,
    /// Bytes now.
    pub now: u64,
}

impl AlikeGroups {
    /// The difference in bytes.
    pub fn delta(&self) -> i128 {
        i128::from(self.now) - i128::from(self.before)
    }
}

/// The differences: the rows and the rest add up to the totals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Differences {
    /// The largest differences, in either direction.
    pub rows: Vec<AlikeGroups>,
    /// Number of groups that are not listed, including unchanged ones.
    pub rest_groups: u64,
    /// Their bytes in the baseline and now.
    pub rest_bytes: [u64; 2],
    /// The totals in the baseline and now.
    pub bytes: [u64; 2],
}

impl Differences {
    /// The `top` rows of `diff`, which must list all its groups.
    pub fn of(diff: &Diff, top: usize) -> Self {
        let mut row_of: HashMap<(Vec<String>, u64, u64), usize> = HashMap::new();
        let mut rows: Vec<AlikeGroups> = Vec::new();
        for group in diff.groups.iter().filter(|group| group.delta() != 0) {
            let stars: Vec<String> = group.key.iter().map(|name| with_stars(name)).collect();
            let row = *row_of.entry((stars.clone(), group.a_bytes, group.b_bytes)).or_insert(rows.len());
            match rows.get_mut(row) {
                Some(known) => known.add(stars, group),
                None => rows.push(AlikeGroups {
                    key: group.key.clone(),
                    groups: 1,
                    before: group.a_bytes,
                    now: group.b_bytes,
                }),
            }
        }
        rows.sort_by(|x, y| y.delta().abs().cmp(&x.delta().abs()).then_with(|| x.key.cmp(&y.key)));
        rows.truncate(top);
        let bytes = [diff.a_bytes, diff.b_bytes];
        let told = |of: fn(&AlikeGroups) -> u64| rows.iter().map(of).sum::<u64>();
        Self {
            rest_groups: diff.groups.len() as u64 + diff.rest_groups - told(|row| row.groups),
            rest_bytes: [bytes[0] - told(|row| row.before), bytes[1] - told(|row| row.now)],
            bytes,
            rows,
        }
    }
}

impl AlikeGroups {
    fn add(&mut self, stars: Vec<String>, group: &DiffGroup) {
        self.key = stars;
        self.groups += 1;
        self.before += group.a_bytes;
        self.now += group.b_bytes;
    }
}

/// Replaces numbers by stars: `blocks.*.fc1` for `blocks.17.fc1`.
fn with_stars(name: &str) -> String {
    name.split('.').map(layer_pattern).collect::<Vec<_>>().join(".")
}
