//! Makes text from files safe to display: on one line, of limited length, and without control characters.

use std::borrow::Cow;

/// Maximum number of characters of a name in a table; JSON output is not shortened.
pub const MAX_IN_TABLE: usize = 400;

/// Maximum number of characters of any displayed text; JSON output is not shortened.
pub const MAX_SHOWN: usize = 4096;

/// Replaces characters that are not displayed.
const REPLACEMENT: &str = "\u{fffd}";

/// Returns whether a character would end the line, control a terminal, or change the direction of the surrounding text.
pub fn is_hidden(letter: char) -> bool {
    let changes_direction = matches!(
        letter,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
    );
    letter.is_control() || changes_direction || matches!(letter, '\u{2028}' | '\u{2029}')
}

/// Replaces the characters of `text` that must not be displayed, including line breaks.
pub fn printable(text: &str) -> Cow<'_, str> {
    if text.contains(is_hidden) { Cow::Owned(text.replace(is_hidden, REPLACEMENT)) } else { Cow::Borrowed(text) }
}

/// Returns `text`, made [`printable`]. Of a text longer than `most` characters, returns the first `most - 1` and an
/// ellipsis.
pub fn shown(text: &str, most: usize) -> Cow<'_, str> {
    match text.char_indices().nth(most) {
        Some(_) => {
            let end = text.char_indices().nth(most.saturating_sub(1)).map_or(0, |(end, _)| end);
            Cow::Owned(format!("{}…", printable(&text[..end])))
        }
        None => printable(text),
    }
}

/// Returns a text as a printable spreadsheet cell, preceded by an apostrophe if it would be a formula.
pub fn spreadsheet_text(text: &str) -> Cow<'_, str> {
    const BEGIN_FORMULAS: [char; 8] = ['=', '+', '-', '@', '＝', '＋', '－', '＠'];
    let text = printable(text);
    let is_formula = text.chars().nth(1).is_some() && text.starts_with(BEGIN_FORMULAS);
    if is_formula { Cow::Owned(format!("'{text}")) } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_change_the_text_around_them_are_replaced() {
        for hidden in
            ["\n", "\r", "\t", "\u{1b}", "\u{7f}", "\u{9b}", "\u{2028}", "\u{200f}", "\u{202e}", "\u{2066}", "\u{2069}"]
        {
            assert_eq!(printable(&format!("a{hidden}b")), "a\u{fffd}b", "{hidden:?}");
        }
        for text in ["größe", "模型.forward", "a\u{200d}b", "שלום"] {
            assert!(matches!(printable(text), Cow::Borrowed(same) if same == text));
        }
    }

    #[test]
    fn a_long_name_is_cut_between_characters() {
        assert_eq!(shown("größe", 5), "größe");
        assert_eq!(shown("größe", 4), "grö…");
        assert_eq!(shown("a\nb", 2), "a…");
        assert_eq!(shown("ab", 0), "…");
        assert_eq!(shown(&"ü".repeat(10 << 20), MAX_SHOWN).chars().count(), MAX_SHOWN);
    }

    #[test]
    fn a_text_is_never_a_formula_of_a_spreadsheet() {
        for text in ["=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(1)", "＝1"] {
            assert_eq!(spreadsheet_text(text), format!("'{text}"));
        }
        assert_eq!(spreadsheet_text("\t=1"), "\u{fffd}=1");
        assert_eq!(spreadsheet_text("a=1"), "a=1");
        assert_eq!(spreadsheet_text("-"), "-", "no value");
    }
}
