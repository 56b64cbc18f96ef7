//! The grouping keys offered by views, their names, and the reasons for which they are disabled.

use eframe::egui::{ComboBox, Role, Ui, WidgetInfo};
use highwater_analysis::{GroupKey, TreeKey};

use crate::gui::widgets::{ChoiceEntry, entries_ui};
use crate::session::absent::Absent;

/// Maximum number of depths of module paths in lists.
const MAX_DEPTHS: usize = 8;

/// Returns all keys, for recordings whose longest module path has `deepest` parts: the key for the whole path is
/// followed by one for each smaller depth up to [`MAX_DEPTHS`].
pub(crate) fn group_keys(deepest: usize) -> impl Iterator<Item = GroupKey> {
    let depths = 1..deepest.min(MAX_DEPTHS + 1);
    GroupKey::ALL.iter().copied().flat_map(move |key| {
        let depths = if key == GroupKey::Scope { depths.clone() } else { 0..0 };
        std::iter::once(key).chain(depths.map(|depth| GroupKey::ScopeTo(depth as u8)))
    })
}

/// The keys of [`group_keys`], and the key for which each block is a separate group.
pub(crate) fn tree_keys(deepest: usize) -> impl Iterator<Item = TreeKey> {
    group_keys(deepest).map(TreeKey::By).chain([TreeKey::Block])
}

/// The name of a key in table headings, without its depth.
pub(crate) fn key_name(key: TreeKey) -> &'static str {
    match key {
        TreeKey::By(GroupKey::Frame) => "line (frame)",
        TreeKey::By(GroupKey::Scope | GroupKey::ScopeTo(_)) => "module (scope)",
        key => key.name(),
    }
}

pub(crate) fn key_label(key: TreeKey) -> String {
    match key {
        TreeKey::By(GroupKey::ScopeTo(1)) => "module, 1 level (scope:1)".to_owned(),
        TreeKey::By(GroupKey::ScopeTo(depth)) => format!("module, {depth} levels (scope:{depth})"),
        key => key_name(key).to_owned(),
    }
}

pub(crate) fn absent_reason(absent: &Absent, key: TreeKey) -> Option<&'static str> {
    match key {
        TreeKey::By(key) => absent.reason(key),
        TreeKey::Block => None,
    }
}

/// Shows lists for a first grouping key and a second one within it. There is no second key if the first one selects
/// individual blocks. Keys for which `problem` returns a text are disabled.
pub(crate) fn keys_ui<K: Copy + PartialEq + Into<TreeKey>>(
    ui: &mut Ui,
    labels: [&str; 2],
    (first, second): (&mut K, &mut Option<K>),
    keys: &[K],
    problem: impl Fn(TreeKey) -> Option<&'static str>,
) {
    let all: Vec<Option<K>> = keys.iter().copied().map(Some).collect();
    let mut chosen = Some(*first);
    key_ui(ui, ["by", labels[0]], &mut chosen, &all, &problem);
    *first = chosen.unwrap_or(*first);
    let is_block = (*first).into() == TreeKey::Block;
    *second = second.filter(|key| key != first && !is_block);
    if !is_block {
        let others = keys.iter().copied().filter(|key| key != first).map(Some);
        let others: Vec<Option<K>> = std::iter::once(None).chain(others).collect();
        key_ui(ui, ["then", labels[1]], second, &others, &problem);
    }
}

/// Shows a list of keys, with `word` before the selected key. `label` is the name of the list for screen readers.
fn key_ui<K: Copy + PartialEq + Into<TreeKey>>(
    ui: &mut Ui,
    [word, label]: [&str; 2],
    chosen: &mut Option<K>,
    keys: &[Option<K>],
    problem: impl Fn(TreeKey) -> Option<&'static str>,
) {
    let name = |key: &Option<K>| key.map_or_else(|| "no second key".to_owned(), |key| key_label(key.into()));
    let entry = |key: &Option<K>| ChoiceEntry { name: name(key), problem: key.and_then(|key| problem(key.into())) };
    let now = name(chosen);
    let selected = if chosen.is_some() { format!("{word} {now}") } else { format!("{word} by…") };
    let list = ComboBox::from_id_salt(label).selected_text(selected).width(0.0).height(400.0);
    let shown = list.show_ui(ui, |ui| entries_ui(ui, chosen, keys, entry));
    shown.response.widget_info(|| WidgetInfo::labeled(Role::ComboBox, true, format!("{label} {now}")));
}

/// Returns the key after `now` among those for which `is_there` is true. All depths of module paths count as one key.
pub(crate) fn next_key(now: TreeKey, is_there: impl Fn(TreeKey) -> bool) -> TreeKey {
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
