//! Interns strings, frames, stacks and scopes in the tables of a recording, so that each distinct one has one row.

use hashbrown::HashMap;

use crate::names::Names;
use highwater_snapshots::ids::{FrameId, ModuleId, ScopeId, StackId, StringId};
use highwater_snapshots::tables::{Frame, Scope, SourceLine, Stack, Tables};

/// The number of frames of a stack that are kept, from the innermost one outward: readers of a trace follow at most 1024.
pub(crate) const MAX_FRAMES: usize = 1023;

#[derive(Debug, Default)]
pub(crate) struct Rows {
    strings: Names,
    /// The strings by their rows in the table of the tool.
    of_tool: HashMap<i64, StringId>,
    frames: HashMap<SourceLine, FrameId>,
    stacks: HashMap<Stack, StackId>,
    scopes: HashMap<Scope, ScopeId>,
}

impl Rows {
    /// The index of the texts of `tables`; other rows are unknown.
    pub(crate) fn of(tables: &Tables) -> Self {
        Self { strings: Names::of(&tables.strings), ..Self::default() }
    }

    /// Indexes the frames of `tables` that have a single source line; of several with the same line, the first.
    pub(crate) fn learn_frames(&mut self, tables: &Tables) {
        for (row, frame) in tables.frames.iter().enumerate().filter(|(_, frame)| frame.line_count == 1) {
            if let Some(line) = tables.lines.get(frame.first_line as usize) {
                self.frames.entry(*line).or_insert(FrameId::from_index(row));
            }
        }
    }

    /// The frame of `function`, in `line` of `file`; `line` is 0 if unknown.
    pub(crate) fn frame(&mut self, tables: &mut Tables, function: &str, file: &str, line: u32) -> FrameId {
        let function = self.strings.id(&mut tables.strings, function);
        let file = if file.is_empty() { StringId::NONE } else { self.strings.id(&mut tables.strings, file) };
        self.frame_of(tables, function, file, line)
    }

    /// The frame of a function and file that are rows of `tables`.
    pub(crate) fn frame_of(&mut self, tables: &mut Tables, function: StringId, file: StringId, line: u32) -> FrameId {
        let file = if tables.string(file).is_empty() { StringId::NONE } else { file };
        let line = SourceLine { function, file, line };
        *self.frames.entry(line).or_insert_with(|| {
            let first_line = tables.lines.len() as u32;
            tables.lines.push(line);
            tables.frames.push(Frame { module: ModuleId::NONE, address: 0, first_line, line_count: 1 });
            FrameId::from_index(tables.frames.len() - 1)
        })
    }

    pub(crate) fn text(&mut self, tables: &mut Tables, text: &str) -> StringId {
        self.strings.id(&mut tables.strings, text)
    }

    /// The row of the text that the table of the tool has in `row`; `text` is called for the first use of `row` only.
    pub(crate) fn text_of<'t>(&mut self, tables: &mut Tables, row: i64, text: impl FnOnce() -> &'t str) -> StringId {
        let Self { strings, of_tool, .. } = self;
        *of_tool.entry(row).or_insert_with(|| strings.id(&mut tables.strings, text()))
    }

    /// The stack of the innermost [`MAX_FRAMES`] of `frames`, which are ordered innermost first.
    pub(crate) fn stack(&mut self, tables: &mut Tables, frames: &[FrameId]) -> StackId {
        let kept = &frames[..frames.len().min(MAX_FRAMES)];
        kept.iter().rev().fold(StackId::NONE, |parent, &frame| self.called(tables, parent, frame))
    }

    pub(crate) fn called(&mut self, tables: &mut Tables, parent: StackId, frame: FrameId) -> StackId {
        *self.stacks.entry(Stack { parent, frame }).or_insert_with_key(|stack| {
            tables.stacks.push(*stack);
            StackId::from_index(tables.stacks.len() - 1)
        })
    }

    /// Returns the scope with this path, whose names are separated by dots; none for an empty path.
    pub(crate) fn path(&mut self, tables: &mut Tables, path: &str) -> ScopeId {
        let parts = path.split('.').filter(|part| !part.is_empty());
        parts.fold(ScopeId::NONE, |parent, part| self.scope(tables, parent, part))
    }

    pub(crate) fn scope(&mut self, tables: &mut Tables, parent: ScopeId, name: &str) -> ScopeId {
        let name = self.strings.id(&mut tables.strings, name);
        self.scope_of(tables, parent, name)
    }

    /// The scope in `parent` whose name is a row of `tables`.
    pub(crate) fn scope_of(&mut self, tables: &mut Tables, parent: ScopeId, name: StringId) -> ScopeId {
        *self.scopes.entry(Scope { parent, name }).or_insert_with_key(|scope| {
            tables.scopes.push(*scope);
            ScopeId::from_index(tables.scopes.len() - 1)
        })
    }
}
