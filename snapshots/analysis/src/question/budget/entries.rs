//! Sums memory by category, module path and operation, and finds the module that accounts for most of it.

use crate::grouping::dimension::{GroupKey, layer_pattern};
use highwater_snapshots::trace::Trace;

/// Minimum share of the total, in quarters, of a module that is named as the cause.
const MAX_PARTS: i128 = 3;

/// The keys for finding a cause: category, then the module (or, without module paths, the line), then the operation.
pub fn culprit_keys(trace: &Trace) -> [GroupKey; 3] {
    let place = if trace.tables.scopes.is_empty() { GroupKey::Frame } else { GroupKey::Scope };
    [GroupKey::Category, place, GroupKey::Op]
}

/// Bytes that share a category, module path and operation. Without a baseline, `before` is 0.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) category: String,
    /// The parts of the module path, or one line of code; empty if unknown.
    pub(super) path: Vec<String>,
    /// The operation; empty if unknown.
    pub(super) op: String,
    pub(super) before: u64,
    pub(super) now: u64,
}

impl Entry {
    /// Creates an entry from the values of [`culprit_keys`].
    pub(super) fn new(key: &[String], place: GroupKey, [before, now]: [u64; 2]) -> Self {
        let known = |at: usize| key.get(at).filter(|name| !name.starts_with('(')).cloned().unwrap_or_default();
        let (place_name, category) = (known(1), key.first().cloned().unwrap_or_default());
        let path = match (place_name.is_empty(), place) {
            (true, _) => Vec::new(),
            (false, GroupKey::Scope) => place_name.split('.').map(str::to_owned).collect(),
            (false, _) => vec![place_name],
        };
        Self { category, path, op: known(2), before, now }
    }

    pub(super) fn delta(&self) -> i128 {
        i128::from(self.now) - i128::from(self.before)
    }

    /// Returns whether the path of the entry is `module` or is inside it. A `*` in `module` matches any number.
    pub(super) fn is_within(&self, module: &[String]) -> bool {
        module.len() <= self.path.len()
            && module.iter().zip(&self.path).all(|(want, have)| want == have || want == layer_pattern(have))
    }
}

/// The sum of all increases, ignoring decreases.
pub(super) fn gain_of_gainers<'a>(entries: impl IntoIterator<Item = &'a Entry>) -> i128 {
    entries.into_iter().map(|entry| entry.delta().max(0)).sum()
}

/// The deepest module path that accounts for most of the growth of `entries`, such as `blocks.17.mlp`, or if several
/// similar modules share it, `blocks.*.mlp`. Empty if there is none.
pub(super) fn place_of(entries: &[&Entry]) -> Vec<String> {
    let whole = gain_of_gainers(entries.iter().copied());
    descend(entries, Vec::new(), whole)
}

/// The top-level module that grew most, then the deepest module in it that accounts for most of its growth.
pub(super) fn leading_place(entries: &[&Entry]) -> Vec<String> {
    let Some((first, whole)) = largest(entries, 0, |name| layer_pattern(name).to_owned()) else { return Vec::new() };
    let within: Vec<&Entry> =
        entries.iter().copied().filter(|entry| entry.is_within(std::slice::from_ref(&first))).collect();
    let alone = largest(&within, 0, str::to_owned).filter(|(_, sum)| is_most(*sum, whole));
    descend(&within, vec![alone.map_or(first, |(name, _)| name)], whole)
}

fn descend(entries: &[&Entry], mut place: Vec<String>, whole: i128) -> Vec<String> {
    let mut left: Vec<&Entry> = entries.to_vec();
    loop {
        left.retain(|entry| entry.is_within(&place));
        let depth = place.len();
        let next = largest(&left, depth, str::to_owned).filter(|(_, sum)| is_most(*sum, whole));
        let next = next.or_else(|| {
            largest(&left, depth, |name| layer_pattern(name).to_owned()).filter(|(_, sum)| is_most(*sum, whole))
        });
        let Some((name, _)) = next else { return place };
        place.push(name);
    }
}

fn is_most(part: i128, whole: i128) -> bool {
    part > 0 && part * 4 >= whole * MAX_PARTS
}

/// The path component at `depth` that grew most, after normalizing names by `name`.
fn largest(entries: &[&Entry], depth: usize, name: impl Fn(&str) -> String) -> Option<(String, i128)> {
    let mut sums = std::collections::BTreeMap::new();
    for entry in entries {
        if let Some(part) = entry.path.get(depth) {
            *sums.entry(name(part)).or_insert(0) += entry.delta();
        }
    }
    let most = sums.into_iter().max_by(|(a, first), (b, second)| first.cmp(second).then_with(|| b.cmp(a)));
    most.filter(|(_, sum)| *sum > 0)
}
