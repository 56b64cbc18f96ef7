//! Builds `--where` conditions for the values that a group of blocks has in common.

use highwater_analysis::{GroupKey, Lifetime, Origin};
use highwater_snapshots::units::parse_bytes;

use crate::gui::filter::condition;

/// Stands for a missing value.
const NONE: &str = "(none)";

/// The condition for blocks with these `values` of `keys`; `None` if a value cannot be expressed. A line of code
/// matches every stack that contains it.
pub fn condition_of(keys: &[GroupKey], values: &[String]) -> Option<String> {
    let terms: Option<Vec<String>> = keys.iter().zip(values).map(|(key, value)| term(*key, value)).collect();
    terms.filter(|terms| !terms.is_empty()).map(|terms| terms.join(" "))
}

/// The condition for the blocks of a group of equal modules, or of one: `members` are the values of each of several.
pub(crate) fn condition_of_all(keys: &[GroupKey], values: &[String], members: &[Vec<String>]) -> Option<String> {
    if members.is_empty() {
        return condition_of(keys, values);
    }
    let term = |(at, (key, value)): (usize, (&GroupKey, &String))| match key {
        GroupKey::Scope => condition::is_any(key.name(), members.iter().map(|values| values[at].as_str())),
        key => term(*key, value),
    };
    let terms: Option<Vec<String>> = keys.iter().zip(values).enumerate().map(term).collect();
    terms.map(|terms| terms.join(" "))
}

fn term(key: GroupKey, value: &str) -> Option<String> {
    let name = key.name();
    let known = Some(value).filter(|value| *value != NONE);
    match key {
        GroupKey::Pool => condition::is(name, known?),
        GroupKey::Phase => Some(format!("{name}={}", Origin::word_of(value)?)),
        GroupKey::Op | GroupKey::Scope => condition::is(name, known.unwrap_or_default()),
        // No condition says how a path begins.
        GroupKey::ScopeTo(_) => None,
        GroupKey::Stack => match known {
            Some(stack) if stack.contains('"') => None,
            Some(stack) => Some(format!("{name}=\"{stack}\"")),
            None => Some(format!("{name}=")),
        },
        GroupKey::Frame => condition::is(name, known?),
        GroupKey::Size => Some(format!("{name}={}", parse_bytes(value).ok()?)),
        GroupKey::Lifetime => {
            let lifetime = Lifetime::ALL.into_iter().find(|lifetime| lifetime.name() == value)?;
            Some(format!("{name}={}", lifetime.word()))
        }
        _ => Some(format!("{name}={}", known?)),
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::*;
    use highwater_analysis::explain::ExplainQuery;
    use highwater_analysis::{Explanation, Filter, Matches, Metric, Siblings, Source};
    use highwater_snapshots::text::trace_from_text;

    #[test]
    fn the_condition_of_equal_modules_names_each_of_them() {
        let row = |category: &str, scope: &str| vec![category.to_owned(), scope.to_owned()];
        let members = [row("activation", "h.0"), row("activation", "h.1")];
        let keys = [GroupKey::Category, GroupKey::Scope];
        let condition = condition_of_all(&keys, &row("activation", "h.{0-1}"), &members);
        assert_eq!(condition.as_deref(), Some("category=activation scope=\"h.0\",\"h.1\""));
    }

    #[test]
    fn the_condition_of_every_group_is_met_by_its_blocks_alone() {
        let text = "
            baseline w 400/512 parameter @net.fc1 < new < main
            step 0
            phase forward
            alloc a 300/512 activation #linear @net.fc1 < forward < main
            alloc b 1024 activation #relu @net.fc2 stream=7 < relu < main
            alloc c 1023 temporary
            step 1
            phase backward
            alloc g 400/512 gradient #linear @net.fc1 < backward < main
            free a
            free b
        ";
        // The last event but two: everything is live.
        let trace = trace_from_text(text).unwrap();
        let device = trace.main_device();
        let filter = Filter::default();
        for &key in GroupKey::ALL {
            let keys = [key];
            let query = ExplainQuery {
                metric: Metric::Requested,
                keys: &keys,
                top: 100,
                filter: &filter,
                siblings: Siblings::Each,
            };
            let source = Source::in_memory(&trace);
            let explanation = Explanation::of(&source, device, &query, &mut |_| ControlFlow::Continue(())).unwrap();
            assert!(!explanation.groups.is_empty());
            for group in &explanation.groups {
                let Some(condition) = condition_of(&keys, &group.key) else {
                    assert_eq!(group.key, [NONE], "only what is not there cannot be asked for");
                    continue;
                };
                let matches = Matches::of(&trace, &condition.parse().unwrap());
                assert_eq!((matches.blocks(), matches.requested()), (group.blocks_at_peak, group.bytes_at_peak));
            }
        }
    }

    #[test]
    fn several_keys_make_one_condition_and_what_cannot_be_stated_makes_none() {
        let of = |keys: &[GroupKey], values: &[&str]| {
            condition_of(keys, &values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>())
        };
        let keys = [GroupKey::Op, GroupKey::Size];
        assert_eq!(of(&keys, &["(none)", "1000 B"]).as_deref(), Some("op=\"\" size=1000"));
        assert_eq!(of(&keys, &["linear", "2 MiB"]).as_deref(), Some("op=\"linear\" size=2097152"));
        assert_eq!(of(&[GroupKey::Category, GroupKey::Step], &["gradient", "(none)"]), None);
        assert_eq!(of(&[GroupKey::Stack], &["say \"hi\""]), None);
    }
}
