//! Encodes a block's key values as numbers, decodes them to text, and groups all blocks of a device by them.

use std::collections::HashMap;

use highwater_snapshots::ids::{BlockId, DeviceId, StackId, StringId};
use highwater_snapshots::intern::Interner;
use highwater_snapshots::tables::SourceLine;
use highwater_snapshots::trace::{Block, Trace};
use highwater_snapshots::units::format_exact_bytes;

use super::alike_stacks::AlikeStacks;
use super::counterfactual::{Grouped, NO_GROUP};
use super::frames::user_line;
use super::group_key::GroupKey;
use super::lifetime::{Lifetime, step_of};
use super::origin::Origin;
use super::pools::{BlockPool, Pools};

const NO_STEP: u64 = u64::MAX;

/// Encodes a block's value of a key as a number, and decodes such a number to text.
pub(super) struct Coder<'a> {
    trace: &'a Trace,
    pools: Pools,
    /// The user lines seen so far.
    lines: Interner<SourceLine>,
    /// The user line of each stack seen so far.
    line_of: HashMap<StackId, u64>,
    /// Built when a stack is first encoded.
    alike: Option<AlikeStacks>,
}

impl<'a> Coder<'a> {
    /// Creates a coder for the blocks of `trace`.
    pub(super) fn new(trace: &'a Trace) -> Self {
        Self { trace, pools: Pools::of(trace), lines: Interner::default(), line_of: HashMap::new(), alike: None }
    }

    /// The code of `block`'s value of `key`.
    pub(super) fn code(&mut self, block: &Block, key: GroupKey) -> u64 {
        let trace = self.trace;
        match key {
            GroupKey::Category => u64::from(block.category as u8),
            GroupKey::Op => {
                let name = trace.tables.op(block.op).map_or(StringId::NONE, |op| op.name);
                u64::from(name.0)
            }
            GroupKey::Scope => u64::from(block.scope.0),
            GroupKey::ScopeTo(depth) => u64::from(trace.tables.scope_to_depth(block.scope, usize::from(depth)).0),
            GroupKey::Phase => Origin::of(trace, block).code() as u64,
            GroupKey::Step => step_of(trace, block).map_or(NO_STEP, u64::from),
            GroupKey::Stack => {
                let alike = self.alike.get_or_insert_with(|| AlikeStacks::of(&trace.tables));
                u64::from(alike.first(block.stack).0)
            }
            GroupKey::Frame => {
                let lines = &mut self.lines;
                *self.line_of.entry(block.stack).or_insert_with(|| {
                    let line = user_line(&trace.tables, block.stack);
                    line.map_or(u64::MAX, |line| u64::from(lines.intern(line)))
                })
            }
            GroupKey::Size => block.requested,
            GroupKey::Stream => block.stream.0,
            GroupKey::Pool => self.pools.pool(trace, block).code(),
            GroupKey::Lifetime => Lifetime::of(trace, block) as u64,
        }
    }

    /// The text of a code.
    pub(super) fn label(&self, key: GroupKey, code: u64) -> String {
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
            GroupKey::Step if code == NO_STEP => "(none)".to_owned(),
            GroupKey::Step | GroupKey::Stream => code.to_string(),
            GroupKey::Stack => or_none(&tables.stack_text(StackId(code as u32)).join("\n")),
            GroupKey::Frame => match usize::try_from(code).ok().and_then(|code| self.lines.rows().get(code)) {
                Some(line) => tables.line_text(line),
                None => "(none)".to_owned(),
            },
            GroupKey::Size => exact_size(code),
            GroupKey::Pool => BlockPool::from_code(code).to_string(),
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
pub(super) struct Groups<'a> {
    keys: &'a [GroupKey],
    coder: Coder<'a>,
    /// The group of each block.
    pub(super) grouped: Grouped,
    codes: Vec<Vec<u64>>,
}

impl<'a> Groups<'a> {
    /// Groups the blocks of `device` for which `is_counted` is true by `keys`.
    pub(super) fn of(
        trace: &'a Trace,
        device: DeviceId,
        keys: &'a [GroupKey],
        is_counted: impl Fn(BlockId) -> bool,
    ) -> Self {
        let mut coder = Coder::new(trace);
        let mut number_of: HashMap<Vec<u64>, u32> = HashMap::new();
        let mut codes = Vec::new();
        let mut code = vec![0; keys.len()];
        let of_block = |id: BlockId| {
            if trace.blocks.device[id.0 as usize] != device || !is_counted(id) {
                return NO_GROUP;
            }
            let block = trace.blocks.get(id);
            for (slot, &key) in code.iter_mut().zip(keys) {
                *slot = coder.code(&block, key);
            }
            if let Some(&number) = number_of.get(&code) {
                return number;
            }
            let number = codes.len() as u32;
            number_of.insert(code.clone(), number);
            codes.push(code.clone());
            number
        };
        let group_of = trace.blocks.ids().map(of_block).collect();
        Self { keys, coder, grouped: Grouped { group_of, groups: codes.len() }, codes }
    }

    /// The codes of group `number`, one per key.
    pub(super) fn codes(&self, number: usize) -> &[u64] {
        &self.codes[number]
    }

    /// The texts of these codes.
    pub(super) fn names(&self, number: usize) -> Vec<String> {
        self.keys.iter().zip(&self.codes[number]).map(|(&key, &code)| self.coder.label(key, code)).collect()
    }

    /// The call stack of the group, if it is one of the keys.
    pub(super) fn stack(&self, number: usize) -> StackId {
        let pairs = self.keys.iter().zip(&self.codes[number]);
        pairs
            .filter(|(key, _)| **key == GroupKey::Stack)
            .map(|(_, &code)| StackId(code as u32))
            .next()
            .unwrap_or(StackId::NONE)
    }
}
