//! Shell: commands to try next, written so that they can be pasted.

use std::path::Path;

use crate::args::is_stdin;

/// `Next: highwater peak step.snap --by op,scope   for …`.
pub fn next_command(command: &[&str], file: &Path, options: &[&str], what_for: &str) -> String {
    let file = if is_stdin(file) { "FILE".to_owned() } else { quoted(&file.display().to_string()) };
    let words = command.iter().copied().chain([file.as_str()]).chain(options.iter().copied());
    let words: Vec<&str> = words.collect();
    format!("Next: highwater {}   {what_for}", words.join(" "))
}

/// A word as a shell takes it: in single quotes where it has more than plain letters.
pub fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || "-_./:=,+@%".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_names_with_spaces_can_be_pasted() {
        let next = next_command(&["peak"], Path::new("my run's.snap"), &["--top", "5"], "for more");
        assert_eq!(next, r"Next: highwater peak 'my run'\''s.snap' --top 5   for more");
        assert!(next_command(&["peak"], Path::new("-"), &[], "").contains("peak FILE"));
    }
}
