//! Merges the tables of several recordings, and maps each recording's rows to the merged rows.

use std::collections::HashMap;

use crate::builder::StartingState;
use crate::event::{Event, What};
use crate::ids::{FrameId, ModuleId, OpId, ScopeId, StackId, StringId};
use crate::intern::Interner;
use crate::tables::{self, Frame, Op, Scope, SourceLine, Stack};

/// The merged tables under construction.
#[derive(Debug, Default)]
pub struct MergedTables {
    strings: Interner<String>,
    modules: Interner<(StringId, Vec<u8>, u64)>,
    frames: Vec<Frame>,
    frame_rows: HashMap<FrameKey, FrameId>,
    lines: Vec<SourceLine>,
    stacks: Interner<Stack>,
    scopes: Interner<Scope>,
    ops: Vec<Op>,
}

/// The identity of a frame: its module, address and source lines, which may be known in only one recording.
type FrameKey = (ModuleId, u64, Vec<SourceLine>);

/// The merged row of each row of one recording.
#[derive(Clone, Debug, Default)]
pub struct MergedRows {
    strings: Vec<StringId>,
    stacks: Vec<StackId>,
    scopes: Vec<ScopeId>,
    first_op: u32,
    ops: usize,
}

impl MergedRows {
    /// The merged row of a string; [`StringId::NONE`] if the recording has no such row.
    pub fn string(&self, id: StringId) -> StringId {
        id.index().and_then(|row| self.strings.get(row)).copied().unwrap_or(StringId::NONE)
    }

    /// The merged row of a stack; [`StackId::NONE`] if the recording has no such row.
    pub fn stack(&self, id: StackId) -> StackId {
        id.index().and_then(|row| self.stacks.get(row)).copied().unwrap_or(StackId::NONE)
    }

    /// The merged row of a scope; [`ScopeId::NONE`] if the recording has no such row.
    pub fn scope(&self, id: ScopeId) -> ScopeId {
        id.index().and_then(|row| self.scopes.get(row)).copied().unwrap_or(ScopeId::NONE)
    }

    /// The merged row of an operation; [`OpId::NONE`] if the recording has no such row.
    pub fn op(&self, id: OpId) -> OpId {
        let row = id.index().filter(|row| *row < self.ops);
        row.and_then(|row| self.first_op.checked_add(row as u32)).map_or(OpId::NONE, OpId)
    }

    /// Sets the merged row of the first operation and the number of operations, for tables merged without operations.
    pub(crate) fn set_operations(&mut self, first: u32, count: usize) {
        (self.first_op, self.ops) = (first, count);
    }

    /// Replaces the row numbers in `event` by merged ones.
    pub fn rename(&self, event: &mut Event) {
        event.stack = self.stack(event.stack);
        match &mut event.what {
            What::Alloc(alloc) => (alloc.op, alloc.scope) = (self.op(alloc.op), self.scope(alloc.scope)),
            What::Oom(oom) => (oom.op, oom.scope) = (self.op(oom.op), self.scope(oom.scope)),
            What::Mark(text) => *text = self.string(*text),
            _ => {}
        }
    }

    /// Replaces the row numbers in the blocks of `state` by merged ones.
    pub fn rename_state(&self, state: &mut StartingState) {
        for block in &mut state.blocks {
            block.stack = self.stack(block.stack);
            (block.alloc.op, block.alloc.scope) = (self.op(block.alloc.op), self.scope(block.alloc.scope));
        }
    }
}

impl MergedTables {
    /// Merges the rows of a recording. References to missing rows, which occur in damaged files, become `NONE`.
    pub fn take(&mut self, tables: &tables::Tables) -> MergedRows {
        let mut rows = MergedRows::default();
        for text in &tables.strings {
            rows.strings.push(self.string(text));
        }
        let path = |module: &tables::Module| rows.string(module.path);
        let modules: Vec<ModuleId> = tables
            .modules
            .iter()
            .map(|module| (path(module), module.build_id.clone(), module.load_bias))
            .map(|module| ModuleId(self.modules.intern(module)))
            .collect();
        let frames: Vec<FrameId> =
            (0..tables.frames.len()).map(|row| self.frame(tables, FrameId::from_index(row), &rows, &modules)).collect();
        for stack in &tables.stacks {
            let (parent, frame) = (rows.stack(stack.parent), row_of(&frames, stack.frame.index(), FrameId::NONE));
            rows.stacks.push(StackId(self.stacks.intern(Stack { parent, frame })));
        }
        for scope in &tables.scopes {
            let (parent, name) = (rows.scope(scope.parent), rows.string(scope.name));
            rows.scopes.push(ScopeId(self.scopes.intern(Scope { parent, name })));
        }
        (rows.first_op, rows.ops) = (self.ops.len() as u32, tables.ops.len());
        for op in &tables.ops {
            let (name, scope, stack) = (rows.string(op.name), rows.scope(op.scope), rows.stack(op.stack));
            self.ops.push(Op { name, scope, stack });
        }
        rows
    }

    /// The merged row of `text`.
    pub fn string(&mut self, text: &str) -> StringId {
        let known = self.strings.position(text);
        StringId(known.unwrap_or_else(|| self.strings.intern(text.to_owned())))
    }

    fn frame(&mut self, tables: &tables::Tables, id: FrameId, rows: &MergedRows, modules: &[ModuleId]) -> FrameId {
        let frame = tables.frames[id.0 as usize];
        let line = |line: &SourceLine| SourceLine {
            function: rows.string(line.function),
            file: rows.string(line.file),
            line: line.line,
        };
        let lines: Vec<SourceLine> = tables.frame_lines(id).iter().map(line).collect();
        let module = row_of(modules, frame.module.index(), ModuleId::NONE);
        let key = (module, frame.address, lines);
        if let Some(row) = self.frame_rows.get(&key) {
            return *row;
        }
        let row = FrameId::from_index(self.frames.len());
        let (first_line, line_count) = (self.lines.len() as u32, key.2.len() as u32);
        self.frames.push(Frame { module, address: frame.address, first_line, line_count });
        self.lines.extend_from_slice(&key.2);
        self.frame_rows.insert(key, row);
        row
    }

    /// Returns the finished tables.
    pub fn into_tables(self) -> tables::Tables {
        let module = |(path, build_id, load_bias)| tables::Module { path, build_id, load_bias };
        tables::Tables {
            strings: self.strings.into_rows(),
            modules: self.modules.into_rows().into_iter().map(module).collect(),
            frames: self.frames,
            lines: self.lines,
            stacks: self.stacks.into_rows(),
            scopes: self.scopes.into_rows(),
            ops: self.ops,
            skipped: Vec::new(),
        }
    }
}

fn row_of<T: Copy>(rows: &[T], row: Option<usize>, none: T) -> T {
    row.and_then(|row| rows.get(row)).copied().unwrap_or(none)
}
