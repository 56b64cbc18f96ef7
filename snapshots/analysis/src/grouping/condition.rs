//! Writes `--where` conditions for values, in the syntax of [`Filter`](crate::Filter).

use highwater_snapshots::units::parse_bytes;

use super::dimension::{GroupKey, NO_LABEL, Values};
use super::filter::QUOTED_COMMA;

/// Maximum number of values in one term; more would be unreadable.
pub(crate) const MAX_VALUES: usize = 16;

/// Returns a value as written in conditions, quoted if it contains special characters; `None` if that is impossible.
pub(crate) fn quoted(text: &str) -> Option<String> {
    if text.contains(['"', QUOTED_COMMA]) {
        return None;
    }
    let is_plain = |c: char| c.is_alphanumeric() || "._-:/".contains(c);
    Some(if text.chars().all(is_plain) { text.to_owned() } else { format!("\"{text}\"") })
}

/// Returns the condition that `key` equals `text`. If `text` contains double quotes, returns the condition that `key`
/// contains its longest part without quotes; `None` if that part is empty.
pub fn equals(key: &str, text: &str) -> Option<String> {
    if let Some(text) = quoted(text) {
        return Some(format!("{key}={text}"));
    }
    let longest = text.split(['"', QUOTED_COMMA]).max_by_key(|part| part.len()).filter(|part| !part.is_empty())?;
    Some(format!("{key}~{}", quoted(longest)?))
}

/// Returns the condition `start`, such as `scope=`, with several values; `None` if a value cannot be written or there
/// are too many.
pub(crate) fn any_of<'a>(start: &str, texts: impl ExactSizeIterator<Item = &'a str>) -> Option<String> {
    let texts = Some(texts).filter(|texts| texts.len() <= MAX_VALUES)?;
    Some(format!("{start}{}", texts.map(quoted).collect::<Option<Vec<String>>>()?.join(",")))
}

/// Returns the condition for the blocks of a group, whose `keys` have these `values`. For a group of identical modules,
/// `members` contains the values of each module. A line of code matches every stack that contains it. `None` without
/// keys, if a value cannot be written, or if there are too many members.
pub fn of_group(keys: &[GroupKey], values: &[String], members: &[Vec<String>]) -> Option<String> {
    let term = |(at, (key, value)): (usize, (&GroupKey, &String))| match key {
        GroupKey::Scope if !members.is_empty() => any_of("scope=", members.iter().map(|values| values[at].as_str())),
        key => of_label(*key, value),
    };
    let terms: Option<Vec<String>> = keys.iter().zip(values).enumerate().map(term).collect();
    terms.filter(|terms| !terms.is_empty()).map(|terms| terms.join(" "))
}

/// Returns the condition for the module paths `wanted` but none of `others`; `None` if no condition with at most
/// [`MAX_VALUES`] values expresses that.
pub(crate) fn of_paths(mut wanted: Vec<String>, others: &[String]) -> Option<String> {
    wanted.sort_unstable();
    wanted.dedup();
    if others.iter().any(|path| wanted.binary_search(path).is_ok()) {
        return None;
    }
    if let [only] = wanted.as_slice() {
        return Some(format!("scope={}", quoted(only)?));
    }
    let shared = shared_parts(&wanted);
    for part in [shared.clone(), format!("{shared}.")] {
        let is_right = !shared.is_empty()
            && wanted.iter().all(|path| path.contains(&part))
            && !others.iter().any(|path| path.contains(&part));
        if is_right {
            return Some(format!("scope~{}", quoted(&part)?));
        }
    }
    any_of("scope=", wanted.iter().map(String::as_str))
}

/// Returns the longest common prefix of all `paths`, in whole names between dots.
fn shared_parts(paths: &[String]) -> String {
    let mut shared: Vec<&str> = paths.first().map(|path| path.split('.').collect()).unwrap_or_default();
    for path in paths {
        let same = shared.iter().zip(path.split('.')).take_while(|(a, b)| *a == b).count();
        shared.truncate(same);
    }
    shared.join(".")
}

/// Returns the condition for the value of `key` with this label; `None` if no condition expresses it.
fn of_label(key: GroupKey, label: &str) -> Option<String> {
    let (name, dimension) = (key.name(), key.dimension());
    let text = Some(label).filter(|label| *label != NO_LABEL);
    match dimension.values {
        // No condition selects paths by their beginning.
        Values::Path if key != GroupKey::Scope => None,
        Values::Text | Values::Path => equals(name, text.unwrap_or_default()),
        Values::Stack => Some(format!("{name}={}", quoted(text.unwrap_or_default())?)),
        Values::Line => equals(name, text?),
        Values::Bytes => Some(format!("{name}={}", parse_bytes(label).ok()?)),
        Values::Number => Some(format!("{name}={}", text?)),
        Values::Words(words) => match dimension.label {
            Some(label_of) => {
                let code = (0_u64..).zip(words()).find(|(code, _)| label_of(*code) == label);
                code.map(|(_, word)| format!("{name}={word}"))
            }
            None => equals(name, text?),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use highwater_notation::trace_from_text;
    use highwater_snapshots::BlockId;

    use super::*;
    use crate::question::peak::Query;
    use crate::{Explanation, Filter, Matches, Metric, Siblings, Source};

    #[test]
    fn a_condition_made_from_a_name_is_met_by_what_has_it() {
        let trace = trace_from_text("alloc a 1 @net,x\nalloc b 1 @net\nalloc c 1").unwrap();
        let found = |text: &str| {
            let filter: Filter = equals("scope", text).unwrap().parse().unwrap();
            let matches = Matches::of(&trace, &filter);
            (0..3).filter(|row| matches.contains(BlockId(*row))).collect::<Vec<_>>()
        };
        assert_eq!(found("net,x"), [0]);
        assert_eq!(found("net"), [1]);
        assert_eq!(found(""), [2]);
        assert_eq!(equals("frame", "f(\"long name\", x)").as_deref(), Some("frame~\"long name\""));
        assert_eq!(equals("frame", "\"\""), None);
        assert_eq!(any_of("scope=", ["h.0", "h 1"].into_iter()).as_deref(), Some("scope=h.0,\"h 1\""));
        assert_eq!(any_of("scope=", ["h"; 17].into_iter()), None);
    }

    #[test]
    fn the_condition_of_equal_modules_names_each_of_them() {
        let row = |category: &str, scope: &str| vec![category.to_owned(), scope.to_owned()];
        let members = [row("activation", "h.0"), row("activation", "h.1")];
        let keys = [GroupKey::Category, GroupKey::Scope];
        let condition = of_group(&keys, &row("activation", "h.{0-1}"), &members);
        assert_eq!(condition.as_deref(), Some("category=activation scope=h.0,h.1"));
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
            let query = Query { keys: &keys, top: 100, filter: &filter, siblings: Siblings::Each };
            let source = Source::in_memory(&trace);
            let explanation =
                Explanation::of(&source, device, Metric::Requested, &query, &mut |_| ControlFlow::Continue(()))
                    .unwrap();
            assert!(!explanation.groups.is_empty());
            for group in &explanation.groups {
                let Some(condition) = of_group(&keys, &group.key, &[]) else {
                    assert_eq!(group.key, [NO_LABEL], "only what is not there cannot be asked for");
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
            of_group(keys, &values.iter().map(|value| (*value).to_owned()).collect::<Vec<_>>(), &[])
        };
        let keys = [GroupKey::Op, GroupKey::Size];
        assert_eq!(of(&keys, &["(none)", "1000 B"]).as_deref(), Some("op= size=1000"));
        assert_eq!(of(&keys, &["linear", "2 MiB"]).as_deref(), Some("op=linear size=2097152"));
        assert_eq!(of(&[GroupKey::Category, GroupKey::Step], &["gradient", "(none)"]), None);
        assert_eq!(of(&[GroupKey::Stack], &["say \"hi\""]), None);
        assert_eq!(of(&[], &[]), None);
    }
}
