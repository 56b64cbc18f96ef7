//! Detects the remedies that the recorded program already uses, so that advice does not recommend them.

use std::collections::HashSet;

use super::peak_context::PeakContext;
use crate::question::between::bytes_of;
use highwater_snapshots::ids::{BlockId, DeviceId};
use highwater_snapshots::trace::{Block, SegmentRole, Trace};
use highwater_snapshots::{Category, Phase};

/// The modules whose activations are recomputed in backward, by [`part_of`] their path.
#[derive(Debug, Default)]
struct RecomputedModules(HashSet<String>);

impl RecomputedModules {
    fn of(trace: &Trace, device: DeviceId) -> Self {
        let scopes: HashSet<_> = trace
            .blocks
            .ids()
            .map(|id| trace.blocks.get(id))
            .filter(|block| block.device == device && block.scope.is_some() && is_recomputed(trace, block))
            .map(|block| block.scope)
            .collect();
        Self(scopes.into_iter().map(|scope| part_of(&trace.tables.scope_path(scope), 1).to_owned()).collect())
    }

    fn contain(&self, path: &str) -> bool {
        [0, 1].into_iter().any(|depth| self.0.contains(part_of(path, depth)))
    }
}

/// Returns whether `block` is an activation that backward allocated, so that its module is being recomputed.
fn is_recomputed(trace: &Trace, block: &Block) -> bool {
    block.category == Category::Activation
        && trace.birth_stage(block).is_some_and(|stage| stage.phase == Phase::Backward)
}

/// Returns the beginning of a module path up to its first number and `depth` further names: for `h.3.mlp.fc`, `h.3` or
/// `h.3.mlp`.
fn part_of(path: &str, depth: usize) -> &str {
    let (mut end, mut more) = (0, None);
    for name in path.split('.') {
        if more == Some(0) {
            return &path[..end - 1];
        }
        end += name.len() + 1;
        more = match more {
            Some(left) => Some(left - 1),
            None => (!name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit())).then_some(depth),
        };
    }
    path
}

impl PeakContext<'_> {
    /// Returns the activations at the peak that are saved from forward, and their bytes. Modules that are recomputed in
    /// backward are excluded, since they save only their inputs.
    pub(super) fn kept_activations(&self) -> (Vec<BlockId>, u64) {
        let trace = self.trace;
        let is_activation = |id: BlockId| trace.blocks.category[id.0 as usize] == Category::Activation;
        if !self.findings.has_backward {
            return self.pick(is_activation);
        }
        let modules = RecomputedModules::of(trace, self.peak.device);
        let is_kept = |id: BlockId| {
            let block = trace.blocks.get(id);
            is_activation(id)
                && !is_recomputed(trace, &block)
                && !modules.contain(&trace.tables.scope_path(block.scope))
        };
        self.pick(is_kept)
    }

    /// Whether most bytes of `blocks` were allocated by a fused optimizer.
    pub(super) fn are_of_fused_optimizer(&self, blocks: &[BlockId]) -> bool {
        let tables = &self.trace.tables;
        let is_fused = |name: &str| name.starts_with("_fused_") || name.contains("::_fused_");
        let is_of_fused = |id: &BlockId| {
            let block = self.trace.blocks.get(*id);
            let mut lines = tables.stack_frames(block.stack).flat_map(|frame| tables.frame_lines(frame));
            is_fused(tables.op_name(block.op)) || lines.any(|line| is_fused(tables.string(line.function)))
        };
        let bytes = |ids: &mut dyn Iterator<Item = &BlockId>| -> u64 {
            ids.map(|id| bytes_of(self.trace, self.peak.metric, *id)).sum()
        };
        bytes(&mut blocks.iter().filter(|id| is_of_fused(id))) * 2 > bytes(&mut blocks.iter())
    }

    /// Whether segments of the device are mapped page by page, regardless of the recorded settings.
    pub(super) fn has_mapped_segments(&self) -> bool {
        let segments = &self.trace.segments;
        let is_mapping =
            |row: usize| segments.device[row] == self.peak.device && segments.role[row] != SegmentRole::Segment;
        (0..segments.len()).any(is_mapping)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_path_ends_after_its_first_number() {
        assert_eq!([0, 1].map(|depth| part_of("h.3.mlp.fc", depth)), ["h.3", "h.3.mlp"]);
        assert_eq!([0, 1].map(|depth| part_of("h.3", depth)), ["h.3", "h.3"]);
        assert_eq!([0, 1].map(|depth| part_of("encoder.mlp", depth)), ["encoder.mlp"; 2]);
        assert_eq!(part_of("", 0), "");
    }
}
