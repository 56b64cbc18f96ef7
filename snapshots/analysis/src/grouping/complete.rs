//! Completes text of the `--where` language: keys, operators, and values of the recording.

use std::ops::Range;

use highwater_snapshots::units::{format_bytes, format_count};

use super::dimension::{Dimension, Values, conditions};
use super::filter::{OPERATORS, Operator, name_length};
use super::vocabulary::{Vocabulary, Word};

/// A completion that the search box offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The byte range of the text that is replaced.
    pub range: Range<usize>,
    /// The replacement; the cursor moves to its end.
    pub text: String,
    /// A description for the list: the blocks that match, or their bytes.
    pub what: String,
}

/// Maximum number of completions.
pub(crate) const MAX_COMPLETIONS: usize = 12;

/// The completions at byte `cursor` of `text`, best first.
pub fn complete(text: &str, cursor: usize, vocabulary: &Vocabulary) -> Vec<Completion> {
    let cursor = (0..=cursor.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
    let term = Term::around(text, cursor);
    let written = &text[term.start..cursor];
    let name_length = name_length(written);
    let mut found = if name_length == written.len() {
        keys(text, &term, cursor)
    } else {
        let (name, rest) = written.split_at(name_length);
        match conditions().into_iter().find(|key| key.name == name) {
            Some(key) => after_key(text, &term, cursor, (key, rest), vocabulary),
            None => Vec::new(),
        }
    };
    let is_word = !written.is_empty() && !OPERATORS.iter().any(|(operator, _)| written.contains(operator));
    if found.is_empty() && is_word && !written.starts_with('"') {
        let what = "text in the stack, scope, op or category".to_owned();
        found.push(Completion {
            range: term.start..term.end.max(cursor),
            text: text[term.start..term.end.max(cursor)].to_owned(),
            what,
        });
    }
    found.truncate(MAX_COMPLETIONS);
    found
}

/// The term under the cursor, and its value.
struct Term {
    start: usize,
    /// The start of the value under the cursor: after the last comma, or at the start of the term.
    value: usize,
    end: usize,
}

impl Term {
    fn around(text: &str, cursor: usize) -> Self {
        let mut term = Self { start: 0, value: 0, end: text.len() };
        let mut is_quoted = false;
        for (at, c) in text.char_indices() {
            match c {
                '"' => is_quoted = !is_quoted,
                ' ' | '\t' | ',' if !is_quoted && at >= cursor => {
                    term.end = at;
                    return term;
                }
                ' ' | '\t' if !is_quoted => (term.start, term.value) = (at + 1, at + 1),
                ',' if !is_quoted => term.value = at + 1,
                _ => {}
            }
        }
        if is_quoted {
            // An open quote swallows everything after it; the text behind the cursor is kept.
            term.end = cursor;
        }
        term
    }
}

/// Returns the keys that start with or contain the entered text and, after a complete key, its operators.
fn keys(text: &str, term: &Term, cursor: usize) -> Vec<Completion> {
    let written = &text[term.start..cursor];
    let rest = &text[cursor..];
    let name_end = cursor + rest.find(|c: char| !c.is_ascii_alphabetic() && c != '_').unwrap_or(rest.len());
    let range = term.start..name_end;
    // An operator may already follow the name.
    let has_operator = OPERATORS.iter().any(|(spelling, _)| text[name_end..].starts_with(spelling));
    let mut found = Vec::new();
    let usual = |key: &Dimension| format!("{}{}", key.name, key.values.usual_operator());
    if let Some(key) = conditions().into_iter().find(|key| key.name == written && name_end == cursor)
        && !has_operator
    {
        let fitting = OPERATORS.iter().filter(|(_, operator)| operator.fits(key.values));
        let operators = fitting.map(|(spelling, operator)| Completion {
            range: range.clone(),
            text: format!("{written}{spelling}"),
            what: operator_words(*operator).to_owned(),
        });
        found.extend(operators);
        found.sort_by_key(|offer: &Completion| offer.text != usual(key));
    }
    let small = written.to_lowercase();
    let mut others = conditions();
    others.retain(|key| key.name != written && key.name.contains(&small));
    others.sort_by_key(|key| !key.name.starts_with(&small));
    found.extend(others.into_iter().map(|key| Completion {
        range: range.clone(),
        text: if has_operator { key.name.to_owned() } else { usual(key) },
        what: key.hint.to_owned(),
    }));
    found
}

/// Operators and values after a key.
fn after_key(
    text: &str,
    term: &Term,
    cursor: usize,
    (key, rest): (&Dimension, &str),
    vocabulary: &Vocabulary,
) -> Vec<Completion> {
    let begun = |rest: &str, is_longer: bool| {
        let operators = OPERATORS.iter().filter(move |(_, operator)| operator.fits(key.values));
        let operators = operators.filter(|(spelling, _)| spelling.starts_with(rest));
        let operators = operators.filter(|(spelling, _)| !is_longer || spelling.len() > rest.len());
        let range = cursor - rest.len()..cursor;
        let offer = |(spelling, operator): &(&str, Operator)| Completion {
            range: range.clone(),
            text: (*spelling).to_owned(),
            what: operator_words(*operator).to_owned(),
        };
        operators.map(offer).collect::<Vec<_>>()
    };
    let Some((spelling, operator)) = OPERATORS.iter().find(|(spelling, _)| rest.starts_with(spelling)) else {
        return begun(rest, false);
    };
    if !operator.fits(key.values) {
        return Vec::new();
    }
    let first = cursor - rest.len() + spelling.len();
    let value = term.value.max(first);
    let chosen: Vec<String> = text[first..value].split(',').map(bare).collect();
    let mut found = values(key, *operator, &bare(&text[value..cursor]), &chosen, vocabulary);
    for offer in &mut found {
        offer.range = value..term.end.max(cursor);
    }
    if rest.len() == spelling.len() {
        // `>` may become `>=`.
        let longer = begun(rest, true);
        found.truncate(MAX_COMPLETIONS - longer.len());
        found.extend(longer);
    }
    found
}

/// Returns the values that start with `written`, then those that contain it, each ordered by bytes, largest first.
fn values(
    key: &Dimension,
    operator: Operator,
    written: &str,
    chosen: &[String],
    vocabulary: &Vocabulary,
) -> Vec<Completion> {
    let small = written.to_lowercase();
    let (is_part, kind) = (operator.is_part(), key.values);
    // A whole stack spans many lines, so nobody types it.
    let words = if matches!(kind, Values::Stack) && !is_part { &[] } else { vocabulary.words(key) };
    let (mut first, mut second) = (Vec::new(), Vec::new());
    let fitting = words.iter().filter(|word| (is_part || word.is_whole) && !chosen.contains(&word.text));
    for word in fitting.filter(|word| !word.text.contains(['"', '\n'])) {
        if word.small.starts_with(&small) {
            first.push(word);
        } else if second.len() < MAX_COMPLETIONS && !kind.are_numbers() && word.small.contains(&small) {
            second.push(word);
        }
        if first.len() == MAX_COMPLETIONS {
            break;
        }
    }
    let offer = |word: &Word| Completion { range: 0..0, text: quoted(&word.text), what: word_words(kind, word) };
    let mut found: Vec<Completion> = first.into_iter().chain(second).map(offer).collect();
    if matches!(kind, Values::Bytes) && !operator.is_whole() {
        let round = ["1KiB", "1MiB", "10MiB", "100MiB", "1GiB"].into_iter().filter(|text| text.starts_with(written));
        let round = round.map(|text| Completion { range: 0..0, text: text.to_owned(), what: "round size".to_owned() });
        found.splice(0..0, round);
    }
    found
}

/// Removes the quotes of a value.
fn bare(text: &str) -> String {
    text.replace('"', "")
}

/// Adds quotes to a value if needed.
fn quoted(text: &str) -> String {
    if text.contains([' ', '\t', ',']) { format!("\"{text}\"") } else { text.to_owned() }
}

fn operator_words(operator: Operator) -> &'static str {
    match operator {
        Operator::Is => "is one of",
        Operator::IsNot => "is not one of",
        Operator::Contains => "contains",
        Operator::ContainsNot => "does not contain",
        Operator::Less => "less than",
        Operator::AtMost => "at most",
        Operator::More => "more than",
        Operator::AtLeast => "at least",
    }
}

fn word_words(values: Values, word: &Word) -> String {
    let plural = if word.blocks == 1 { "" } else { "s" };
    let figures = format!("{} in {} block{plural}", format_bytes(word.bytes), format_count(word.blocks));
    match (values, word.text.parse()) {
        (Values::Stack | Values::Line, _) => "line in call stacks".to_owned(),
        (Values::Bytes, Ok(bytes)) => format!("{}: {figures}", format_bytes(bytes)),
        _ => figures,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Filter;
    use highwater_notation::trace_from_text;

    fn vocabulary() -> Vocabulary {
        let text = "
            step 0
            phase forward
            alloc a 3000 activation #linear @net.layer.0 < model.py:10 forward < train, \"x\".py:3 main
            alloc b 5000 activation #conv2d @net.layer.1 < model.py:10 forward < main
            phase backward
            alloc g 100 gradient #linear @net.layer.0 < backward < main
            free a
        ";
        Vocabulary::of(&trace_from_text(text).unwrap())
    }

    fn offers(text: &str) -> Vec<String> {
        complete(text, text.len(), &vocabulary()).into_iter().map(|offer| offer.text).collect()
    }

    /// The text after accepting the first completion.
    fn taken(text: &str, cursor: usize) -> String {
        let offer = complete(text, cursor, &vocabulary()).into_iter().next().unwrap();
        let mut text = text.to_owned();
        text.replace_range(offer.range, &offer.text);
        text
    }

    #[test]
    fn nothing_written_offers_keys_with_their_usual_operators() {
        let found = complete("", 0, &vocabulary());
        assert_eq!(found.len(), MAX_COMPLETIONS);
        assert_eq!((found[0].text.as_str(), found[0].range.clone()), ("category=", 0..0));
        assert!(found.iter().all(|offer| !offer.what.is_empty()));
        let begun = ["scope~", "stack~", "size>=", "step=", "stream=", "phase="];
        assert_eq!(offers("category=gradient s"), begun);
    }

    #[test]
    fn a_whole_key_offers_the_operators_that_fit_it() {
        assert_eq!(offers("size"), ["size>=", "size!=", "size<=", "size=", "size<", "size>"]);
        assert_eq!(offers("scope")[..4], ["scope~", "scope!=", "scope!~", "scope="]);
        assert_eq!(offers("scope!"), ["!=", "!~"]);
        assert!(offers("colour=").is_empty() && offers("size~").is_empty());
    }

    #[test]
    fn values_that_occur_are_offered_heaviest_first_and_beginnings_before_parts() {
        assert_eq!(offers("category="), ["activation", "gradient"]);
        assert_eq!(offers("op="), ["conv2d", "linear"]);
        assert_eq!(offers("op=N"), ["conv2d", "linear"]);
        assert_eq!(offers("op=L"), ["linear"]);
        assert_eq!(offers("category=gradient,"), ["activation"], "what is chosen is not offered again");
        assert_eq!(offers("lifetime="), ["kept", "step"]);
        assert_eq!(offers("step="), ["0"]);
        assert_eq!(offers("size=5"), ["5000"]);
        assert_eq!(offers("size>1M"), ["1MiB"]);
        let found = complete("category=a", 10, &vocabulary());
        assert_eq!(found[0].what, "7.81 KiB in 2 blocks");
    }

    #[test]
    fn private_pools_are_offered_by_their_ids_as_they_must_be_written() {
        let text = "alloc a 512\nattribute pool_id \"(0, 1)\"\nalloc b 700 small\nalloc c 300 large";
        let trace = trace_from_text(text).unwrap();
        let offers = |text: &str| complete(text, text.len(), &Vocabulary::of(&trace));
        let found: Vec<String> = offers("pool=").into_iter().map(|offer| offer.text).collect();
        assert_eq!(found, ["small", "\"(0,1)\"", "large"]);
        let begun = offers("pool=(").remove(0);
        assert_eq!((begun.text.as_str(), begun.what.as_str()), ("\"(0,1)\"", "512 B in 1 block"));
        let filter: Filter = format!("pool={}", begun.text).parse().unwrap();
        assert!(filter.on(&trace).matches(highwater_snapshots::BlockId(0)));
    }

    #[test]
    fn parts_of_paths_are_offered_where_a_part_is_asked_for() {
        assert_eq!(offers("scope~"), ["net", "net.layer", "net.layer.1", "net.layer.0"]);
        assert_eq!(offers("scope="), ["net.layer.1", "net.layer.0"]);
        assert!(offers("stack=").is_empty());
        assert_eq!(offers("stack~back"), ["backward"]);
    }

    #[test]
    fn what_is_taken_is_a_filter_that_reads() {
        assert_eq!(taken("frame~forw", 10), "frame~\"model.py:10 forward\"");
        assert_eq!(taken("frame=\"forw", 11), "frame=\"model.py:10 forward\"");
        assert_eq!(taken("cat size>3", 3), "category= size>3");
        assert_eq!(taken("cat=gradient", 2), "category=gradient");
        assert_eq!(taken("op=lin,conv2d size>3", 6), "op=linear,conv2d size>3");
        assert_eq!(taken("op=linear", 5), "op=linear", "the whole value is replaced");
        for text in ["frame~\"model.py:10 forward\"", "op=linear,conv2d size>3"] {
            assert!(text.parse::<Filter>().is_ok());
        }
    }

    #[test]
    fn any_cursor_in_any_text_is_answered() {
        let vocabulary = vocabulary();
        for text in ["scope~\"ü, größe\" op=", "\"", ",,,=", "size>=,", "é", "=", "op=\"a b"] {
            for cursor in 0..text.len() + 2 {
                for offer in complete(text, cursor, &vocabulary) {
                    let mut text = text.to_owned();
                    text.replace_range(offer.range, &offer.text);
                }
            }
        }
    }
}
