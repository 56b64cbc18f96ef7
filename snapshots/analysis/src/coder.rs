//! Encodes a block's key values as numbers, decodes them to text, and groups all blocks of a device by them.

use std::collections::HashMap;

use highwater_snapshots::ids::{BlockId, DeviceId, FrameId, StackId, StringId};
use highwater_snapshots::tables::SourceLine;
use highwater_snapshots::trace::Trace;
use highwater_snapshots::units::format_exact_bytes;

use super::alike_stacks::AlikeStacks;
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
pub(super) struct Coder<'a> {
    trace: &'a Trace,
    pools: Pools,
    origins: Origins<'a>,
    /// The code of the frame that represents each stack seen so far.
    line_of: HashMap<StackId, Code>,
    /// Built when a stack is first encoded.
    alike: Option<AlikeStacks>,
}

impl<'a> Coder<'a> {
    /// Creates a coder for the blocks of `trace`.
    pub(super) fn new(trace: &'a Trace) -> Self {
        Self { trace, pools: Pools::of(trace), origins: Origins::new(trace), line_of: HashMap::new(), alike: None }
    }

    /// The code of the value of `key` that block `id` has.
    pub(super) fn code(&mut self, id: BlockId, key: GroupKey) -> Code {
        let trace = self.trace;
        let (blocks, row) = (&trace.blocks, id.0 as usize);
        match key {
            GroupKey::Category => Code::from(blocks.category[row] as u8),
            GroupKey::Op => Code::from(trace.tables.op(blocks.op[row]).map_or(StringId::NONE, |op| op.name).0),
            GroupKey::Scope => Code::from(blocks.scope[row].0),
            GroupKey::ScopeTo(depth) => {
                Code::from(trace.tables.scope_to_depth(blocks.scope[row], usize::from(depth)).0)
            }
            GroupKey::Phase => self.origins.of(id).code() as Code,
            GroupKey::Step => step_of(trace, &blocks.get(id)).map_or(NONE, Code::from),
            GroupKey::Stack => {
                let alike = self.alike.get_or_insert_with(|| AlikeStacks::of(&trace.tables));
                Code::from(alike.first(blocks.stack[row]).0)
            }
            GroupKey::Frame => *self
                .line_of
                .entry(blocks.stack[row])
                .or_insert_with(|| leading_frame(&trace.tables, blocks.stack[row]).map_or(NONE, code_of_frame)),
            GroupKey::Size => Code::from(blocks.requested[row]),
            GroupKey::Stream => Code::from(blocks.stream[row].0),
            GroupKey::Pool => Code::from(self.pools.pool(trace, &blocks.get(id)).code()),
            GroupKey::Lifetime => Lifetime::of(trace, &blocks.get(id)) as Code,
        }
    }

    /// The text of a code.
    pub(super) fn label(&self, key: GroupKey, code: Code) -> String {
        let tables = &self.trace.tables;
        let or_none = |text: &str| {
            if text.is_empty() { "(none)".to_owned() } else { text.to_owned() }
        };
        match key {
            GroupKey::Category => {
                name_of(highwater_snapshots::Category::from_code(code as u8).map(highwater_snapshots::Category::name))
            }
            GroupKey::Op => or_none(tables.string(StringId(code as u32))),
            GroupKey::Scope | GroupKey::ScopeTo(_) => {
                or_none(&tables.scope_path(highwater_snapshots::ScopeId(code as u32)))
            }
            GroupKey::Phase => Origin::from_code(code as usize).name().to_owned(),
            GroupKey::Step | GroupKey::Frame if code == NONE => "(none)".to_owned(),
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
fn exact_size(bytes: u64) -> String {
    let text = format_exact_bytes(bytes);
    let unit = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    format!("{} {}", &text[..unit], &text[unit..])
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
        let mut coder = Coder::new(trace);
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
