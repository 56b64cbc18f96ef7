//! Converts process-wide ids into row indices of one recording, adding rows when they are first used.

#[cfg(feature = "symbols")]
mod symbolizing;
#[cfg(not(feature = "symbols"))]
#[path = "export/symbolizing_none.rs"]
mod symbolizing;

use std::collections::HashMap;

use highwater_snapshots::event::{Alloc, Event, What};
use highwater_snapshots::format::Symbols;
use highwater_snapshots::intern::Interner;
use highwater_snapshots::tables::{Frame, Module, Op, Scope, Stack, Tables};
use highwater_snapshots::{FrameId, ModuleId, OpId, ScopeId, StackId, StartingBlock, StartingState, StringId};

use crate::message::NewOp;
use crate::names;
use crate::stack::{self, depot};

#[derive(Debug, Default)]
pub(crate) struct Exporter {
    strings: Interner<String>,
    modules: Vec<Module>,
    /// Rows by path and load bias. A library that was rebuilt and loaded again is another module.
    module_rows: HashMap<(String, u64), ModuleId>,
    frames: Vec<Frame>,
    frame_rows: HashMap<u64, FrameId>,
    stacks: Vec<Stack>,
    scopes: Vec<Scope>,
    /// Operations that have not been written yet.
    ops: Vec<Op>,
    /// Process-wide id of the first operation of this file or trace.
    first_op: u32,
    /// Rows of operations from before the first.
    carried: HashMap<OpId, OpId>,
    /// Rows by process-wide id; [`StringId::NONE`] or missing if there is no row yet.
    string_rows: Vec<StringId>,
    scope_rows: Vec<ScopeId>,
    /// Rows by the depot's index, with [`StackId::NONE`] for stacks that have no row yet.
    stack_rows: Vec<StackId>,
    nodes: Vec<depot::Node>,
    loaded: stack::Modules,
}

impl Exporter {
    pub(crate) fn new(first_op: u32) -> Self {
        Self { first_op, ..Self::default() }
    }

    pub(crate) fn event(&mut self, event: &Event) -> Event {
        let what = match event.what {
            What::Alloc(alloc) => What::Alloc(self.alloc(&alloc)),
            What::Oom(mut oom) => {
                (oom.op, oom.scope) = (self.op(oom.op), self.scope(oom.scope));
                What::Oom(oom)
            }
            What::Mark(text) => What::Mark(self.name(text)),
            what => what,
        };
        Event { stack: self.stack(event.stack), what, ..*event }
    }

    pub(crate) fn starting_state(&mut self, state: &StartingState) -> StartingState {
        let block = |block: &StartingBlock| StartingBlock {
            alloc: self.alloc(&block.alloc),
            stack: self.stack(block.stack),
            free_requested: block.free_requested,
        };
        StartingState { blocks: state.blocks.iter().map(block).collect(), ..state.clone() }
    }

    pub(crate) fn add_ops(&mut self, ops: &[NewOp]) {
        for op in ops {
            let row = Op { name: self.name(op.name), scope: self.scope(op.scope), stack: self.stack(op.stack) };
            self.ops.push(row);
        }
    }

    fn alloc(&mut self, alloc: &Alloc) -> Alloc {
        Alloc { op: self.op(alloc.op), scope: self.scope(alloc.scope), ..*alloc }
    }

    /// Appends operations from before the first, by process-wide id, to which later events may refer.
    pub(crate) fn carry_ops(&mut self, ops: &[(OpId, NewOp)]) {
        for (row, (id, _)) in ops.iter().enumerate() {
            self.carried.insert(*id, OpId(row as u32));
        }
        let ops: Vec<NewOp> = ops.iter().map(|(_, op)| *op).collect();
        self.add_ops(&ops);
    }

    /// Converts an operation id. Operations from before the first have a row only if they were carried over.
    fn op(&self, op: OpId) -> OpId {
        match op.index().and(op.0.checked_sub(self.first_op)) {
            Some(row) => OpId(self.carried.len() as u32 + row),
            None => self.carried.get(&op).copied().unwrap_or(OpId::NONE),
        }
    }

    fn text(&mut self, text: &str) -> StringId {
        match self.strings.position(text) {
            Some(position) => StringId(position),
            None => StringId(self.strings.intern(text.to_owned())),
        }
    }

    fn name(&mut self, id: StringId) -> StringId {
        let index = id.0 as usize;
        if let Some(&row) = self.string_rows.get(index).filter(|row| row.is_some()) {
            return row;
        }
        let text = names::with(|names| names.text(id).to_owned());
        let row = self.text(&text);
        // There is no name with this id.
        if text.is_empty() {
            return row;
        }
        if index >= self.string_rows.len() {
            self.string_rows.resize(index + 1, StringId::NONE);
        }
        self.string_rows[index] = row;
        row
    }

    fn scope(&mut self, id: ScopeId) -> ScopeId {
        let Some(index) = id.index() else { return ScopeId::NONE };
        if let Some(&row) = self.scope_rows.get(index).filter(|row| row.is_some()) {
            return row;
        }
        let Some(scope) = names::with(|names| names.scope_row(id)) else { return ScopeId::NONE };
        let row = Scope { parent: self.scope(scope.parent), name: self.name(scope.name) };
        self.scopes.push(row);
        let row = ScopeId::from_index(self.scopes.len() - 1);
        if index >= self.scope_rows.len() {
            self.scope_rows.resize(index + 1, ScopeId::NONE);
        }
        self.scope_rows[index] = row;
        row
    }

    fn stack(&mut self, id: StackId) -> StackId {
        let Some(index) = id.index() else { return StackId::NONE };
        if index >= self.nodes.len() {
            self.nodes.extend(depot::nodes_since(self.nodes.len()));
            self.stack_rows.resize(self.nodes.len(), StackId::NONE);
        }
        // Outermost frames first: a node's parent always precedes it.
        let mut missing = Vec::new();
        let mut next = Some(index);
        let mut parent = StackId::NONE;
        while let Some(position) = next {
            match self.stack_rows.get(position) {
                None => return StackId::NONE,
                Some(row) if row.is_some() => {
                    parent = *row;
                    break;
                }
                Some(_) => missing.push(position),
            }
            next = self.nodes[position].parent.index();
        }
        for position in missing.into_iter().rev() {
            let frame = self.frame(self.nodes[position].address);
            self.stacks.push(Stack { parent, frame });
            parent = StackId::from_index(self.stacks.len() - 1);
            self.stack_rows[position] = parent;
        }
        parent
    }

    fn frame(&mut self, return_address: u64) -> FrameId {
        if let Some(&row) = self.frame_rows.get(&return_address) {
            return row;
        }
        if self.loaded.locate(return_address).is_none() {
            self.loaded = stack::modules();
        }
        let (module, address) = match self.loaded.locate(return_address) {
            Some(place) => (self.module(place.module), place.address),
            None => (ModuleId::NONE, return_address.saturating_sub(1)),
        };
        self.frames.push(Frame { module, address, first_line: 0, line_count: 0 });
        let row = FrameId::from_index(self.frames.len() - 1);
        self.frame_rows.insert(return_address, row);
        row
    }

    fn module(&mut self, loaded: usize) -> ModuleId {
        let module = self.loaded.list()[loaded].clone();
        let known = (module.path.to_string_lossy().into_owned(), module.load_bias);
        if let Some(&row) = self.module_rows.get(&known) {
            return row;
        }
        let path = self.text(&known.0);
        self.modules.push(Module { path, build_id: module.build_id, load_bias: module.load_bias });
        let row = ModuleId::from_index(self.modules.len() - 1);
        self.module_rows.insert(known, row);
        row
    }

    pub(crate) fn take_ops(&mut self) -> Vec<Op> {
        std::mem::take(&mut self.ops)
    }

    /// Returns the rows so far, without operations.
    pub(crate) fn rows(&self) -> Rows<'_> {
        Rows {
            strings: self.strings.rows(),
            modules: &self.modules,
            frames: &self.frames,
            stacks: &self.stacks,
            scopes: &self.scopes,
        }
    }

    /// Returns the finished tables, with the lines that [`resolve`](Self::resolve) returned.
    pub(crate) fn into_tables(mut self, symbols: &[Symbols]) -> Tables {
        let mut lines = Vec::new();
        for found in symbols {
            let frame = &mut self.frames[found.frame.0 as usize];
            (frame.first_line, frame.line_count) = (lines.len() as u32, found.lines.len() as u32);
            lines.extend(&found.lines);
        }
        Tables {
            strings: self.strings.into_rows(),
            modules: self.modules,
            frames: self.frames,
            lines,
            stacks: self.stacks,
            scopes: self.scopes,
            ops: self.ops,
            skipped: Vec::new(),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Rows<'a> {
    pub(crate) strings: &'a [String],
    pub(crate) modules: &'a [Module],
    pub(crate) frames: &'a [Frame],
    pub(crate) stacks: &'a [Stack],
    pub(crate) scopes: &'a [Scope],
}
