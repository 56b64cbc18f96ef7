//! Encodes a block's key values as numbers, decodes them to text, and groups all blocks of a device by them.

use std::collections::HashMap;

use highwater_snapshots::ids::{BlockId, DeviceId, FrameId, ScopeId, StackId, StreamId, StringId};
use highwater_snapshots::tables::SourceLine;
use highwater_snapshots::trace::Trace;
use highwater_snapshots::units::format_exact_bytes;

use super::alike::{AlikeLines, AlikeOps, AlikeScopes, StackEquivalence};
use super::beside::{Beside, SegmentKind};
use super::counterfactual::{Grouped, NO_GROUP};
use super::frames::{LeadingFrame, leading_frame};
use super::group_key::GroupKey;
use super::lifetime::{Lifetime, step_of};
use super::origin::{Origin, Origins};
use super::pools::{BlockPool, Pools};

/// A key value as a number. Traces that share their tables, such as windows of one recording, have the same codes.
pub(super) type Code = u128;

/// The code of no step, and of no stack.
const NONE: Code = Code::MAX;

/// Set in the codes of bytes that belong to no block: above all codes of blocks but [`NONE`].
const BESIDE: Code = 1 << 100;
/// Set in the code of the size of a segment in which bytes are free.
const IN_SEGMENTS: Code = 1 << 101;

/// The code of the value of `key` that bytes beside blocks have: their name, unless segments have such a value too.
pub(super) fn code_beside(beside: Beside, key: GroupKey) -> Code {
    let place = match beside {
        Beside::Free(place) => place,
        Beside::LessThanReserved | Beside::Outside => None,
    };
    match (key, place) {
        (GroupKey::Pool, Some(SegmentKind { pool, .. })) => Code::from(pool.code()),
        (GroupKey::Stream, Some(SegmentKind { stream, .. })) => Code::from(stream.0),
        (GroupKey::Size, Some(SegmentKind { bytes, .. })) => IN_SEGMENTS | Code::from(bytes),
        _ => {
            let is_same = |other: &Beside| other.name() == beside.name();
            BESIDE | BESIDE_BLOCKS.iter().position(is_same).unwrap_or(0) as Code
        }
    }
}

/// The code of a value that segments do not have.
const NO_VALUE: Code = BESIDE | 0xff;

/// What is known of a segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct SegmentValues {
    pub(super) pool: BlockPool,
    pub(super) stream: StreamId,
    pub(super) bytes: u64,
    /// The stack that obtained it.
    pub(super) stack: StackId,
    /// The step in which it was obtained.
    pub(super) step: Option<u32>,
}

/// The kinds of bytes beside blocks, by code.
const BESIDE_BLOCKS: [Beside; 3] = [Beside::Free(None), Beside::Outside, Beside::LessThanReserved];

/// The call stack among the values of `keys`; none if stacks are no key, or of bytes beside blocks.
pub(super) fn stack_of(keys: &[GroupKey], codes: &[Code]) -> StackId {
    let of = keys.iter().zip(codes).find(|(key, _)| **key == GroupKey::Stack);
    of.and_then(|(_, code)| u32::try_from(*code).ok()).map_or(StackId::NONE, StackId)
}

/// Marks the code of a frame without lines.
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

/// The frame of a code.
fn frame_of_code(code: Code) -> LeadingFrame {
    if code & ADDRESS != 0 {
        return LeadingFrame::Address(FrameId(code as u32));
    }
    let (file, function) = (StringId((code >> 64) as u32), StringId((code >> 32) as u32));
    LeadingFrame::Line(SourceLine { file, function, line: code as u32 })
}

/// Encodes a block's value of a key as a number, and decodes such a number to text. Fastest in the order of blocks.
pub(super) struct KeyEncoder<'a> {
    trace: &'a Trace,
    pools: Pools,
    origins: Origins<'a>,
    /// The code of the frame that represents each stack seen so far.
    line_of: HashMap<StackId, Code>,
    /// What reads the same, found when a value of such a key is first encoded.
    lines: Option<AlikeLines>,
    stacks: Option<StackEquivalence>,
    scopes: Option<AlikeScopes>,
    ops: Option<AlikeOps>,
}

impl<'a> KeyEncoder<'a> {
    /// Creates a coder for the blocks of `trace`.
    pub(super) fn new(trace: &'a Trace) -> Self {
        let (pools, origins) = (Pools::of(trace), Origins::new(trace));
        Self { trace, pools, origins, line_of: HashMap::new(), lines: None, stacks: None, scopes: None, ops: None }
    }

    /// The code of the value of `key` that block `id` has.
    pub(super) fn code(&mut self, id: BlockId, key: GroupKey) -> Code {
        let trace = self.trace;
        let (blocks, row) = (&trace.blocks, id.0 as usize);
        match key {
            GroupKey::Category => Code::from(blocks.category[row] as u8),
            GroupKey::Op => {
                let name = trace.tables.op(blocks.op[row]).map_or(StringId::NONE, |op| op.name);
                Code::from(self.ops.get_or_insert_with(|| AlikeOps::of(&trace.tables)).first(name).0)
            }
            GroupKey::Scope => self.code_of_scope(blocks.scope[row]),
            GroupKey::ScopeTo(depth) => {
                self.code_of_scope(trace.tables.scope_to_depth(blocks.scope[row], usize::from(depth)))
            }
            GroupKey::Phase => self.origins.of(id).code() as Code,
            GroupKey::Step => step_of(trace, &blocks.get(id)).map_or(NONE, Code::from),
            GroupKey::Stack => self.code_of_stack(blocks.stack[row]),
            GroupKey::Frame => self.code_of_frame(blocks.stack[row]),
            GroupKey::Size => Code::from(blocks.requested[row]),
            GroupKey::Stream => Code::from(blocks.stream[row].0),
            GroupKey::Pool => Code::from(self.pools.pool(trace, &blocks.get(id)).code()),
            GroupKey::Lifetime => Lifetime::of(trace, &blocks.get(id)) as Code,
        }
    }

    /// The code of the value of `key` that a segment has.
    pub(super) fn code_of_segment(&mut self, segment: &SegmentValues, key: GroupKey) -> Code {
        match key {
            GroupKey::Pool => Code::from(segment.pool.code()),
            GroupKey::Stream => Code::from(segment.stream.0),
            GroupKey::Size => Code::from(segment.bytes),
            GroupKey::Step => segment.step.map_or(NONE, Code::from),
            GroupKey::Stack => self.code_of_stack(segment.stack),
            GroupKey::Frame => self.code_of_frame(segment.stack),
            GroupKey::Category
            | GroupKey::Op
            | GroupKey::Scope
            | GroupKey::ScopeTo(_)
            | GroupKey::Phase
            | GroupKey::Lifetime => NO_VALUE,
        }
    }

    fn code_of_stack(&mut self, stack: StackId) -> Code {
        let tables = &self.trace.tables;
        let lines = self.lines.get_or_insert_with(|| AlikeLines::of(tables));
        let stacks = self.stacks.get_or_insert_with(|| StackEquivalence::of(tables, lines));
        Code::from(stacks.first(stack).0)
    }

    fn code_of_frame(&mut self, stack: StackId) -> Code {
        let tables = &self.trace.tables;
        *self.line_of.entry(stack).or_insert_with(|| {
            let lines = self.lines.get_or_insert_with(|| AlikeLines::of(tables));
            let first = |frame| match frame {
                LeadingFrame::Line(line) => LeadingFrame::Line(lines.first(line)),
                LeadingFrame::Address(_) => frame,
            };
            leading_frame(tables, stack).map_or(NONE, |frame| code_of_frame(first(frame)))
        })
    }

    fn code_of_scope(&mut self, scope: ScopeId) -> Code {
        let scopes = self.scopes.get_or_insert_with(|| AlikeScopes::of(&self.trace.tables));
        Code::from(scopes.first(scope).0)
    }

    /// The text of a code.
    pub(super) fn label(&self, key: GroupKey, code: Code) -> String {
        let tables = &self.trace.tables;
        let or_none = |text: &str| {
            if text.is_empty() { "(none)".to_owned() } else { text.to_owned() }
        };
        match key {
            GroupKey::Step | GroupKey::Frame if code == NONE => "(none)".to_owned(),
            _ if code & BESIDE > 0 => {
                let beside = BESIDE_BLOCKS.get((code & !BESIDE) as usize);
                name_of(beside.map(|beside| beside.name()))
            }
            GroupKey::Size if code & IN_SEGMENTS > 0 => free_in(code as u64),
            GroupKey::Category => {
                name_of(highwater_snapshots::Category::from_code(code as u8).map(highwater_snapshots::Category::name))
            }
            GroupKey::Op => or_none(tables.string(StringId(code as u32))),
            GroupKey::Scope | GroupKey::ScopeTo(_) => or_none(&tables.scope_path(ScopeId(code as u32))),
            GroupKey::Phase => Origin::from_code(code as usize).name().to_owned(),
            GroupKey::Step | GroupKey::Stream => code.to_string(),
            GroupKey::Stack => or_none(&tables.stack_text(StackId(code as u32)).join("\n")),
            GroupKey::Frame => frame_of_code(code).text(tables),
            GroupKey::Size => exact_size(code as u64),
            GroupKey::Pool => BlockPool::from_code(code as u64).to_string(),
            GroupKey::Lifetime => Lifetime::ALL[code as usize].name().to_owned(),
        }
    }
}

fn name_of(name: Option<&'static str>) -> String {
    name.unwrap_or("(none)").to_owned()
}

/// Formats a size so that two different sizes never read the same: `689.75 MiB`, `16400 KiB`.
pub(super) fn exact_size(bytes: u64) -> String {
    let text = format_exact_bytes(bytes);
    let unit = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    format!("{} {}", &text[..unit], &text[unit..])
}

/// The name of what is free in segments of a size.
pub(super) fn free_in(segment_bytes: u64) -> String {
    format!("(free in segments of {})", exact_size(segment_bytes))
}

/// The blocks of a device in groups, each with its key values.
pub(super) struct Groups {
    /// The group of each block.
    pub(super) grouped: Grouped,
    /// The codes of each group, one per key.
    pub(super) codes: Vec<Vec<Code>>,
}

impl Groups {
    /// Groups the blocks of `device` for which `is_counted` is true by `keys`.
    pub(super) fn of(trace: &Trace, device: DeviceId, keys: &[GroupKey], is_counted: impl Fn(BlockId) -> bool) -> Self {
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
