//! Builds search conditions from names, quoting special characters.

/// The condition that `key` equals `text`. Conditions cannot contain double quotes: for a text with quotes, that `key`
/// contains the longest part without any. `None` if nothing is left to search for.
pub fn is(key: &str, text: &str) -> Option<String> {
    if !text.contains('"') {
        return Some(format!("{key}=\"{text}\""));
    }
    let part = text.split('"').max_by_key(|part| part.len()).filter(|part| !part.is_empty())?;
    Some(format!("{key}~\"{part}\""))
}

/// Maximum number of values in one condition; more would be unreadable.
const MAX_VALUES: usize = 16;

/// The condition that `key` equals one of `texts`; `None` if they cannot be written, or are too many.
pub fn is_any<'a>(key: &str, texts: impl ExactSizeIterator<Item = &'a str>) -> Option<String> {
    let texts = Some(texts).filter(|texts| texts.len() <= MAX_VALUES)?;
    let quoted = texts.map(|text| (!text.contains('"')).then(|| format!("\"{text}\"")));
    Some(format!("{key}={}", quoted.collect::<Option<Vec<String>>>()?.join(",")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_analysis::{Filter, Matches};
    use highwater_snapshots::BlockId;
    use highwater_snapshots::text::trace_from_text;

    #[test]
    fn a_condition_made_from_a_name_is_met_by_what_has_it() {
        let trace = trace_from_text("alloc a 1 @net,x\nalloc b 1 @net\nalloc c 1").unwrap();
        let found = |text: &str| {
            let filter: Filter = is("scope", text).unwrap().parse().unwrap();
            let matches = Matches::of(&trace, &filter);
            (0..3).filter(|row| matches.contains(BlockId(*row))).collect::<Vec<_>>()
        };
        assert_eq!(found("net,x"), [0]);
        assert_eq!(found("net"), [1]);
        assert_eq!(found(""), [2]);
        assert_eq!(is("frame", "f(\"long name\", x)").as_deref(), Some("frame~\"long name\""));
        assert_eq!(is("frame", "\"\""), None);
        assert_eq!(is_any("scope", ["h.0", "h.1"].into_iter()).as_deref(), Some("scope=\"h.0\",\"h.1\""));
        assert_eq!(is_any("scope", ["h"; 17].into_iter()), None);
    }
}
