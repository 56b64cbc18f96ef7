//! Reads a file of user-defined category rules, which take precedence over the built-in rules.
//!
//! One rule per line, `CATEGORY if CONDITIONS`; the first rule whose conditions a block meets determines its category.
//! Conditions are those of [`Filter`], all of which must hold. `#` begins a comment; `builtin off` disables the
//! built-in rules.
//!
//! ```text
//! # Adam's state, even if a wrapper keeps it
//! optimizer_state if stack~adam.py lifetime=kept
//! activation if frame~model.py:88 size>=1MiB
//! unknown if scope~debug
//! builtin off
//! ```

use crate::Filter;
use highwater_snapshots::Category;
use highwater_snapshots::error::{Error, Result};
use highwater_snapshots::trace::Trace;

/// Rules for categories that were not recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rules {
    own: Vec<(Category, Filter)>,
    uses_builtin: bool,
}

impl Default for Rules {
    /// Returns only the built-in rules.
    fn default() -> Self {
        Self { own: Vec::new(), uses_builtin: true }
    }
}

impl std::str::FromStr for Rules {
    type Err = Error;

    /// Parses a rules file. Errors name the line and the expected text.
    fn from_str(text: &str) -> Result<Self> {
        let mut rules = Self::default();
        // Windows editors add a byte order mark.
        for (index, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
            rules.take(without_comment(line).trim()).map_err(|what| Error::Text { line: index + 1, what })?;
        }
        Ok(rules)
    }
}

impl Rules {
    fn take(&mut self, line: &str) -> Result<(), String> {
        let mut words = line.split_whitespace();
        match (words.next(), words.next(), words.next()) {
            (None, ..) => Ok(()),
            (Some("builtin"), Some("off"), None) => {
                self.uses_builtin = false;
                Ok(())
            }
            (Some("builtin"), ..) => Err(format!("'{line}': expected 'builtin off'")),
            (Some(name), Some("if"), Some(_)) => {
                let category = Category::from_name(name).ok_or_else(|| no_category(name))?;
                let conditions = after_words(line, 2);
                let filter: Filter = conditions.parse()?;
                if filter.is_empty() {
                    return Err(format!(
                        "'{line}': missing condition after 'if'; write one, such as {name} if size>=1MiB"
                    ));
                }
                self.own.push((category, filter));
                Ok(())
            }
            (Some(name), ..) => {
                Category::from_name(name).ok_or_else(|| no_category(name))?;
                Err(format!("'{line}': expected 'if' and conditions after '{name}', such as {name} if size>=1MiB"))
            }
        }
    }

    /// Whether the built-in rules are also used.
    pub(crate) fn uses_builtin(&self) -> bool {
        self.uses_builtin
    }

    /// Whether only the built-in rules are used.
    pub(crate) fn is_builtin_alone(&self) -> bool {
        self.own.is_empty() && self.uses_builtin
    }

    /// Returns the category of the first user-defined rule that each block meets, by row of the block.
    pub(super) fn own_categories(&self, trace: &Trace) -> Vec<Option<Category>> {
        let mut filters: Vec<_> = self.own.iter().map(|(category, filter)| (*category, filter.on(trace))).collect();
        let first = |id| filters.iter_mut().find_map(|(category, filter)| filter.matches(id).then_some(*category));
        trace.blocks.ids().map(first).collect()
    }
}

/// Returns the text of `line` after the first `count` words, which may be separated by any white space.
fn after_words(line: &str, count: usize) -> &str {
    (0..count)
        .fold(line.trim(), |rest, _| rest.split_once(char::is_whitespace).map_or("", |(_, rest)| rest.trim_start()))
}

fn no_category(name: &str) -> String {
    let names: Vec<&str> = Category::ALL.iter().map(|category| category.name()).collect();
    format!("unknown category '{name}': expected one of {}, then 'if' and conditions", names.join(", "))
}

/// The part of a line before a `#` that is outside double quotes, at the start or after a space.
fn without_comment(line: &str) -> &str {
    let mut is_quoted = false;
    let mut is_after_space = true;
    for (position, c) in line.char_indices() {
        match c {
            '"' => is_quoted = !is_quoted,
            '#' if !is_quoted && is_after_space => return &line[..position],
            _ => {}
        }
        is_after_space = c.is_whitespace();
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_read_with_comments_and_blank_lines() {
        let text = "\u{feff}# mine\n\nactivation if size>=1MiB  # large\nunknown if stack~\"a #b\"\r\nbuiltin off\n";
        let rules: Rules = text.parse().unwrap();
        assert_eq!(rules.own.len(), 2);
        assert_eq!(rules.own[1].1, "stack~\"a #b\"".parse().unwrap());
        assert!(!rules.uses_builtin());
        assert!("# nothing".parse::<Rules>().unwrap().is_builtin_alone());
    }

    #[test]
    fn any_white_space_separates_the_words_of_a_rule() {
        for line in ["activation if\tsize>=1MiB", "activation\tif size>=1MiB", "activation \t if \t size>=1MiB\t"] {
            let rules: Rules = line.parse().unwrap();
            assert_eq!(rules.own, [(Category::Activation, "size>=1MiB".parse().unwrap())], "{line:?}");
        }
    }

    #[test]
    fn mistakes_name_the_line_and_what_to_write() {
        let why = |text: &str| text.parse::<Rules>().unwrap_err().to_string();
        assert!(
            why("\nweights if size>1").starts_with("line 2: unknown category 'weights': expected one of parameter")
        );
        assert!(why("gradient").contains("'if' and conditions after 'gradient', such as gradient if size"));
        assert!(why("gradient if").contains("such as gradient if size"));
        assert!(why("gradient if\t").contains("such as gradient if size"));
        assert!(why("gradient when size>1").contains("expected 'if' and conditions after 'gradient'"));
        assert!(why("builtin on").contains("builtin off"));
        assert!(why("gradient if colour=red").contains("line 1: 'colour=red': unknown key 'colour'"));
    }
}
