//! Messages on standard error.

use std::io::{IsTerminal as _, Write as _};

use highwater_app::report::wrapped;
use highwater_snapshots::shown::{MAX_SHOWN, shown};

use super::terminal::columns;

const CONTINUATION: &str = "  ";

/// Prints `text` to standard error, wrapped on a terminal. A failure to print cannot be reported.
pub(crate) fn print(text: &str) {
    let mut out = std::io::stderr().lock();
    let width = if out.is_terminal() { columns() } else { usize::MAX };
    for line in text.lines().flat_map(|line| lines_within(line, width)) {
        let _ = writeln!(out, "{}", shown(&line, MAX_SHOWN));
    }
}

/// Splits `line` into lines of at most `width` characters, unless words are longer. Lines after the first are indented.
fn lines_within(line: &str, width: usize) -> Vec<String> {
    if line.chars().count() <= width {
        return vec![line.to_owned()];
    }
    let mut lines = wrapped(line, width.saturating_sub(CONTINUATION.len()));
    lines.iter_mut().skip(1).for_each(|line| line.insert_str(0, CONTINUATION));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_wrapped_between_words_and_a_short_one_is_left_as_it_is() {
        assert_eq!(lines_within("  libx11-6  libegl1", 100), ["  libx11-6  libegl1"]);
        let long = "error: unknown scenario 'perpetual-motion'; the scenarios are vit-l-16, tiny-nerf, fcn";
        let lines = lines_within(long, 40);
        assert!(lines.len() == 3 && lines.iter().all(|line| line.chars().count() <= 40), "{lines:?}");
        assert!(lines[1..].iter().all(|line| line.starts_with("  ")), "{lines:?}");
        assert_eq!(lines.iter().map(|line| line.trim_start()).collect::<Vec<_>>().join(" "), long);
    }
}
