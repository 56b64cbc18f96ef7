//! Quotes text as one word of a line, and parses it back.

/// Formats `text` as one word: unchanged, or in double quotes if necessary.
pub(crate) fn quoted(text: &str) -> String {
    let is_word = !text.is_empty() && !text.contains(|c: char| c.is_whitespace() || c == '"');
    if is_word {
        return text.to_owned();
    }
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n").replace('\r', "\\r");
    format!("\"{escaped}\"")
}

/// Splits `line` after its first word or quoted text, and returns that text and the rest.
pub(crate) fn take_text(line: &str) -> Result<(String, &str), String> {
    let line = line.trim_start();
    let Some(inner) = line.strip_prefix('"') else {
        let end = line.find(char::is_whitespace).unwrap_or(line.len());
        return match line.split_at(end) {
            ("", _) => Err("a name is missing".to_owned()),
            (word, rest) => Ok((word.to_owned(), rest.trim_start())),
        };
    };
    let mut text = String::new();
    let mut characters = inner.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Ok((text, inner[at + 1..].trim_start())),
            '\\' => text.push(match characters.next() {
                Some((_, 'n')) => '\n',
                Some((_, 'r')) => '\r',
                Some((_, other)) => other,
                None => break,
            }),
            other => text.push(other),
        }
    }
    Err(format!("{line} lacks its closing quote"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_is_one_word_and_reads_back() {
        for text in ["", "forward", "## step 4 ##", "a\"b", "\\", "two\nlines\r", "\"", "tab\there", "Größe"] {
            let line = format!("{}  rest", quoted(text));
            assert_eq!(take_text(&line), Ok((text.to_owned(), "rest")), "{line}");
        }
        assert_eq!(quoted("ProfilerStep#7"), "ProfilerStep#7");
        assert!(take_text("  ").is_err() && take_text("\"open").is_err() && take_text("\"open\\").is_err());
    }
}
