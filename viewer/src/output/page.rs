//! The text output of a command to a terminal with width and colours, to a pipe, or to a test.

use std::io::{self, IsTerminal as _, Write};

use highwater_app::report::{Facts, Table, wrapped};

use highwater_snapshots::line_text::shorten_line;
use highwater_snapshots::shown::{MAX_IN_TABLE, MAX_SHOWN, is_hidden, shown};

use crate::output::terminal::columns;

/// The text output of a command.
pub struct Page<'a> {
    out: &'a mut dyn Write,
    width: Option<usize>,
    is_coloured: bool,
    /// Receives the facts of reports that are printed as text, if set.
    facts: Option<Keep<'a>>,
    /// Returns the text to print instead of a suggested command, if set.
    suggestion: Option<Suggestion<'a>>,
}

type Keep<'a> = &'a mut dyn FnMut(Facts<'_>);

/// Returns the text to print instead of a suggested command; `None` to print nothing.
type Suggestion<'a> = &'a dyn Fn(&str) -> Option<String>;

/// Minimum width to which text is wrapped, in characters.
const MIN_WIDTH: usize = 40;

/// The version of the keys of all JSON objects; incremented when a key is removed or changes its meaning, not when one
/// is added.
pub(crate) const SCHEMA_VERSION: u32 = 1;

/// Returns `facts` preceded by the schema version.
pub fn versioned(facts: Facts<'_>) -> Facts<'_> {
    Facts::new([("schema_version", SCHEMA_VERSION.into())]).and(facts)
}

const PURPOSE: &str = "   ";

const BOLD: &str = "\x1b[1m";
const DIM: &str = "\x1b[2m";
const YELLOW: &str = "\x1b[33m";
const PLAIN: &str = "\x1b[0m";

impl<'a> Page<'a> {
    /// Creates a page of unlimited width without colour, for a pipe or a file.
    pub fn plain(out: &'a mut dyn Write) -> Self {
        Self { out, width: None, is_coloured: false, facts: None, suggestion: None }
    }

    /// Creates a page for standard output. If that is a terminal, the page has its width, and colours unless the
    /// environment disables them (`NO_COLOR`, `TERM=dumb`).
    pub(crate) fn for_stdout(out: &'a mut dyn Write) -> Self {
        if !io::stdout().is_terminal() {
            return Self::plain(out);
        }
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let is_dumb = std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        let is_coloured = !is_set("NO_COLOR") && !is_dumb;
        Self { out, width: Some(columns()), is_coloured, facts: None, suggestion: None }
    }

    /// Creates a page for standard error, without colour. Its width is that of the terminal, if there is one.
    pub(crate) fn for_stderr(out: &'a mut dyn Write) -> Self {
        let width = io::stderr().is_terminal().then(columns);
        Self { out, width, is_coloured: false, facts: None, suggestion: None }
    }

    /// Creates a page like a terminal of `width` columns, without colour.
    pub fn of_width(out: &'a mut dyn Write, width: usize) -> Self {
        Self { out, width: Some(width), is_coloured: false, facts: None, suggestion: None }
    }

    /// Returns the characters per line, if limited.
    pub fn width(&self) -> Option<usize> {
        self.width
    }

    /// Prints the main statement of a report.
    pub fn headline(&mut self, text: &str) -> io::Result<()> {
        self.text(BOLD, text)
    }

    /// Prints plain text, wrapped to the page.
    pub fn line(&mut self, text: &str) -> io::Result<()> {
        self.text("", text)
    }

    /// Prints an empty line. Returns the page for further calls.
    pub fn gap(&mut self) -> io::Result<&mut Self> {
        writeln!(self.out)?;
        Ok(self)
    }

    /// Wraps `text` to the page, each line after `indent` spaces.
    pub fn broken(&self, indent: usize, text: &str) -> Vec<String> {
        let width = self.width.map_or(usize::MAX, |width| width.saturating_sub(indent).max(MIN_WIDTH));
        wrapped(text, width).into_iter().map(|line| " ".repeat(indent) + &line).collect()
    }

    /// Prints a warning about a limit of the report's accuracy.
    pub fn warning(&mut self, text: &str) -> io::Result<()> {
        self.text(YELLOW, text)
    }

    /// Prints a suggestion or a remark. A suggested command stays on one line, so that it can be copied; its purpose
    /// follows on the next line if both do not fit.
    pub fn hint(&mut self, text: &str) -> io::Result<()> {
        if let (Some(suggestion), Some(command)) = (self.suggestion, text.strip_prefix("Next: highwater ")) {
            let (command, purpose) = command.split_once(PURPOSE).unwrap_or((command, ""));
            let Some(next) = suggestion(command) else { return Ok(()) };
            return self.styled(DIM, format!("Next: {next}{PURPOSE}{purpose}").trim_end());
        }
        match text.split_once(PURPOSE).filter(|_| text.starts_with("Next: ")) {
            Some((command, purpose)) if self.is_too_wide(text) => {
                self.styled(DIM, command)?;
                self.broken(2, purpose).iter().try_for_each(|line| self.styled(DIM, line))
            }
            Some(_) => self.styled(DIM, text),
            None => self.text(DIM, text),
        }
    }

    /// Prints a source line, indented by `indent` spaces. Shortens a line that is wider than the page.
    pub fn source_line(&mut self, indent: usize, text: &str) -> io::Result<()> {
        let room = self.width.map_or(MAX_IN_TABLE, |width| width.saturating_sub(indent).max(MIN_WIDTH));
        let line = " ".repeat(indent) + &shorten_line(text, room);
        self.styled("", &line)
    }

    /// Prints a table with dimmed titles.
    pub fn table(&mut self, table: &Table<'_>) -> io::Result<()> {
        let mut style = DIM;
        table.each_line(self.width, |line| self.styled(std::mem::take(&mut style), line))
    }

    /// Prints a JSON object, starting with the schema version, and a line end.
    pub fn json(&mut self, facts: Facts<'_>) -> Result<(), serde_json::Error> {
        serde_json::to_writer_pretty(JsonText(&mut *self.out), &versioned(facts))?;
        writeln!(self.out).map_err(serde_json::Error::io)
    }

    /// Passes on the facts of a report that is printed as text, if [`Self::with_facts`] requested it.
    pub fn keep<'f>(&mut self, facts: impl FnOnce() -> Facts<'f>) {
        if let Some(keep) = &mut self.facts {
            keep(facts());
        }
    }

    /// Calls `keep` with the facts of each report that is printed as text.
    #[must_use]
    pub fn with_facts(self, keep: Keep<'a>) -> Self {
        Self { facts: Some(keep), ..self }
    }

    /// Replaces each suggested command by the result of `suggestion` for its arguments after `highwater`, or omits it.
    #[must_use]
    pub(crate) fn with_suggestions(self, suggestion: Suggestion<'a>) -> Self {
        Self { suggestion: Some(suggestion), ..self }
    }

    /// Returns the writer, for streamed output.
    pub fn raw(&mut self) -> &mut dyn Write {
        self.out
    }

    fn is_too_wide(&self, text: &str) -> bool {
        self.width.is_some_and(|width| text.chars().count() > width)
    }

    /// Writes `text`, wrapped to the page. Wrapped lines have the indentation of the text.
    fn text(&mut self, style: &str, text: &str) -> io::Result<()> {
        if !self.is_too_wide(text) {
            return self.styled(style, text);
        }
        let words = text.trim_start_matches(' ');
        let lines = self.broken(text.len() - words.len(), words);
        lines.iter().try_for_each(|line| self.styled(style, line))
    }

    /// Writes one line. Replaces control characters and limits its length, because the line may contain names from
    /// files.
    fn styled(&mut self, style: &str, text: &str) -> io::Result<()> {
        let text = shown(text, MAX_SHOWN);
        if self.is_coloured && !style.is_empty() {
            writeln!(self.out, "{style}{text}{PLAIN}")
        } else {
            writeln!(self.out, "{text}")
        }
    }
}

/// A JSON writer that escapes characters in strings that must not reach a terminal.
pub(crate) struct JsonText<W>(pub W);

impl<W: Write> Write for JsonText<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Strings are written whole, and only they have such characters; the line breaks of JSON are outside of them.
        let is_kept = |letter: char| letter == '\n' || !is_hidden(letter);
        match std::str::from_utf8(bytes) {
            Ok(text) if !text.chars().all(is_kept) => {
                for letter in text.chars() {
                    if is_kept(letter) {
                        write!(self.0, "{letter}")?;
                    } else {
                        write!(self.0, "\\u{:04x}", u32::from(letter))?;
                    }
                }
            }
            _ => self.0.write_all(bytes)?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use highwater_app::report::Column;

    use super::*;

    fn at_width(width: usize, print: impl FnOnce(&mut Page<'_>) -> io::Result<()>) -> Vec<String> {
        let mut out = Vec::new();
        print(&mut Page::of_width(&mut out, width)).unwrap();
        String::from_utf8(out).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn every_kind_of_text_is_broken_to_the_page_and_keeps_its_indentation() {
        let text = "  ".to_owned() + &"some words ".repeat(20);
        let kinds: [fn(&mut Page<'_>, &str) -> io::Result<()>; 4] = [
            |page, text| page.headline(text),
            |page, text| page.line(text),
            |page, text| page.warning(text),
            |page, text| page.hint(text),
        ];
        for kind in kinds {
            let lines = at_width(60, |page| kind(page, text.trim_end()));
            assert!(lines.len() > 3, "{lines:?}");
            assert!(lines.iter().all(|line| line.starts_with("  some") || line.starts_with("  words")), "{lines:?}");
            assert!(lines.iter().all(|line| line.chars().count() <= 60), "{lines:?}");
        }
        let lines = at_width(60, |page| page.source_line(2, &format!("/home/{}/net.py:12 f", "folder/".repeat(20))));
        assert!(lines.len() == 1 && lines[0].chars().count() <= 60 && lines[0].contains("net.py:12"), "{lines:?}");
    }

    #[test]
    fn a_command_to_try_stays_on_one_line() {
        let command = format!("Next: highwater peak {}.snap --by frame", "long".repeat(15));
        let lines = at_width(60, |page| page.hint(&format!("{command}   for the lines of code behind it")));
        assert_eq!(lines, [command.as_str(), "  for the lines of code behind it"]);
        let short = "Next: highwater peak a.snap   for more";
        assert_eq!(at_width(60, |page| page.hint(short)), [short]);
    }

    #[test]
    fn json_escapes_what_a_terminal_would_obey_and_loses_nothing() {
        let names = ["a\u{1b}b", "c\u{9b}d\u{7f}", "e\u{202e}f", "größe\n"];
        let mut out = Vec::new();
        Page::plain(&mut out).json(Facts::new([("names", names.to_vec().into())])).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("\\u009b") && text.contains("\\u202e") && text.contains("größe"), "{text}");
        let read: serde_json::Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&read["schema_version"], &read["names"]), (&SCHEMA_VERSION.into(), &names.to_vec().into()));
    }

    #[test]
    fn control_characters_in_names_do_not_reach_the_terminal() {
        let mut out = Vec::new();
        let mut page = Page { out: &mut out, width: None, is_coloured: true, facts: None, suggestion: None };
        page.headline("a\x1b[2Jb").unwrap();
        page.line("c\x07\u{9b}d").unwrap();
        page.table(&Table::new(1, [Column::text("op", "op", |_| "e\x1b]0;title\x07f")])).unwrap();
        let text = String::from_utf8(out).unwrap();
        let own = text.replace(BOLD, "").replace(DIM, "").replace(PLAIN, "").replace('\n', "");
        assert_eq!(own, "a\u{fffd}[2Jbc\u{fffd}\u{fffd}d  op  e\u{fffd}]0;title\u{fffd}f");
    }
}
