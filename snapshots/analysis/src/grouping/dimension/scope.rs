//! The path of the module that allocated a block.

use highwater_snapshots::ids::ScopeId;
use highwater_snapshots::trace::Trace;

use super::{Dimension, Values, number};

pub(super) static SCOPE: Dimension = Dimension {
    hint: "module that allocated the block: encoder.layers.3",
    number: number!(|lookups, id| Some(u64::from(lookups.trace.blocks.scope[id.0 as usize].0))),
    word: |tables, scope| tables.scope_path(ScopeId(scope as u32)).into(),
    ..Dimension::new("scope", Values::Path)
};

/// The path `scope` truncated to `depth` names.
pub(super) fn cut(trace: &Trace, scope: u64, depth: u8) -> u64 {
    u64::from(trace.tables.scope_to_depth(ScopeId(scope as u32), usize::from(depth)).0)
}

/// Replaces the name of a module by `*` if the name consists only of digits, such as that of a layer. Other names may
/// differ in meaning and are unchanged.
pub(crate) fn layer_pattern(name: &str) -> &str {
    let is_number = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    if is_number { "*" } else { name }
}
