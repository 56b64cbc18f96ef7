//! References to a block by the program and by the autograd graph, as recorded by the Python package.
//!
//! The references are stored in the attribute [`ATTRIBUTE`] of a block, one fact per line. A position is the number of
//! allocations on the device since the block's own allocation (for a baseline block, since the start of the recording),
//! so that positions stay valid if other events are added or removed.
//!
//! ```text
//! end 4
//! input 3 blocks.2.attn
//! saved 4 219 221 224 blocks.2.attn.qkv
//! ```

use std::fmt;
use std::str::FromStr;

/// The name of the attribute.
pub const ATTRIBUTE: &str = "references";

/// The references to one block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct References {
    /// The position in forward from which only the graph refers to the block; `None` if it was not recorded.
    pub end: Option<u64>,
    /// Calls of modules that receive the block as an argument, each with its position and module path.
    pub inputs: Vec<(u64, String)>,
    /// Nodes of the graph that saved the block for backward.
    pub saved: Vec<Saved>,
}

/// A node of the autograd graph that saved a block for backward.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// The position at which the block is saved.
    pub packed: u64,
    /// The position at which backward reads the block; `None` if it was not recorded.
    pub unpacked: Option<u64>,
    /// The position after which the autograd node no longer needs the block, although the graph still refers to it;
    /// `None` if unknown.
    pub dropped: Option<u64>,
    /// The position at which the graph drops the block; `None` if it was not recorded.
    pub released: Option<u64>,
    /// The path of the module that created the node.
    pub module: String,
}

/// An optional position; `-` in text if there is none.
struct Position(Option<u64>);

impl fmt::Display for Position {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(position) => write!(out, "{position}"),
            None => out.write_str("-"),
        }
    }
}

impl fmt::Display for References {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines: Vec<String> = self.end.iter().map(|position| format!("end {position}")).collect();
        lines.extend(self.inputs.iter().map(|(position, module)| format!("input {position} {module}")));
        lines.extend(self.saved.iter().map(|saved| {
            let [unpacked, dropped, released] = [saved.unpacked, saved.dropped, saved.released].map(Position);
            format!("saved {} {unpacked} {dropped} {released} {}", saved.packed, saved.module)
        }));
        out.write_str(&lines.join("\n"))
    }
}

impl FromStr for References {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut references = Self::default();
        for line in text.lines() {
            references.add(line).ok_or_else(|| format!("cannot read the reference '{line}'"))?;
        }
        Ok(references)
    }
}

/// Returns the attribute `name` with `value` as readable facts, each with a name. References give several facts; other
/// attributes give one.
pub fn readable(name: &str, value: &str) -> Vec<(String, String)> {
    match value.parse::<References>() {
        Ok(references) if name == ATTRIBUTE => references.facts(),
        _ => vec![(name.to_owned(), value.to_owned())],
    }
}

impl References {
    /// Converts the references of a block for a recording in which it is part of the baseline. `own` allocations
    /// precede that of the block, and `start` allocations precede the new recording. References that ended before the
    /// recording are dropped; those that began before it begin with the recording.
    pub fn from_start(&self, own: u64, start: u64) -> Self {
        let at = |position: u64| (own + position).checked_sub(start);
        let saved = self.saved.iter().filter(|saved| saved.released.is_none_or(|released| at(released).is_some()));
        Self {
            end: self.end.map(|end| at(end).unwrap_or(0)),
            inputs: self
                .inputs
                .iter()
                .filter_map(|(position, module)| Some((at(*position)?, module.clone())))
                .collect(),
            saved: saved
                .map(|saved| Saved {
                    packed: at(saved.packed).unwrap_or(0),
                    unpacked: saved.unpacked.and_then(at),
                    dropped: saved.dropped.map(|dropped| at(dropped).unwrap_or(0)),
                    released: saved.released.and_then(at),
                    module: saved.module.clone(),
                })
                .collect(),
        }
    }

    /// Returns the modules that receive the block as an argument or save it, in order, without duplicates.
    fn facts(&self) -> Vec<(String, String)> {
        let joined = |name: &str, modules: &mut dyn Iterator<Item = &str>| {
            let mut found: Vec<&str> = Vec::new();
            for module in modules.map(|path| if path.is_empty() { "the model" } else { path }) {
                if !found.contains(&module) {
                    found.push(module);
                }
            }
            (!found.is_empty()).then(|| (name.to_owned(), found.join(", ")))
        };
        let inputs = joined("argument of", &mut self.inputs.iter().map(|(_, module)| module.as_str()));
        let saved = joined("saved by", &mut self.saved.iter().map(|saved| saved.module.as_str()));
        inputs.into_iter().chain(saved).collect()
    }

    fn add(&mut self, line: &str) -> Option<()> {
        let optional = |text: &str| if text == "-" { Some(None) } else { text.parse().ok().map(Some) };
        match line.split_once(' ')? {
            ("end", position) => self.end = Some(position.parse().ok()?),
            ("input", rest) => {
                let (position, module) = rest.split_once(' ')?;
                self.inputs.push((position.parse().ok()?, module.to_owned()));
            }
            ("saved", rest) => {
                let mut parts = rest.splitn(5, ' ');
                let packed = parts.next()?.parse().ok()?;
                let [unpacked, dropped, released] =
                    [optional(parts.next()?)?, optional(parts.next()?)?, optional(parts.next()?)?];
                let module = parts.next()?.to_owned();
                self.saved.push(Saved { packed, unpacked, dropped, released, module });
            }
            _ => return None,
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_see_the_modules_and_other_attributes_as_they_are() {
        let text = "end 4\ninput 3 a\ninput 3 a.b\nsaved 4 9 - 12 a.b\nsaved 5 7 - 8 \nsaved 6 7 - 8 a.b";
        let facts = [("argument of", "a, a.b"), ("saved by", "a.b, the model")];
        assert_eq!(readable(ATTRIBUTE, text), facts.map(|(name, value)| (name.to_owned(), value.to_owned())));
        for (name, value) in [("pool_id", "(1, 0)"), (ATTRIBUTE, "something else"), ("note", "end 4")] {
            assert_eq!(readable(name, value), [(name.to_owned(), value.to_owned())]);
        }
    }

    #[test]
    fn the_text_reads_back_and_a_wrong_line_is_refused() {
        let text = "end 4\ninput 3 blocks.2.attn\nsaved 4 219 - 224 blocks.2.attn.qkv\nsaved 5 - - - ";
        let references: References = text.parse().unwrap();
        assert_eq!(references.to_string(), text);
        assert_eq!((references.end, references.saved[1].module.as_str()), (Some(4), ""));
        for wrong in ["end", "end x", "input 3", "saved 1 2 3 4", "ended 1"] {
            assert_eq!(wrong.parse::<References>(), Err(format!("cannot read the reference '{wrong}'")));
        }
    }
}
