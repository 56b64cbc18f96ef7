//! Breakdown: bytes of a set of blocks by category, op, scope and the other keys; the groups add up to the whole.

use std::collections::HashMap;

use serde::Serialize;

use crate::ids::{BlockId, StackId, StringId};
use crate::intern::Interner;
use crate::tables::SourceLine;
use crate::trace::{Block, Trace};
use crate::units::format_bytes;

use super::frames::user_line;
use super::metric::Metric;

pub use super::lifetime::Lifetime;

/// Declares the keys with their spelling.
macro_rules! keys {
    ($($(#[$doc:meta])* $variant:ident = $text:literal,)+) => {
        /// What blocks are grouped by.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
        pub enum GroupKey { $($(#[$doc])* $variant,)+ }

        impl GroupKey {
            /// Every key.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The one spelling.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $text,)+ }
            }
        }
    };
}

keys! {
    /// What the block is for.
    Category = "category",
    /// The operation's name.
    Op = "op",
    /// The module path.
    Scope = "scope",
    /// The phase of the allocation.
    Phase = "phase",
    /// The step of the allocation.
    Step = "step",
    /// The whole stack of the allocation.
    Stack = "stack",
    /// The innermost source line that is not machinery.
    Frame = "frame",
    /// The exact requested size.
    Size = "size",
    /// The stream.
    Stream = "stream",
    /// The allocator's pool.
    Pool = "pool",
    /// How long it lives, in phases and steps.
    Lifetime = "lifetime",
}

impl GroupKey {
    /// Reads a comma-separated list of keys.
    pub fn parse_list(text: &str) -> Result<Vec<Self>, String> {
        let known = || Self::ALL.iter().map(|key| key.name()).collect::<Vec<_>>().join(", ");
        text.split(',')
            .map(|word| {
                let key = Self::ALL.iter().copied().find(|key| key.name() == word.trim());
                key.ok_or_else(|| format!("no key '{}': keys are {}", word.trim(), known()))
            })
            .collect()
    }
}

/// Blocks that share the values of all keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Group {
    /// The values of the keys, in the order of the keys.
    pub key: Vec<String>,
    /// Their bytes.
    pub bytes: u64,
    /// How many they are.
    pub blocks: u64,
    /// The stack, where that is one of the keys.
    #[serde(skip)]
    pub stack: StackId,
}

/// A set of blocks in groups, largest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Breakdown {
    /// The bytes of all groups and the rest.
    pub total: u64,
    /// The largest groups.
    pub groups: Vec<Group>,
    /// The bytes of the groups that are not listed.
    pub rest_bytes: u64,
    /// How many groups are not listed.
    pub rest_groups: u64,
}

impl Breakdown {
    /// Groups `blocks` by `keys`, counting bytes as `metric` does (requested bytes, else rounded ones), and lists the
    /// `top` largest groups. `beside` are bytes that no block accounts for, each a group of its own, by name.
    pub fn of(trace: &Trace, metric: Metric, blocks: &[BlockId], grouping: &Grouping<'_>) -> Self {
        let keys = grouping.keys;
        let mut sums: HashMap<Vec<u64>, (u64, u64)> = HashMap::new();
        let mut coder = Coder { trace, lines: Interner::default(), line_of: HashMap::new() };
        let mut code = vec![0; keys.len()];
        for &id in blocks {
            let block = trace.blocks.get(id);
            for (slot, &key) in code.iter_mut().zip(keys) {
                *slot = coder.code(&block, key);
            }
            let bytes = if metric == Metric::Requested { block.requested } else { block.allocated };
            match sums.get_mut(&code) {
                Some((sum, count)) => (*sum, *count) = (*sum + bytes, *count + 1),
                None => {
                    sums.insert(code.clone(), (bytes, 1));
                }
            }
        }
        let beside = grouping.beside.iter().filter(|(_, bytes)| *bytes > 0);
        let beside = beside.map(|&(name, bytes)| (Named::Beside(name), bytes, 0));
        let mut rows: Vec<(Named<'_>, u64, u64)> = beside.collect();
        rows.extend(sums.into_iter().map(|(code, (bytes, blocks))| (Named::Blocks(code), bytes, blocks)));
        rows.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let total = rows.iter().map(|(_, bytes, _)| bytes).sum();
        let rest = rows.split_off(grouping.top.min(rows.len()));
        let group = |(name, bytes, blocks): &(Named<'_>, u64, u64)| {
            // Names are made for what is listed alone: a recording may have a million stacks.
            let key = match name {
                Named::Beside(name) => keys.iter().map(|_| (*name).to_owned()).collect(),
                Named::Blocks(code) => keys.iter().zip(code).map(|(&key, &code)| coder.label(key, code)).collect(),
            };
            let stack = match name {
                Named::Beside(_) => None,
                Named::Blocks(code) => {
                    keys.iter().zip(code).find(|(key, _)| **key == GroupKey::Stack).map(|(_, &code)| code)
                }
            };
            let stack = stack.map_or(StackId::NONE, |code| StackId(code as u32));
            Group { key, bytes: *bytes, blocks: *blocks, stack }
        };
        Self {
            total,
            groups: rows.iter().map(group).collect(),
            rest_bytes: rest.iter().map(|(_, bytes, _)| bytes).sum(),
            rest_groups: rest.len() as u64,
        }
    }
}

/// How blocks are grouped.
#[derive(Clone, Copy, Debug)]
pub struct Grouping<'a> {
    /// By what.
    pub keys: &'a [GroupKey],
    /// Bytes that no block accounts for, each a group of its own.
    pub beside: &'a [(&'a str, u64)],
    /// How many groups are listed.
    pub top: usize,
}

/// A group before it has its names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Named<'a> {
    Blocks(Vec<u64>),
    Beside(&'a str),
}

const NO_STEP: u64 = u64::MAX;

/// Turns a block's value of a key into a number, and such a number into text.
struct Coder<'a> {
    trace: &'a Trace,
    /// The user lines met so far.
    lines: Interner<SourceLine>,
    /// The user line of each stack met so far.
    line_of: HashMap<StackId, u64>,
}

impl Coder<'_> {
    fn code(&mut self, block: &Block, key: GroupKey) -> u64 {
        let trace = self.trace;
        match key {
            GroupKey::Category => u64::from(block.category as u8),
            GroupKey::Op => {
                let name = trace.tables.op(block.op).map_or(StringId::NONE, |op| op.name);
                u64::from(name.0)
            }
            GroupKey::Scope => u64::from(block.scope.0),
            GroupKey::Phase => u64::from(phase_of(trace, block) as u8),
            GroupKey::Step => step_of(trace, block).map_or(NO_STEP, u64::from),
            GroupKey::Stack => u64::from(block.stack.0),
            GroupKey::Frame => {
                let lines = &mut self.lines;
                *self.line_of.entry(block.stack).or_insert_with(|| {
                    let line = user_line(&trace.tables, block.stack);
                    line.map_or(u64::MAX, |line| u64::from(lines.intern(line)))
                })
            }
            GroupKey::Size => block.requested,
            GroupKey::Stream => block.stream.0,
            GroupKey::Pool => u64::from(block.pool as u8),
            GroupKey::Lifetime => Lifetime::of(trace, block) as u64,
        }
    }

    fn label(&self, key: GroupKey, code: u64) -> String {
        let tables = &self.trace.tables;
        let or_none = |text: &str| {
            if text.is_empty() { "(none)".to_owned() } else { text.to_owned() }
        };
        match key {
            GroupKey::Category => name_of(crate::Category::from_code(code as u8).map(crate::Category::name)),
            GroupKey::Op => or_none(tables.string(StringId(code as u32))),
            GroupKey::Scope => or_none(&tables.scope_path(crate::ScopeId(code as u32))),
            GroupKey::Phase => name_of(crate::Phase::from_code(code as u8).map(crate::Phase::name)),
            GroupKey::Step if code == NO_STEP => "(none)".to_owned(),
            GroupKey::Step | GroupKey::Stream => code.to_string(),
            GroupKey::Stack => or_none(&tables.stack_text(StackId(code as u32)).join("\n")),
            GroupKey::Frame => match usize::try_from(code).ok().and_then(|code| self.lines.rows().get(code)) {
                Some(line) => tables.line_text(line),
                None => "(none)".to_owned(),
            },
            GroupKey::Size => exact_size(code),
            GroupKey::Pool => name_of(crate::Pool::from_code(code as u8).map(crate::Pool::name)),
            GroupKey::Lifetime => Lifetime::ALL[code as usize].name().to_owned(),
        }
    }
}

fn name_of(name: Option<&'static str>) -> String {
    name.unwrap_or("(none)").to_owned()
}

/// A size that two different sizes never share: binary units where they are whole, else bytes.
fn exact_size(bytes: u64) -> String {
    let text = format_bytes(bytes);
    if text.contains('.') { format!("{bytes} B") } else { text }
}

/// The phase in which a block was made; the baseline counts as setup.
pub fn phase_of(trace: &Trace, block: &Block) -> crate::Phase {
    if block.is_baseline() {
        return crate::Phase::Setup;
    }
    trace.spans.at(block.alloc).map_or(crate::Phase::Other, |span| span.phase)
}

/// The step in which a block was made; none for the baseline and before the first step.
pub fn step_of(trace: &Trace, block: &Block) -> Option<u32> {
    if block.is_baseline() { None } else { trace.spans.at(block.alloc)?.step }
}
