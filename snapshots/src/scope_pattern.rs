//! Patterns of module paths, such as `layers.{0-9}.mlp`, which are used to select modules for activation checkpointing.

use std::fmt;
use std::str::FromStr;

/// A pattern that matches whole module paths.
///
/// A `*` matches any part of one name, and braces match one of several names or numbers:
///
/// | pattern | matches |
/// |---|---|
/// | `layers.3` | this module |
/// | `layers.*` | each child of `layers` |
/// | `layers.*.mlp` | the `mlp` of each child |
/// | `layers.{0-9,12}` | the children `0` to `9` and `12` |
/// | `layer{1-4}.{conv1,bn1}` | both modules of each of the four layers |
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopePattern {
    text: Box<str>,
    tokens: Box<[Token]>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Text(Box<str>),
    /// `*`, which matches any text within one name.
    Star,
    OneOf(Box<[Choice]>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Choice {
    Name(Box<str>),
    /// All numbers from the first to the last, inclusive.
    Range(u64, u64),
}

impl ScopePattern {
    /// Returns whether the pattern matches the whole of `path`.
    pub fn matches(&self, path: &str) -> bool {
        matches(&self.tokens, path)
    }

    /// Returns patterns that together match exactly `paths`, by merging paths that differ only in their last number, so
    /// that `layers.0`, `layers.1` and `layers.3` become `layers.{0-1,3}`. The patterns are ordered by the first path
    /// of each.
    pub fn joined<S: AsRef<str>>(paths: &[S]) -> Vec<Self> {
        let mut groups: Vec<([&str; 2], Vec<u64>)> = Vec::new();
        let mut patterns: Vec<Result<usize, &str>> = Vec::new();
        for path in paths.iter().map(AsRef::as_ref) {
            let Some((around, number)) = last_number(path) else {
                patterns.push(Err(path));
                continue;
            };
            match groups.iter_mut().find(|(known, _)| *known == around) {
                Some((_, numbers)) => numbers.push(number),
                None => {
                    patterns.push(Ok(groups.len()));
                    groups.push((around, vec![number]));
                }
            }
        }
        let text = |pattern: Result<usize, &str>| match pattern {
            Ok(group) => {
                let ([before, after], numbers) = &groups[group];
                format!("{before}{}{after}", number_text(numbers.clone()))
            }
            Err(path) => path.to_owned(),
        };
        patterns.into_iter().filter_map(|pattern| text(pattern).parse().ok()).collect()
    }
}

/// Splits a path around its last name that is a number, such as `layers.3.mlp` into `layers.`, `.mlp` and 3.
fn last_number(path: &str) -> Option<([&str; 2], u64)> {
    let mut end = path.len();
    loop {
        let start = path[..end].rfind('.').map_or(0, |dot| dot + 1);
        let name = &path[start..end];
        if let Some(number) = canonical_number(name) {
            return Some(([&path[..start], &path[end..]], number));
        }
        end = start.checked_sub(1)?;
    }
}

/// Parses a name that is a number without a sign or leading zeros.
fn canonical_number(name: &str) -> Option<u64> {
    let is_canonical = name.bytes().all(|byte| byte.is_ascii_digit()) && (name.len() == 1 || !name.starts_with('0'));
    name.parse().ok().filter(|_| is_canonical)
}

/// Returns the pattern for some numbers, such as `3`, `{0-9}` or `{0-2,5}`.
fn number_text(mut numbers: Vec<u64>) -> String {
    numbers.sort_unstable();
    numbers.dedup();
    let runs = numbers.chunk_by(|left, right| left + 1 == *right).map(|run| match run {
        [first, .., last] => format!("{first}-{last}"),
        _ => run[0].to_string(),
    });
    match (&numbers[..], runs.collect::<Vec<_>>().join(",")) {
        ([one], _) => one.to_string(),
        (_, runs) => format!("{{{runs}}}"),
    }
}

fn matches(tokens: &[Token], text: &str) -> bool {
    let Some((token, rest)) = tokens.split_first() else {
        return text.is_empty();
    };
    match token {
        Token::Text(literal) => text.strip_prefix(&**literal).is_some_and(|text| matches(rest, text)),
        Token::Star => {
            let name = text.find('.').unwrap_or(text.len());
            let ends = text[..name].char_indices().map(|(end, _)| end).chain([name]);
            ends.into_iter().any(|end| matches(rest, &text[end..]))
        }
        Token::OneOf(choices) => choices.iter().any(|choice| match choice {
            Choice::Name(name) => text.strip_prefix(&**name).is_some_and(|text| matches(rest, text)),
            Choice::Range(first, last) => {
                let digits = text.bytes().take_while(u8::is_ascii_digit).count();
                let number = canonical_number(&text[..digits]).filter(|_| digits > 0);
                number.is_some_and(|number| (*first..=*last).contains(&number)) && matches(rest, &text[digits..])
            }
        }),
    }
}

impl FromStr for ScopePattern {
    type Err = ScopePatternError;

    fn from_str(text: &str) -> Result<Self, ScopePatternError> {
        let fail = |reason| Err(ScopePatternError { pattern: text.into(), reason });
        if text.is_empty() {
            return fail("it is empty");
        }
        if text.split('.').any(str::is_empty) {
            return fail("a name between dots is empty");
        }
        let mut tokens = Vec::new();
        let mut rest = text;
        while let Some(special) = rest.find(['*', '{', '}']) {
            let (literal, from) = rest.split_at(special);
            if !literal.is_empty() {
                tokens.push(Token::Text(literal.into()));
            }
            match from.as_bytes()[0] {
                b'*' => {
                    if tokens.last() != Some(&Token::Star) {
                        tokens.push(Token::Star);
                    }
                    rest = &from[1..];
                }
                b'{' => {
                    let Some(end) = from.find('}') else {
                        return fail("a '{' is not closed");
                    };
                    let choices: Option<Box<[Choice]>> = from[1..end].split(',').map(choice).collect();
                    match choices {
                        Some(choices) => tokens.push(Token::OneOf(choices)),
                        None => return fail("expected names or ranges between braces, as in {0-9,12}"),
                    }
                    rest = &from[end + 1..];
                }
                _ => return fail("a '}' has no '{'"),
            }
        }
        if !rest.is_empty() {
            tokens.push(Token::Text(rest.into()));
        }
        Ok(Self { text: text.into(), tokens: tokens.into() })
    }
}

fn choice(text: &str) -> Option<Choice> {
    let text = text.trim();
    if let Some((first, last)) = text.split_once('-')
        && let (Ok(first), Ok(last)) = (first.parse(), last.parse())
    {
        return (first <= last).then_some(Choice::Range(first, last));
    }
    let is_name = !text.is_empty() && !text.contains(['{', '*', '.']);
    is_name.then(|| Choice::Name(text.into()))
}

impl fmt::Display for ScopePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

/// The error for a pattern that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScopePatternError {
    /// The pattern as given by the user.
    pub pattern: Box<str>,
    /// The error in the pattern.
    pub reason: &'static str,
}

impl fmt::Display for ScopePatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pattern, reason } = self;
        write!(
            f,
            "invalid module pattern '{pattern}': {reason}; write a path such as layers.3, layers.*.mlp or layers.{{0-9}}"
        )
    }
}

impl std::error::Error for ScopePatternError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn matched(pattern: &str, paths: &[&str]) -> Vec<bool> {
        let pattern: ScopePattern = pattern.parse().unwrap();
        paths.iter().map(|path| pattern.matches(path)).collect()
    }

    #[test]
    fn a_pattern_matches_whole_paths() {
        assert_eq!(
            matched("layers.1", &["layers.1", "layers.10", "layers.1.mlp", "layers"]),
            [true, false, false, false]
        );
        assert_eq!(matched("layers.*", &["layers.1", "layers.x", "layers.1.mlp"]), [true, true, false]);
        assert_eq!(matched("*.mlp", &["a.mlp", "mlp", "a.b.mlp"]), [true, false, false]);
        assert_eq!(matched("h.*.c_*", &["h.0.c_fc", "h.11.c_", "h.1.attn"]), [true, true, false]);
        let numbers = ["l.0", "l.3", "l.9", "l.10", "l.12", "l.03", "l.3a"];
        assert_eq!(matched("l.{0-9,12}", &numbers), [true, true, true, false, true, false, false]);
        assert_eq!(
            matched("layer{1-4}.{conv1,bn1}", &["layer1.bn1", "layer4.conv1", "layer5.bn1"]),
            [true, true, false]
        );
    }

    #[test]
    fn an_invalid_pattern_is_reported_with_the_reason() {
        for (text, reason) in [
            ("", "empty"),
            ("a..b", "between dots"),
            ("a.{0-9", "not closed"),
            ("a.}", "no '{'"),
            ("a.{9-0}", "between braces"),
            ("a.{}", "between braces"),
            ("a.{b.c}", "between braces"),
        ] {
            let error = text.parse::<ScopePattern>().unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn paths_are_joined_into_the_patterns_that_match_exactly_them() {
        let joined = |paths: &[&str]| ScopePattern::joined(paths).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(joined(&["h.0", "h.1", "h.2", "h.4"]), ["h.{0-2,4}"]);
        assert_eq!(joined(&["h.3"]), ["h.3"]);
        assert_eq!(joined(&["h.0.mlp", "h.0.attn", "h.1.mlp", "ln_f"]), ["h.{0-1}.mlp", "h.0.attn", "ln_f"]);
        assert_eq!(joined(&["h.2", "h.1", "h.2"]), ["h.{1-2}"]);
        assert!(joined(&[]).is_empty());
        for paths in [&["h.0", "h.1", "h.3"][..], &["a.7.b.c", "a.8.b.c"]] {
            let patterns = ScopePattern::joined(paths);
            assert!(paths.iter().all(|path| patterns.iter().any(|pattern| pattern.matches(path))), "{patterns:?}");
        }
    }
}
