//! Creates operations for the forward calls whose backward pass allocated memory, from the text of Python's
//! `traceback`.

use std::ops::Range;

use hashbrown::HashMap;

use super::super::sequences::Sequences;
use crate::rows::{MAX_FRAMES, Rows};
use highwater_snapshots::ids::{FrameId, OpId, ScopeId, StackId, StringId};
use highwater_snapshots::tables::{Op, Tables};

/// Creates one operation per forward stack, numbered in order of first appearance.
#[derive(Clone, Debug, Default)]
pub(super) struct Ops {
    by_list: HashMap<u32, OpId>,
    by_stack: HashMap<StackId, OpId>,
    /// Range in `places` of the frames of each string.
    of_text: HashMap<u32, Range<usize>>,
    places: Vec<FrameId>,
}

impl Ops {
    /// Returns the operation of the forward stack `list` of `texts`, or `NONE` if there is no such stack.
    pub(super) fn id(&mut self, tables: &mut Tables, rows: &mut Rows, (texts, list): (&Sequences, u32)) -> OpId {
        if list == Sequences::NONE || list as usize >= texts.count() {
            return OpId::NONE;
        }
        if let Some(&id) = self.by_list.get(&list) {
            return id;
        }
        if self.by_list.is_empty() {
            // Frames of the snapshot take precedence.
            rows.learn_frames(tables);
        }
        // As in `traceback`, the innermost call comes last.
        let mut innermost: Vec<FrameId> = Vec::new();
        for &text in texts.get(list).iter().rev() {
            let places = self.places_of(tables, rows, text);
            innermost.extend(self.places[places].iter().rev());
            if innermost.len() >= MAX_FRAMES {
                break;
            }
        }
        let stack = rows.stack(tables, &innermost);
        let id = *self.by_stack.entry(stack).or_insert_with(|| {
            tables.ops.push(Op { name: StringId::NONE, scope: ScopeId::NONE, stack });
            OpId::from_index(tables.ops.len() - 1)
        });
        self.by_list.insert(list, id);
        id
    }

    fn places_of(&mut self, tables: &mut Tables, rows: &mut Rows, text: u32) -> Range<usize> {
        if let Some(places) = self.of_text.get(&text) {
            return places.clone();
        }
        let first = self.places.len();
        let whole = tables.string(StringId(text)).to_owned();
        for place in places(&whole) {
            self.places.push(rows.frame(tables, place.function, place.file.unwrap_or_default(), place.line));
        }
        let places = first..self.places.len();
        self.of_text.insert(text, places.clone());
        places
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct TracebackLine<'a> {
    function: &'a str,
    file: Option<&'a str>,
    line: u32,
}

/// Parses the source locations in lines such as `File "train.py", line 3, in step`. Without such lines, returns the
/// text as a function name.
fn places(text: &str) -> Vec<TracebackLine<'_>> {
    let mut places: Vec<TracebackLine<'_>> = text.lines().filter_map(place).collect();
    if places.is_empty() && !text.trim().is_empty() {
        places.push(TracebackLine { function: text.trim(), file: None, line: 0 });
    }
    places
}

fn place(line: &str) -> Option<TracebackLine<'_>> {
    let (file, rest) = line.trim().strip_prefix("File \"")?.rsplit_once("\", line ")?;
    let (number, function) = rest.split_once(", in ").unwrap_or((rest, ""));
    Some(TracebackLine { function, file: Some(file), line: number.trim().parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::assemble::stacks::take_frames;
    use crate::raw::RawFrame;

    #[test]
    fn traceback_texts_become_the_stack_of_an_op() {
        let strings = [
            "  File \"train.py\", line 9, in <module>\n    loss = model(x)\n",
            "  File \"model.py\", line 3, in forward\n    return a @ b\n",
            "something else",
            "forward",
            "model.py",
        ];
        let mut tables = Tables { strings: strings.map(String::from).to_vec(), ..Tables::default() };
        let known = RawFrame { name: StringId(3), file: StringId(4), line: 3, fx: StringId::NONE };
        take_frames(&mut tables, &[known]);
        let mut texts = Sequences::default();
        let lists = [texts.intern(&[0, 1]), texts.intern(&[2]), texts.intern(&[0, 1])];
        let (mut rows, mut ops) = (Rows::of(&tables), Ops::default());
        let mut id = |list| ops.id(&mut tables, &mut rows, (&texts, list));
        assert_eq!(lists.map(&mut id), [OpId(0), OpId(1), OpId(0)]);
        assert_eq!(id(Sequences::NONE), OpId::NONE);
        assert_eq!(id(77), OpId::NONE);
        assert_eq!(tables.stack_text(tables.ops[0].stack), ["model.py:3 forward", "train.py:9 <module>"]);
        assert_eq!(tables.stack_text(tables.ops[1].stack), ["something else"]);
        assert_eq!(tables.frames.len(), 3, "a frame that the snapshot has is not made again");
    }

    #[test]
    fn of_very_deep_forward_stacks_the_innermost_calls_are_kept() {
        let strings = (0..3000).map(|line| format!("File \"a.py\", line {line}, in f")).collect();
        let mut tables = Tables { strings, ..Tables::default() };
        let mut texts = Sequences::default();
        let list = texts.intern(&(0..3000).collect::<Vec<u32>>());
        let (mut rows, mut ops) = (Rows::of(&tables), Ops::default());
        assert_eq!(ops.id(&mut tables, &mut rows, (&texts, list)), OpId(0));
        let stack = tables.stack_text(tables.ops[0].stack);
        assert_eq!((stack.len(), stack[0].as_str()), (MAX_FRAMES, "a.py:2999 f"));
    }

    #[test]
    fn a_place_is_read_whatever_its_file_is_called() {
        let text = r#"File "C:\a "b", line 2, in c\x.py", line 12, in <lambda>"#;
        let expected = TracebackLine { function: "<lambda>", file: Some(r#"C:\a "b", line 2, in c\x.py"#), line: 12 };
        assert_eq!(places(text), [expected]);
        assert_eq!(places("File \"x\", line many, in f")[0].file, None);
        assert_eq!(places(" \n"), []);
    }
}
