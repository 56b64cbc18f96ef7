//! Page: where a command's answer is written: a terminal of some width and colour, a pipe, or a test.

use std::borrow::Cow;
use std::io::{self, IsTerminal as _, Write};

use serde::Serialize;

use super::table::Table;

/// An answer on its way out.
pub struct Page<'a> {
    out: &'a mut dyn Write,
    /// Characters in a line, where that is limited.
    width: Option<usize>,
    is_coloured: bool,
}

/// The width of a terminal that does not say how wide it is.
const USUAL_WIDTH: usize = 80;

const BOLD: &str = "\x1b[1m";
const DIM: &str = "\x1b[2m";
const YELLOW: &str = "\x1b[33m";
const PLAIN: &str = "\x1b[0m";

impl<'a> Page<'a> {
    /// Without colour and as wide as needed: a pipe, a file.
    pub fn plain(out: &'a mut dyn Write) -> Self {
        Self { out, width: None, is_coloured: false }
    }

    /// As standard output is now: its width, and colours if it is a terminal and the environment allows them
    /// (`NO_COLOR`, `TERM=dumb`).
    pub fn for_stdout(out: &'a mut dyn Write) -> Self {
        if !io::stdout().is_terminal() {
            return Self::plain(out);
        }
        let known = terminal_size::terminal_size().map(|(width, _)| usize::from(width.0));
        let set = || std::env::var("COLUMNS").ok()?.parse().ok().filter(|width| *width > 0);
        let width = known.or_else(set).or(Some(USUAL_WIDTH));
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { out, width, is_coloured: !is_set("NO_COLOR") && !is_dumb }
    }

    /// Characters in a line, where that is limited.
    pub fn width(&self) -> Option<usize> {
        self.width
    }

    /// The answer, in a sentence.
    pub fn headline(&mut self, text: &str) -> io::Result<()> {
        self.broken(0, text).iter().try_for_each(|line| self.styled(BOLD, line))
    }

    /// A line of plain text, broken between words where it is wider than the page; an indented one stays whole.
    pub fn line(&mut self, text: &str) -> io::Result<()> {
        if text.starts_with(' ') {
            return writeln!(self.out, "{}", printable(text));
        }
        self.broken(0, text).iter().try_for_each(|line| writeln!(self.out, "{}", printable(line)))
    }

    /// An empty line.
    pub fn gap(&mut self) -> io::Result<()> {
        writeln!(self.out)
    }

    /// `text` in lines that fit the page, broken between words, each after `indent` spaces.
    pub fn broken(&self, indent: usize, text: &str) -> Vec<String> {
        let width = self.width.map_or(usize::MAX, |width| width.saturating_sub(indent).max(40));
        wrapped(text, width).into_iter().map(|line| " ".repeat(indent) + &line).collect()
    }

    /// Something that limits how far the answer can be trusted.
    pub fn warning(&mut self, text: &str) -> io::Result<()> {
        if text.starts_with(' ') {
            return self.styled(YELLOW, text);
        }
        self.broken(0, text).iter().try_for_each(|line| self.styled(YELLOW, line))
    }

    /// What to ask next.
    pub fn hint(&mut self, text: &str) -> io::Result<()> {
        self.styled(DIM, text)
    }

    /// A table, its titles dimmed.
    pub fn table(&mut self, table: &Table) -> io::Result<()> {
        for (position, line) in table.lines(self.width).iter().enumerate() {
            if position == 0 {
                self.styled(DIM, line)?;
            } else {
                self.line(line)?;
            }
        }
        Ok(())
    }

    /// One JSON object and a line end.
    pub fn json(&mut self, value: &impl Serialize) -> Result<(), serde_json::Error> {
        serde_json::to_writer_pretty(&mut *self.out, value)?;
        writeln!(self.out).map_err(serde_json::Error::io)
    }

    /// The writer itself, for what is streamed.
    pub fn raw(&mut self) -> &mut dyn Write {
        self.out
    }

    fn styled(&mut self, style: &str, text: &str) -> io::Result<()> {
        let text = printable(text);
        if self.is_coloured { writeln!(self.out, "{style}{text}{PLAIN}") } else { writeln!(self.out, "{text}") }
    }
}

/// `text` in lines of at most `width` characters, broken between words.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("there is always one");
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
            lines.push(word.to_owned());
        } else {
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
    }
    lines
}

/// A line without control characters: names come from files, and must not move the cursor or change a terminal.
pub fn printable(line: &str) -> Cow<'_, str> {
    if line.contains(char::is_control) {
        Cow::Owned(line.replace(char::is_control, "\u{fffd}"))
    } else {
        Cow::Borrowed(line)
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::Column;
    use super::*;

    #[test]
    fn long_text_breaks_between_words_and_loses_none() {
        let text = "one two three four five";
        assert_eq!(wrapped(text, 9), ["one two", "three", "four five"]);
        assert_eq!(wrapped(text, 100), [text]);
        assert_eq!(wrapped("incomprehensibilities", 5), ["incomprehensibilities"]);
    }

    #[test]
    fn control_characters_in_names_do_not_reach_the_terminal() {
        let mut out = Vec::new();
        let mut page = Page { out: &mut out, width: None, is_coloured: true };
        page.headline("a\x1b[2Jb").unwrap();
        page.line("c\x07\u{9b}d").unwrap();
        let mut table = Table::new(vec![Column::text("op")]);
        table.push(vec!["e\x1b]0;title\x07f".to_owned()]);
        page.table(&table).unwrap();
        let text = String::from_utf8(out).unwrap();
        let own = text.replace(BOLD, "").replace(DIM, "").replace(PLAIN, "").replace('\n', "");
        assert_eq!(own, "a\u{fffd}[2Jbc\u{fffd}\u{fffd}d  op  e\u{fffd}]0;title\u{fffd}f");
    }
}
