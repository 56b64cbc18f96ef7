//! Maps source lines, call stacks, module paths and operations with the same text to one row each.
//!
//! A compiler may inline a function twice into one line, unroll a loop, or number the closures of a line. The rows then
//! differ in addresses or names, but have the same text. Names that differ only in characters that are not displayed
//! also have the same text. Rows with the same text are grouped as one value.

use std::borrow::Cow;
use std::collections::HashMap;

use highwater_snapshots::ids::{FrameId, ScopeId, StackId, StringId};
use highwater_snapshots::intern::Interner;
use highwater_snapshots::shown::printable;
use highwater_snapshots::tables::{Op, Scope, SourceLine, Stack, Tables};

/// For each source line, the first line with the same text.
#[derive(Debug, Default)]
pub(crate) struct AlikeLines {
    texts: Interner<String>,
    /// The first line with each text.
    first: Vec<SourceLine>,
    number_of: HashMap<SourceLine, u32>,
}

impl AlikeLines {
    pub(crate) fn of(tables: &Tables) -> Self {
        let mut alike = Self::default();
        for line in &tables.lines {
            if alike.number_of.contains_key(line) {
                continue;
            }
            let number = alike.texts.intern(printable(&tables.line_text(line)).into_owned());
            if number as usize == alike.first.len() {
                alike.first.push(*line);
            }
            alike.number_of.insert(*line, number);
        }
        alike
    }

    /// The first line with the same text as `line`; `line` itself if the recording has no such row.
    pub(crate) fn first(&self, line: SourceLine) -> SourceLine {
        let number = self.number_of.get(&line);
        number.and_then(|number| self.first.get(*number as usize)).copied().unwrap_or(line)
    }
}

/// Assigns ids to distinct sequences of parts, so that equal sequences have equal ids.
#[derive(Default)]
struct Sequences {
    numbers: Interner<(Option<u32>, u32)>,
    /// The id of the sequence of each row: the sequence of the parent row, followed by the row's own parts.
    of_row: Vec<Option<u32>>,
}

impl Sequences {
    /// Assigns an id to the next row, whose sequence is that of row `parent` followed by `parts`; `None` if the
    /// sequence is empty.
    fn push(&mut self, parent: Option<usize>, parts: impl Iterator<Item = u32>) -> Option<u32> {
        let start = match parent {
            None => None,
            // A parent precedes its children. In a damaged file it may not; then nothing else reads the same.
            Some(row) if row >= self.of_row.len() => {
                Some(self.numbers.intern((None, u32::MAX - self.of_row.len() as u32)))
            }
            Some(row) => self.of_row[row],
        };
        let number = parts.fold(start, |before, part| Some(self.numbers.intern((before, part))));
        self.of_row.push(number);
        number
    }
}

/// For each stack, the first stack with the same text.
#[derive(Debug)]
pub(crate) struct StackEquivalence {
    first: Vec<StackId>,
}

/// One element of a stack's text: a source line, or the address of a frame without one.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Text {
    Line(SourceLine),
    Address(String),
}

impl StackEquivalence {
    /// `lines` must be built from the same tables.
    pub(crate) fn of(tables: &Tables, lines: &AlikeLines) -> Self {
        let mut texts: Interner<Text> = Interner::default();
        let mut of_frame: HashMap<FrameId, Box<[u32]>> = HashMap::new();
        let mut sequences = Sequences::default();
        let mut first_of: HashMap<Option<u32>, StackId> = HashMap::new();
        let mut first_of_row = |(row, stack): (usize, &Stack)| {
            let parts = of_frame.entry(stack.frame).or_insert_with(|| {
                // The lines of a frame are those of functions that are inlined into it, innermost first.
                let lines_of_frame = tables.frame_lines(stack.frame).iter().rev();
                let mut parts: Vec<u32> =
                    lines_of_frame.map(|line| texts.intern(Text::Line(lines.first(*line)))).collect();
                if parts.is_empty() {
                    let address = printable(&tables.address_text(stack.frame)).into_owned();
                    parts.push(texts.intern(Text::Address(address)));
                }
                parts.into_boxed_slice()
            });
            let sequence = sequences.push(stack.parent.index(), parts.iter().copied());
            *first_of.entry(sequence).or_insert(StackId(row as u32))
        };
        Self { first: tables.stacks.iter().enumerate().map(&mut first_of_row).collect() }
    }

    /// The first stack with the same text as `stack`; `stack` itself if the recording has no such row.
    pub(crate) fn first(&self, stack: StackId) -> StackId {
        stack.index().and_then(|row| self.first.get(row)).copied().unwrap_or(stack)
    }
}

/// For each module path, the first path with the same text. Different rows can have the same text because a name may be
/// empty or contain dots.
#[derive(Debug)]
pub(crate) struct AlikeScopes {
    first: Vec<ScopeId>,
}

impl AlikeScopes {
    pub(crate) fn of(tables: &Tables) -> Self {
        let mut texts: Interner<Cow<'_, str>> = Interner::default();
        let mut sequences = Sequences::default();
        // An empty path reads as none.
        let none = sequences.numbers.intern((None, texts.intern(Cow::Borrowed(""))));
        let mut first_of: HashMap<Option<u32>, ScopeId> = HashMap::from([(Some(none), ScopeId::NONE)]);
        let mut first_of_row = |(row, scope): (usize, &Scope)| {
            let parts = tables.string(scope.name).split('.').map(|part| texts.intern(printable(part)));
            let sequence = sequences.push(scope.parent.index(), parts);
            *first_of.entry(sequence).or_insert(ScopeId(row as u32))
        };
        Self { first: tables.scopes.iter().enumerate().map(&mut first_of_row).collect() }
    }

    /// The first path with the same text as `scope`; `scope` itself if the recording has no such row.
    pub(crate) fn first(&self, scope: ScopeId) -> ScopeId {
        scope.index().and_then(|row| self.first.get(row)).copied().unwrap_or(scope)
    }
}

/// For each name of an operation, the first name with the same text.
#[derive(Debug)]
pub(crate) struct AlikeOps {
    first: HashMap<StringId, StringId>,
}

impl AlikeOps {
    pub(crate) fn of(tables: &Tables) -> Self {
        // An empty name reads as none.
        let mut first_of: HashMap<Cow<'_, str>, StringId> = HashMap::from([(Cow::Borrowed(""), StringId::NONE)]);
        let first = |op: &Op| (op.name, *first_of.entry(printable(tables.string(op.name))).or_insert(op.name));
        Self { first: tables.ops.iter().map(first).collect() }
    }

    /// Returns the first name with the same text as `name`; `name` itself if no operation has this name.
    pub(crate) fn first(&self, name: StringId) -> StringId {
        self.first.get(&name).copied().unwrap_or(name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_snapshots::ids::ModuleId;
    use highwater_snapshots::tables::Frame;

    fn stacks(lines: Vec<SourceLine>, frames: Vec<Frame>, stacks: &[(StackId, u32)], strings: &[&str]) -> Vec<u32> {
        let stacks = stacks.iter().map(|&(parent, frame)| Stack { parent, frame: FrameId(frame) });
        let strings = strings.iter().map(|text| (*text).to_owned());
        let tables =
            Tables { lines, frames, stacks: stacks.collect(), strings: strings.collect(), ..Tables::default() };
        let alike = StackEquivalence::of(&tables, &AlikeLines::of(&tables));
        assert_eq!((alike.first(StackId::NONE), alike.first(StackId(99))), (StackId::NONE, StackId(99)));
        (0..tables.stacks.len() as u32).map(|row| alike.first(StackId(row)).0).collect()
    }

    fn frame(address: u64, first_line: u32, line_count: u32) -> Frame {
        Frame { module: ModuleId(0), address, first_line, line_count }
    }

    #[test]
    fn stacks_at_other_addresses_with_the_same_lines_are_one() {
        let line = |line| SourceLine { function: StringId(0), file: StringId(1), line };
        let first = stacks(
            vec![line(7), line(7), line(8)],
            vec![frame(1, 0, 1), frame(2, 1, 1), frame(3, 2, 1), frame(4, 0, 0), frame(5, 0, 0)],
            &[
                (StackId::NONE, 0), // 7
                (StackId::NONE, 1), // 7 at another address
                (StackId(0), 2),    // 8 < 7
                (StackId(1), 2),    // 8 < the other 7
                (StackId(0), 3),    // an address < 7
                (StackId(1), 4),    // another address < 7
                (StackId(1), 3),    // the same address < 7
            ],
            &["f", "a.rs"],
        );
        assert_eq!(first, [0, 0, 2, 2, 4, 5, 4]);
    }

    #[test]
    fn closures_of_one_line_and_inlined_functions_read_as_one() {
        let line = |function, line| SourceLine { function: StringId(function), file: StringId(3), line };
        let lines = vec![line(0, 7), line(1, 7), line(0, 7), line(2, 3), line(2, 3)];
        let first = stacks(
            lines.clone(),
            // The last but one is inlined into the frame below it.
            vec![frame(1, 0, 1), frame(2, 1, 1), frame(3, 2, 2), frame(4, 4, 1)],
            &[(StackId::NONE, 3), (StackId(0), 0), (StackId(0), 1), (StackId::NONE, 2)],
            &["net::run::{closure#1}", "net::run::{closure#2}", "main", "net.rs"],
        );
        assert_eq!(first, [0, 1, 1, 1]);
        let strings = ["{closure#1}", "{closure#2}", "main", "net.rs"].map(str::to_owned).to_vec();
        let alike = AlikeLines::of(&Tables { lines: lines.clone(), strings, ..Tables::default() });
        let first: Vec<SourceLine> = lines.iter().map(|line| alike.first(*line)).collect();
        assert_eq!(first, [lines[0], lines[0], lines[0], lines[3], lines[3]]);
    }

    #[test]
    fn module_paths_are_compared_as_they_read() {
        let scope = |parent, name| Scope { parent, name: StringId(name) };
        let (none, a) = (ScopeId::NONE, ScopeId(0));
        let scopes = vec![scope(none, 0), scope(a, 1), scope(none, 2), scope(none, 3)];
        let strings = ["a", "b", "a.b", ""].map(str::to_owned).to_vec();
        let alike = AlikeScopes::of(&Tables { scopes, strings, ..Tables::default() });
        assert_eq!([0, 1, 2, 3].map(|row| alike.first(ScopeId(row))), [a, ScopeId(1), ScopeId(1), none]);
    }

    #[test]
    fn names_that_differ_in_hidden_characters_read_as_one() {
        let line = |function| SourceLine { function: StringId(function), file: StringId(5), line: 0 };
        let lines = [line(0), line(1), line(2), line(3)];
        let frames = (0..4).map(|row| frame(0, row, 1)).collect();
        let strings = ["f\u{202e}", "f\u{202d}", "f\u{fffd}", "f", "", ""];
        let of_stacks = stacks(lines.to_vec(), frames, &[0, 1, 2, 3].map(|frame| (StackId::NONE, frame)), &strings);
        assert_eq!(of_stacks, [0, 0, 0, 3]);
        let strings = strings.map(str::to_owned).to_vec();
        let op = |name| Op { name: StringId(name), scope: ScopeId::NONE, stack: StackId::NONE };
        let scope = |name| Scope { parent: ScopeId::NONE, name: StringId(name) };
        let (ops, scopes) = ([0, 1, 3, 4].map(op).to_vec(), [0, 1, 3].map(scope).to_vec());
        let tables = Tables { ops, scopes, strings, ..Tables::default() };
        let names = AlikeOps::of(&tables);
        let first = [0, 1, 3, 4].map(|name| names.first(StringId(name)));
        assert_eq!(first, [StringId(0), StringId(0), StringId(3), StringId::NONE]);
        let scopes = AlikeScopes::of(&tables);
        assert_eq!([0, 1, 2].map(|row| scopes.first(ScopeId(row))), [ScopeId(0), ScopeId(0), ScopeId(2)]);
    }
}
