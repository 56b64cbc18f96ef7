//! Tables of strings, modules, frames, stacks, scopes and operations. Each row is stored once and has a handle.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::ids::{FrameId, ModuleId, OpId, ScopeId, StackId, StringId};
use crate::line_text::{LineText, function_text};
use crate::shown::printable;

/// The tables of a recording. Rows refer only to earlier rows, so that a table can be read while it is being written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    /// Text, by [`StringId`].
    pub strings: Vec<String>,
    /// Binaries and shared libraries, by [`ModuleId`].
    pub modules: Vec<Module>,
    /// Frames, by [`FrameId`].
    pub frames: Vec<Frame>,
    /// Source lines of symbolized frames; indexed by [`Frame::first_line`].
    pub lines: Vec<SourceLine>,
    /// The stack tree, by [`StackId`].
    pub stacks: Vec<Stack>,
    /// The scope tree, by [`ScopeId`].
    pub scopes: Vec<Scope>,
    /// Forward operations in execution order, by [`OpId`].
    pub ops: Vec<Op>,
    /// Patterns of source lines that the reader requested to treat as library code; not stored in files.
    pub skipped: Vec<String>,
}

/// A binary or shared library, with the data needed to symbolize its addresses later or on another machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Module {
    /// Path on the recording machine.
    pub path: StringId,
    /// The linker's build id; empty if the file has none.
    pub build_id: Vec<u8>,
    /// The load bias: the difference between addresses in memory and in the file.
    pub load_bias: u64,
}

/// A frame: a machine address, which may be symbolized to source lines, or an imported source frame without an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Frame {
    /// The module that contains the address; [`ModuleId::NONE`] for an imported frame or code outside of all modules.
    pub module: ModuleId,
    /// The address of the call minus the module's load bias. It is the return address minus one, so that it lies within
    /// the call instruction. Always 0 in an imported frame.
    pub address: u64,
    /// Index of its first source line in [`Tables::lines`].
    pub first_line: u32,
    /// Number of source lines: 0 if not symbolized, more than one if functions were inlined.
    pub line_count: u32,
}

/// A function, and a line in its source file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SourceLine {
    /// Demangled name.
    pub function: StringId,
    /// Path of the source file; [`StringId::NONE`] if unknown.
    pub file: StringId,
    /// Line number, from 1; 0 if unknown.
    pub line: u32,
}

/// A node of the stack tree: this frame, called from the parent stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Stack {
    /// The stack of the caller; [`StackId::NONE`] at the outermost frame. Always an earlier row.
    pub parent: StackId,
    /// The innermost frame.
    pub frame: FrameId,
}

/// A node of the scope tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Scope {
    /// The enclosing scope; [`ScopeId::NONE`] at the top. Always an earlier row.
    pub parent: ScopeId,
    /// The last component of the path.
    pub name: StringId,
}

/// A forward operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Op {
    /// The name of the operation, such as `linear` or `layer_norm`.
    pub name: StringId,
    /// The module in which the operation ran.
    pub scope: ScopeId,
    /// The call stack of the forward operation; the backward operation has no source line in the program.
    pub stack: StackId,
}

/// Maximum depth to which stacks and scopes are followed outward, since a malicious file may contain chains of
/// millions. Recorders write shorter chains.
const MAX_DEPTH: usize = 1024;

/// The file name that PyTorch reports for a function in a library without symbols.
pub const UNKNOWN_FILE: &str = "??";

impl Tables {
    /// The text of `id`; empty for `NONE`, or for a row that does not exist.
    pub fn string(&self, id: StringId) -> &str {
        id.index().and_then(|index| self.strings.get(index)).map_or("", String::as_str)
    }

    /// Returns the path of `id` with dots between its parts, such as `encoder.layers.3.mlp`; empty for `NONE`.
    pub fn scope_path(&self, id: ScopeId) -> String {
        let mut names: Vec<&str> = self.scope_names(id).collect();
        names.reverse();
        names.join(".")
    }

    /// The parts of a scope's path, innermost first.
    pub fn scope_names(&self, id: ScopeId) -> impl Iterator<Item = &str> {
        self.scope_rows(id).map(|scope| self.string(scope.name))
    }

    /// The scope and its enclosing scopes, innermost first.
    pub fn scope_rows(&self, id: ScopeId) -> impl Iterator<Item = Scope> {
        let row = move |id: ScopeId| id.index().and_then(|index| self.scopes.get(index)).copied();
        std::iter::successors(row(id), move |scope| row(scope.parent)).take(MAX_DEPTH)
    }

    /// Truncates a module path to at most `depth` names, such as `encoder.layers.3.mlp` to `encoder.layers` for depth
    /// 2.
    pub fn scope_to_depth(&self, id: ScopeId, depth: usize) -> ScopeId {
        let surplus = self.scope_rows(id).count().saturating_sub(depth.max(1));
        let parent = |id: ScopeId| id.index().and_then(|index| self.scopes.get(index)).map(|scope| scope.parent);
        (0..surplus).fold(id, |id, _| parent(id).unwrap_or(ScopeId::NONE))
    }

    /// The operation's row, if there is one.
    pub fn op(&self, id: OpId) -> Option<&Op> {
        id.index().and_then(|index| self.ops.get(index))
    }

    /// The operation's name; empty for `NONE`.
    pub fn op_name(&self, id: OpId) -> &str {
        self.op(id).map_or("", |op| self.string(op.name))
    }

    /// The frames of a stack, innermost first.
    pub fn stack_frames(&self, id: StackId) -> impl Iterator<Item = FrameId> {
        let row = move |id: StackId| id.index().and_then(|index| self.stacks.get(index)).copied();
        std::iter::successors(row(id), move |stack| row(stack.parent)).take(MAX_DEPTH).map(|stack| stack.frame)
    }

    /// The source lines of a frame, innermost (inlined) first; empty if the frame is not symbolized.
    pub fn frame_lines(&self, id: FrameId) -> &[SourceLine] {
        let Some(frame) = id.index().and_then(|index| self.frames.get(index)) else {
            return &[];
        };
        let first = frame.first_line as usize;
        self.lines.get(first..first + frame.line_count as usize).unwrap_or(&[])
    }

    /// Whether a frame is an address in a module that has not been symbolized yet.
    pub fn is_unresolved(&self, id: FrameId) -> bool {
        let frame = id.index().and_then(|index| self.frames.get(index));
        frame.is_some_and(|frame| frame.module.is_some() && frame.line_count == 0)
    }

    /// Returns the lines of a stack, innermost first: one entry per source line, formatted by [`Self::line_text`]. A
    /// frame without symbols gives one entry with its module and address.
    pub fn stack_text(&self, id: StackId) -> Vec<String> {
        self.stack_lines(id, |line| self.line_text(line))
    }

    /// Returns the lines of a stack in the folded format of flame graph tools: outermost first, separated by `;`, each
    /// with the function before its location, such as `forward (model.py:10)`. Separators in names are replaced.
    pub fn folded_text(&self, id: StackId) -> String {
        let mut lines = self.stack_lines(id, |line| {
            let function = function_text(self.string(line.function));
            match (self.string(line.file), line.line) {
                ("", _) => function.into_owned(),
                (file, 0) => format!("{function} ({file})"),
                (file, number) => format!("{function} ({file}:{number})"),
            }
        });
        lines.reverse();
        lines.iter_mut().for_each(|line| *line = printable(&line.replace(';', ":")).into_owned());
        lines.join(";")
    }

    fn stack_lines(&self, id: StackId, text: impl Fn(&SourceLine) -> String) -> Vec<String> {
        let mut out = Vec::new();
        for frame in self.stack_frames(id) {
            let lines = self.frame_lines(frame);
            out.extend(lines.iter().map(&text));
            if lines.is_empty() {
                out.push(self.address_text(frame));
            }
        }
        out
    }

    /// A source line as text, such as `path/file.py:184 function`, see [`LineText`]; never empty.
    pub fn line_text(&self, line: &SourceLine) -> String {
        let path = match self.string(line.file) {
            UNKNOWN_FILE => "",
            path => path,
        };
        let function = match function_text(self.string(line.function)) {
            name if name.is_empty() && path.is_empty() => Cow::Borrowed("(no name)"),
            name => name,
        };
        // For a library, PyTorch records an address in place of the line number.
        let is_library = path.ends_with(".so") || path.contains(".so.");
        LineText { path, line: if is_library { 0 } else { line.line }, function: &function }.to_string()
    }

    /// The module and address of a frame.
    pub fn address_text(&self, id: FrameId) -> String {
        let Some(frame) = id.index().and_then(|index| self.frames.get(index)) else {
            return "?".to_owned();
        };
        let module = frame.module.index().and_then(|index| self.modules.get(index));
        match module {
            Some(module) => format!("{:#x} in {}", frame.address, self.string(module.path)),
            None => format!("{:#x}", frame.address),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scopes_and_stacks_read_from_their_trees() {
        let tables = Tables {
            strings: ["encoder", "mlp", "forward", "src/model.rs", "main"].map(String::from).to_vec(),
            scopes: vec![
                Scope { parent: ScopeId::NONE, name: StringId(0) },
                Scope { parent: ScopeId(0), name: StringId(1) },
            ],
            lines: vec![SourceLine { function: StringId(2), file: StringId(3), line: 12 }],
            frames: vec![
                Frame { module: ModuleId::NONE, address: 0x10, first_line: 0, line_count: 0 },
                Frame { module: ModuleId::NONE, address: 0x20, first_line: 0, line_count: 1 },
            ],
            stacks: vec![
                Stack { parent: StackId::NONE, frame: FrameId(0) },
                Stack { parent: StackId(0), frame: FrameId(1) },
            ],
            ..Tables::default()
        };
        assert_eq!(tables.scope_path(ScopeId(1)), "encoder.mlp");
        assert_eq!(tables.scope_path(ScopeId::NONE), "");
        assert_eq!(tables.stack_text(StackId(1)), ["src/model.rs:12 forward", "0x10"]);
        assert_eq!(tables.folded_text(StackId(1)), "0x10;forward (src/model.rs:12)");
        let mut tables = Tables { strings: vec!["at::mm".into(), "/lib/libtorch_cpu.so".into()], ..Tables::default() };
        tables.lines.push(SourceLine { function: StringId(0), file: StringId(1), line: 83_934_254 });
        assert_eq!(tables.line_text(&tables.lines[0]), "at::mm (/lib/libtorch_cpu.so)", "an address is no line number");
    }
}
