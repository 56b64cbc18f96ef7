//! Encodes key values of blocks as numbers, decodes these to text, and groups all blocks of a device by them.

use std::collections::HashMap;
use std::sync::OnceLock;

use highwater_snapshots::ids::{BlockId, DeviceId, FrameId, ScopeId, StackId, StringId};
use highwater_snapshots::tables::SourceLine;
use highwater_snapshots::trace::Trace;

use super::dimension::{GroupKey, Lookups, NO_LABEL, Values, free_in};
use crate::index::beside::{Beside, SegmentValues};
use crate::index::counterfactual::{Grouped, NO_GROUP};
use crate::stacks::alike::{AlikeLines, AlikeOps, AlikeScopes, StackEquivalence};
use crate::stacks::frames::{LeadingFrame, leading_frame};

/// A key value as a number. Traces with the same tables, such as windows of a recording, have the same codes.
pub(crate) type Code = u128;

/// The code for a missing step, and for a missing stack.
const NONE: Code = Code::MAX;

/// Bit that marks the codes of bytes outside of blocks, which are above all codes of blocks except [`NONE`].
const BESIDE: Code = 1 << 100;
/// Bit that marks the code of the size of a segment in which bytes are free.
const IN_SEGMENTS: Code = 1 << 101;

/// Returns the code of `key` for bytes outside of blocks: the value of their segment, or otherwise the name of this
/// kind of memory.
pub(crate) fn code_beside(beside: Beside, key: GroupKey) -> Code {
    match beside.segment().and_then(|segment| (key.dimension().of_segment)(&segment)) {
        Some(bytes) if key == GroupKey::Size => IN_SEGMENTS | Code::from(bytes),
        Some(number) => Code::from(number),
        None => {
            let is_same = |other: &Beside| other.name() == beside.name();
            BESIDE | BESIDE_BLOCKS.iter().position(is_same).unwrap_or(0) as Code
        }
    }
}

/// The code of a missing value of a segment.
const NO_VALUE: Code = BESIDE | 0xff;

/// The kinds of bytes outside of blocks, indexed by code.
const BESIDE_BLOCKS: [Beside; 3] = [Beside::Free(None), Beside::Outside, Beside::LessThanReserved];

/// Returns the call stack among the values of `keys`; [`StackId::NONE`] if stacks are not among the keys, or for bytes
/// outside of blocks.
pub(crate) fn stack_of(keys: &[GroupKey], codes: &[Code]) -> StackId {
    let of = keys.iter().zip(codes).find(|(key, _)| **key == GroupKey::Stack);
    of.and_then(|(_, code)| u32::try_from(*code).ok()).map_or(StackId::NONE, StackId)
}

/// Bit that marks the code of a frame without source lines.
const ADDRESS: Code = 1 << 96;

/// The code of the frame that represents a stack.
fn code_of_frame(frame: LeadingFrame) -> Code {
    match frame {
        LeadingFrame::Line(line) => {
            Code::from(line.file.0) << 64 | Code::from(line.function.0) << 32 | Code::from(line.line)
        }
        LeadingFrame::Address(frame) => ADDRESS | Code::from(frame.0),
    }
}

fn frame_of_code(code: Code) -> LeadingFrame {
    if code & ADDRESS != 0 {
        return LeadingFrame::Address(FrameId(code as u32));
    }
    let (file, function) = (StringId((code >> 64) as u32), StringId((code >> 32) as u32));
    LeadingFrame::Line(SourceLine { file, function, line: code as u32 })
}

/// Encodes a block's value of a key as a number, and decodes numbers to text. Fastest if blocks are encoded in order.
pub(crate) struct KeyEncoder<'a> {
    lookups: Lookups<'a>,
    /// The code of the frame that represents each stack that was encoded.
    line_of: HashMap<StackId, Code>,
    /// Tables of lines with equal text, and of stacks, scopes and operations with equal text, built when first needed.
    lines: OnceLock<AlikeLines>,
    stacks: OnceLock<StackEquivalence>,
    scopes: OnceLock<AlikeScopes>,
    ops: OnceLock<AlikeOps>,
}

impl<'a> KeyEncoder<'a> {
    pub(crate) fn new(trace: &'a Trace) -> Self {
        let (lines, stacks, scopes, ops) = Default::default();
        Self { lookups: Lookups::new(trace), line_of: HashMap::new(), lines, stacks, scopes, ops }
    }

    pub(crate) fn code(&mut self, id: BlockId, key: GroupKey) -> Code {
        let number = key.number(&mut self.lookups, id);
        self.code_of_next(key, number)
    }

    pub(crate) fn code_of_segment(&mut self, segment: &SegmentValues, key: GroupKey) -> Code {
        match (key.dimension().of_segment)(segment) {
            None if key != GroupKey::Step => NO_VALUE,
            number => self.code_of_next(key, number),
        }
    }

    /// Returns the code of a value of `key`. The codes of source lines are cached by stack.
    fn code_of_next(&mut self, key: GroupKey, number: Option<u64>) -> Code {
        let stack = number.filter(|_| matches!(key.dimension().values, Values::Line)).map(|row| StackId(row as u32));
        let Some(stack) = stack else { return self.code_of(key, number) };
        if let Some(code) = self.line_of.get(&stack) {
            return *code;
        }
        let code = self.code_of(key, number);
        self.line_of.insert(stack, code);
        code
    }

    /// The code of a value, which is the code of the first value with the same text.
    pub(crate) fn code_of(&self, key: GroupKey, number: Option<u64>) -> Code {
        let Some(number) = number else { return NONE };
        let (tables, row) = (&self.lookups.trace.tables, number as u32);
        let lines = || self.lines.get_or_init(|| AlikeLines::of(tables));
        match key.dimension().values {
            Values::Text => Code::from(self.ops.get_or_init(|| AlikeOps::of(tables)).first(StringId(row)).0),
            Values::Path => Code::from(self.scopes.get_or_init(|| AlikeScopes::of(tables)).first(ScopeId(row)).0),
            Values::Stack => {
                let stacks = self.stacks.get_or_init(|| StackEquivalence::of(tables, lines()));
                Code::from(stacks.first(StackId(row)).0)
            }
            Values::Line => match leading_frame(tables, StackId(row)) {
                Some(LeadingFrame::Line(line)) => code_of_frame(LeadingFrame::Line(lines().first(line))),
                Some(frame) => code_of_frame(frame),
                None => NONE,
            },
            Values::Words(_) | Values::Bytes | Values::Number => Code::from(number),
        }
    }

    pub(crate) fn label(&self, key: GroupKey, code: Code) -> String {
        let tables = &self.lookups.trace.tables;
        match key.dimension().values {
            _ if code == NONE => NO_LABEL.to_owned(),
            _ if code & BESIDE > 0 => {
                let beside = BESIDE_BLOCKS.get((code & !BESIDE) as usize);
                beside.map_or(NO_LABEL, |beside| beside.name()).to_owned()
            }
            _ if code & IN_SEGMENTS > 0 => free_in(code as u64),
            Values::Line => frame_of_code(code).text(tables),
            _ => key.dimension().label(tables, Some(code as u64)),
        }
    }
}

/// The blocks of a device in groups, each with its key values.
pub(crate) struct Groups {
    pub(crate) grouped: Grouped,
    /// The codes of each group, one per key.
    pub(crate) codes: Vec<Vec<Code>>,
}

impl Groups {
    /// Groups the blocks of `device` for which `is_counted` is true by `keys`.
    pub(crate) fn of(trace: &Trace, device: DeviceId, keys: &[GroupKey], is_counted: impl Fn(BlockId) -> bool) -> Self {
        let mut coder = KeyEncoder::new(trace);
        let mut number_of: hashbrown::HashMap<Vec<Code>, u32> = hashbrown::HashMap::new();
        let mut codes: Vec<Vec<Code>> = Vec::new();
        let mut code = vec![0; keys.len()];
        let mut last = NO_GROUP;
        let of_block = |id: BlockId| {
            if trace.blocks.device[id.0 as usize] != device || !is_counted(id) {
                return NO_GROUP;
            }
            for (slot, &key) in code.iter_mut().zip(keys) {
                *slot = coder.code(id, key);
            }
            // Blocks that follow each other are often of one group.
            if codes.get(last as usize) != Some(&code) {
                last = *number_of.entry_ref(code.as_slice()).or_insert_with(|| {
                    codes.push(code.clone());
                    codes.len() as u32 - 1
                });
            }
            last
        };
        let group_of = trace.blocks.ids().map(of_block).collect();
        Self { grouped: Grouped { group_of, groups: codes.len() }, codes }
    }
}
