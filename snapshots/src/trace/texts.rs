//! Makes the texts of a recording safe to display, on one line and without control characters.

use std::collections::btree_map::{BTreeMap, Entry};
use std::sync::Arc;

use super::{Trace, TraceParts};
use crate::ids::StringId;
use crate::shown::{MAX_SHOWN, is_hidden, shown};

impl Trace {
    /// Replaces control and similar characters in all texts, and truncates very long texts. For display only: files
    /// contain the original texts. Leaves attribute values unchanged, because these may have several lines and are
    /// parsed. Copies the recording only if it contains such texts.
    pub fn with_printable_texts(trace: Arc<Self>) -> Arc<Self> {
        let is_shown = |text: &String| text.len() <= MAX_SHOWN && !text.contains(is_hidden);
        if trace.texts().all(is_shown) {
            return trace;
        }
        let mut trace = Arc::unwrap_or_clone(trace).0;
        let mut values: BTreeMap<StringId, String> = BTreeMap::new();
        for value in trace.attributes.iter().map(|attribute| attribute.value) {
            let text = value.index().and_then(|index| trace.tables.strings.get(index));
            if let (Entry::Vacant(new), Some(text)) = (values.entry(value), text.filter(|text| !is_shown(text))) {
                new.insert(text.clone());
            }
        }
        for text in trace.texts_mut().filter(|text| !is_shown(text)) {
            *text = shown(text, MAX_SHOWN).into_owned();
        }
        let first = trace.tables.strings.len();
        let kept: BTreeMap<StringId, StringId> =
            values.keys().copied().zip((first..).map(StringId::from_index)).collect();
        trace.tables.strings.extend(values.into_values());
        for attribute in &mut trace.attributes {
            attribute.value = kept.get(&attribute.value).copied().unwrap_or(attribute.value);
        }
        Arc::new(Self(trace))
    }
}

impl TraceParts {
    fn texts(&self) -> impl Iterator<Item = &String> {
        let Self { header, devices, tables, problems, .. } = self;
        let of_header = [&header.recorder, &header.program, &header.host, &header.clock, &header.level];
        let of_devices = devices.iter().flat_map(|facts| [&facts.name, &facts.driver]);
        let settings = devices.iter().flat_map(|facts| &facts.settings).chain(&header.facts);
        let of_settings = settings.flat_map(|(name, value)| [name, value]);
        let of_problems = problems.iter().map(|problem| &problem.what);
        tables.strings.iter().chain(of_header).chain(of_devices).chain(of_settings).chain(of_problems)
    }

    fn texts_mut(&mut self) -> impl Iterator<Item = &mut String> {
        let Self { header, devices, tables, problems, .. } = self;
        let of_header =
            [&mut header.recorder, &mut header.program, &mut header.host, &mut header.clock, &mut header.level];
        let of_devices = devices.iter_mut().flat_map(|facts| {
            let settings = facts.settings.iter_mut().flat_map(|(name, value)| [name, value]);
            [&mut facts.name, &mut facts.driver].into_iter().chain(settings)
        });
        let of_facts = header.facts.iter_mut().flat_map(|(name, value)| [name, value]);
        let of_problems = problems.iter_mut().map(|problem| &mut problem.what);
        tables.strings.iter_mut().chain(of_header).chain(of_devices).chain(of_facts).chain(of_problems)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::EventId;
    use crate::trace::{Attribute, Header, Owner};

    #[test]
    fn texts_are_shown_on_one_line_and_of_limited_length() {
        let trace = Arc::new(Trace::default());
        let same = Trace::with_printable_texts(Arc::clone(&trace));
        assert!(Arc::ptr_eq(&trace, &same), "there is nothing to replace");
        let header = Header {
            program: "a\u{1b}[2J".into(),
            facts: vec![("b\n".into(), "c\u{202e}".into())],
            ..Header::default()
        };
        let mut trace = TraceParts { header, ..TraceParts::default() };
        trace.tables.strings = vec!["ok".into(), "d\te".into(), "f".repeat(10 << 20)];
        let trace = Trace::with_printable_texts(Arc::new(Trace(trace)));
        assert_eq!(trace.header.program, "a\u{fffd}[2J");
        assert_eq!(trace.header.facts, [("b\u{fffd}".to_owned(), "c\u{fffd}".to_owned())]);
        assert_eq!(trace.tables.strings[..2], ["ok", "d\u{fffd}e"]);
        assert_eq!(trace.tables.strings[2].chars().count(), MAX_SHOWN);
    }

    #[test]
    fn values_of_attributes_keep_their_lines_and_their_length() {
        let value = "a\nb ".repeat(MAX_SHOWN);
        let mut trace = TraceParts::default();
        trace.tables.strings = vec!["name".into(), value.clone()];
        let (name, text) = (StringId(0), StringId(1));
        let attribute = |at| Attribute { owner: Owner::Event(EventId(at)), name, value: text };
        trace.attributes = vec![attribute(0), attribute(1)];
        let trace = Trace::with_printable_texts(Arc::new(Trace(trace)));
        assert!(trace.attributes.iter().all(|attribute| trace.tables.string(attribute.value) == value));
        assert!(!trace.tables.string(text).contains('\n'), "it may be a name too");
        assert_eq!(trace.tables.strings.len(), 3);
    }
}
