//! Names, paths and stacks of a recording as text values, each built once.

use std::collections::HashMap;

use highwater_analysis::leading_frame;
use highwater_snapshots::{OpId, ScopeId, StackId, StringId, Trace};
use parquet::data_type::ByteArray;

#[derive(Debug, Default)]
pub(super) struct Texts {
    fixed: HashMap<&'static str, ByteArray>,
    strings: HashMap<StringId, ByteArray>,
    scopes: HashMap<ScopeId, Option<ByteArray>>,
    stacks: HashMap<StackId, Option<ByteArray>>,
    frames: HashMap<StackId, Option<ByteArray>>,
}

impl Texts {
    /// Clears the caches of values of which a recording may have millions.
    pub(super) fn forget(&mut self) {
        self.strings.clear();
        self.stacks.clear();
        self.frames.clear();
        self.scopes.clear();
    }

    pub(super) fn fixed(&mut self, word: &'static str) -> ByteArray {
        self.fixed.entry(word).or_insert_with(|| ByteArray::from(word)).clone()
    }

    pub(super) fn string(&mut self, trace: &Trace, id: StringId) -> ByteArray {
        self.strings.entry(id).or_insert_with(|| ByteArray::from(trace.tables.string(id))).clone()
    }

    pub(super) fn op(&mut self, trace: &Trace, id: OpId) -> Option<ByteArray> {
        let name = trace.tables.op(id)?.name;
        name.is_some().then(|| self.string(trace, name))
    }

    pub(super) fn scope(&mut self, trace: &Trace, id: ScopeId) -> Option<ByteArray> {
        let path = || id.is_some().then(|| ByteArray::from(trace.tables.scope_path(id).into_bytes()));
        self.scopes.entry(id).or_insert_with(path).clone()
    }

    /// Returns a stack with its outermost line first and `;` between lines, as in the input of flame graph programs.
    pub(super) fn stack(&mut self, trace: &Trace, id: StackId) -> Option<ByteArray> {
        let folded = || id.is_some().then(|| ByteArray::from(trace.tables.folded_text(id).into_bytes()));
        self.stacks.entry(id).or_insert_with(folded).clone()
    }

    /// Returns the leading line of a stack, usually the innermost one in the user's program; `None` without a line.
    pub(super) fn frame(&mut self, trace: &Trace, id: StackId) -> Option<ByteArray> {
        let line = || {
            let frame = leading_frame(&trace.tables, id)?;
            Some(ByteArray::from(frame.text(&trace.tables).into_bytes()))
        };
        self.frames.entry(id).or_insert_with(line).clone()
    }
}
