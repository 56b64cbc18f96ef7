//! Wraps text between words.

use std::borrow::Cow;

/// Splits `text` into lines of at most `width` characters, between words, but never between a number and its unit.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    let mut words = text.split(' ').peekable();
    while let Some(word) = words.next() {
        let unit = words.next_if(|next| is_number(word) && is_unit(next));
        let word = unit.map_or_else(|| Cow::Borrowed(word), |unit| Cow::Owned(format!("{word} {unit}")));
        let line = lines.last_mut().expect("there is no line");
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(word.into_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(&word);
        }
    }
    lines
}

/// Returns whether `word` is a number, such as `5.58`, `(1,234` or `−3`.
fn is_number(word: &str) -> bool {
    let digits = word.trim_start_matches(|c: char| "([+−-~".contains(c));
    digits.starts_with(|c: char| c.is_ascii_digit()) && digits.chars().all(|c| c.is_ascii_digit() || ".,".contains(c))
}

/// Returns whether `word` is a unit, with punctuation, such as `GiB` or `ms).`.
fn is_unit(word: &str) -> bool {
    const UNITS: [&str; 12] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB", "ns", "µs", "ms", "s", "%"];
    UNITS.contains(&word.trim_end_matches(|c: char| ".,;:!?)]".contains(c)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_text_breaks_between_words_and_loses_none() {
        let text = "one two three four five";
        assert_eq!(wrapped(text, 9), ["one two", "three", "four five"]);
        assert_eq!(wrapped(text, 100), [text]);
        assert_eq!(wrapped("incomprehensibilities", 5), ["incomprehensibilities"]);
    }

    #[test]
    fn a_number_keeps_its_unit() {
        assert_eq!(wrapped("needs 260 MiB, or more", 10), ["needs", "260 MiB,", "or more"]);
        assert_eq!(wrapped("of (5.58 GiB) of 6 GiB", 9), ["of", "(5.58 GiB)", "of 6 GiB"]);
        assert_eq!(wrapped("in 11 steps", 5), ["in 11", "steps"], "only units belong to numbers");
    }
}
