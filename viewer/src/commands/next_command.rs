//! Suggests next commands, quoted for a shell.

use std::path::{Path, PathBuf};

use clap::CommandFactory as _;
use highwater_app::files::is_stdin;

use crate::args::FilesAndOptions;
use crate::commands::Arguments;

impl FilesAndOptions {
    /// Suggests a command for the same files, such as `Next: highwater peak step.snap --by op,scope   for …`. The
    /// command has `options`, and the current options that it accepts unless `options` overrides them.
    pub(crate) fn next(&self, command: &str, options: &[&str], what_for: &str) -> String {
        let name =
            |file: &PathBuf| if is_stdin(file) { "FILE".to_owned() } else { quoted(&file.display().to_string()) };
        let mut words = vec![command.to_owned()];
        words.extend(self.files.iter().map(name));
        words.extend(options.iter().map(|word| (*word).to_owned()));
        for (option, value) in &self.options {
            let word = format!("--{option}");
            if !options.contains(&word.as_str()) && takes(command, option, value) {
                words.extend([word, quoted(value)]);
            }
        }
        format!("Next: highwater {}   {what_for}", words.join(" "))
    }
}

/// Returns the path relative to the current folder if the file is inside that folder, otherwise the path unchanged.
pub(crate) fn shortened(file: &Path) -> PathBuf {
    let here = std::env::current_dir().ok();
    let inner = here.as_deref().and_then(|here| file.strip_prefix(here).ok());
    inner.unwrap_or(file).to_owned()
}

/// Returns whether `command` has `option` and accepts `value` for it.
fn takes(command: &str, option: &str, value: &str) -> bool {
    let all = Arguments::command();
    let Some(command) = all.find_subcommand(command) else { return false };
    command.get_arguments().find(|argument| argument.get_long() == Some(option)).is_some_and(|argument| {
        let possible = argument.get_possible_values();
        possible.is_empty() || possible.iter().any(|one| one.matches(value, false))
    })
}

/// Quotes a word for a shell, unless it consists of plain characters.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// Splits text into words, which may be quoted for a shell.
pub(crate) fn unquoted(text: &str) -> Vec<String> {
    let (mut words, mut word, mut is_quoted) = (Vec::new(), None::<String>, false);
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '\'' => {
                is_quoted = !is_quoted;
                word.get_or_insert_default();
            }
            '\\' if !is_quoted => word.get_or_insert_default().extend(letters.next()),
            ' ' if !is_quoted => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::commands::Command;

    #[test]
    fn file_names_with_spaces_can_be_pasted() {
        let next = FilesAndOptions::of(Path::new("my run's.snap")).next("peak", &["--top", "5"], "for more");
        assert_eq!(next, r"Next: highwater peak 'my run'\''s.snap' --top 5   for more");
        assert!(FilesAndOptions::of(Path::new("-")).next("peak", &[], "").contains("peak FILE"));
        let words = ["my run's.snap", "", "a", "'", "\\ b"];
        assert_eq!(unquoted(&words.map(quoted).join("  ")), words);
    }

    #[test]
    fn given_options_are_carried_on_where_the_next_command_takes_them() {
        let words =
            "highwater peak a.snap --device 1 --at 12 --metric reserved --where size>1 --categories none --top 3";
        let Some(Command::Peak(peak)) = Arguments::try_parse_from(words.split(' ')).unwrap().command else { panic!() };
        let next = |command: &str, options: &[&str]| peak.given().next(command, options, "");
        let same = "--device 1 --at 12 --metric reserved --where 'size>1' --categories none";
        assert_eq!(next("peak", &["--by", "frame"]).trim(), format!("Next: highwater peak a.snap --by frame {same}"));
        let explain = next("explain", &[]);
        let expected = "Next: highwater explain a.snap --device 1 --where 'size>1' --categories none";
        assert_eq!(explain.trim(), expected, "it has no --at, and its totals are of blocks");
        assert!(next("peak", &["--at", "end"]).contains("--at end --device 1 --metric"), "what is stated counts");
    }
}
