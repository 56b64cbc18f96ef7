//! The grouping keys that all views offer, their names, and why one is greyed out.

use highwater_analysis::{GroupKey, TreeKey};

use crate::gui::widgets::choice::ChoiceEntry;
use crate::session::absent::Absent;

/// Most depths of module paths that are offered.
const MAX_DEPTHS: usize = 8;

/// Every key for recordings whose longest module path has `deepest` parts: after the whole path each depth below it.
pub(crate) fn group_keys(deepest: usize) -> impl Iterator<Item = GroupKey> {
    let depths = 1..deepest.min(MAX_DEPTHS + 1);
    GroupKey::ALL.iter().copied().flat_map(move |key| {
        let depths = if key == GroupKey::Scope { depths.clone() } else { 0..0 };
        std::iter::once(key).chain(depths.map(|depth| GroupKey::ScopeTo(depth as u8)))
    })
}

/// The same, and every block by itself.
pub(crate) fn tree_keys(deepest: usize) -> impl Iterator<Item = TreeKey> {
    group_keys(deepest).map(TreeKey::By).chain([TreeKey::Block])
}

/// The name of a key in a table heading, without its depth.
pub(crate) const fn key_name(key: TreeKey) -> &'static str {
    match key {
        TreeKey::By(GroupKey::Frame) => "line (frame)",
        TreeKey::By(GroupKey::Scope | GroupKey::ScopeTo(_)) => "module (scope)",
        key => key.name(),
    }
}

/// The name of a key in menus.
pub(crate) fn key_label(key: TreeKey) -> String {
    match key {
        TreeKey::By(GroupKey::ScopeTo(1)) => "module, 1 level (scope:1)".to_owned(),
        TreeKey::By(GroupKey::ScopeTo(depth)) => format!("module, {depth} levels (scope:{depth})"),
        key => key_name(key).to_owned(),
    }
}

/// Why no block has a value for `key`; `None` if some have.
pub(crate) fn absent_reason(absent: &Absent, key: TreeKey) -> Option<&'static str> {
    match key {
        TreeKey::By(key) => absent.reason(key),
        TreeKey::Block => None,
    }
}

/// `key` in a menu, greyed out if no block has a value for it.
pub(crate) fn key_entry(absent: &Absent, key: TreeKey) -> ChoiceEntry {
    ChoiceEntry { name: key_label(key), problem: absent_reason(absent, key) }
}

/// The key after `now` among those that `is_there`; after any depth of module paths comes the key after the whole path.
pub fn next_key(now: TreeKey, is_there: impl Fn(TreeKey) -> bool) -> TreeKey {
    let all: Vec<TreeKey> = TreeKey::all().collect();
    let row = all.iter().position(|key| key.name() == now.name()).unwrap_or(0);
    let following = (1..=all.len()).filter_map(|by| all.get((row + by) % all.len())).copied();
    following.into_iter().find(|key| is_there(*key)).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn depths_of_module_paths_follow_the_whole_path() {
        let scopes = |deepest| group_keys(deepest).filter(|key| key.name() == "scope").collect::<Vec<_>>();
        assert_eq!(scopes(0), [GroupKey::Scope]);
        assert_eq!(scopes(3), [GroupKey::Scope, GroupKey::ScopeTo(1), GroupKey::ScopeTo(2)]);
        assert_eq!(scopes(200).len(), 1 + MAX_DEPTHS);
        assert_eq!(group_keys(3).count(), GroupKey::ALL.len() + 2);
        assert_eq!(tree_keys(0).collect::<Vec<_>>(), TreeKey::all().collect::<Vec<_>>());
    }

    #[test]
    fn the_next_key_is_one_that_is_there_and_follows_a_depth_as_the_whole_path() {
        let by = TreeKey::By;
        assert_eq!(next_key(by(GroupKey::Category), |_| true), by(GroupKey::Op));
        assert_eq!(next_key(by(GroupKey::Category), |key| key != by(GroupKey::Op)), by(GroupKey::Scope));
        assert_eq!(next_key(by(GroupKey::ScopeTo(2)), |_| true), by(GroupKey::Phase));
        assert_eq!(next_key(TreeKey::Block, |_| true), by(GroupKey::Category));
        assert_eq!(next_key(by(GroupKey::Size), |key| key == by(GroupKey::Size)), by(GroupKey::Size));
    }
}
