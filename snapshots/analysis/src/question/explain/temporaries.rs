//! Advice on temporaries that are live at a peak.

use std::collections::HashSet;

use super::cause::CategoryAndPhase;
use super::findings::MIN_PERCENT;
use super::peak_context::PeakContext;
use super::remedy::{Advice, Remedy};
use crate::grouping::origin::Origin;
use crate::stacks::fused_form::{FusedForm, fused_form};
use highwater_snapshots::{BlockId, Category, Phase};

impl PeakContext<'_> {
    pub(super) fn fused_optimizer(&self) -> Option<Advice> {
        let cause = CategoryAndPhase { category: Category::Temporary, origin: Origin::Phase(Phase::Optimizer) };
        let (blocks, bytes) = self.of_cause(cause);
        if !self.is_at_least(bytes, MIN_PERCENT) || blocks.len() < 2 || self.are_of_fused_optimizer(&blocks) {
            return None;
        }
        let start =
            format!("{} are temporaries of the optimizer: {}.", self.with_share(bytes), self.live_at_once(&blocks));
        // Code that handles parameters one by one has a separate call site for each intermediate result.
        let mut places = HashSet::new();
        let is_of_many = blocks.iter().any(|id| {
            let block = self.trace.blocks.get(*id);
            !places.insert((block.stack, self.trace.tables.op(block.op).map(|op| op.name)))
        });
        let tables = &self.trace.tables;
        let form = |id: &BlockId| fused_form(tables, self.trace.blocks.get(*id).stack);
        let can_fuse = blocks.iter().any(|id| form(id) != Some(FusedForm::Missing));
        let remedy = if can_fuse { Remedy::FusedOptimizer } else { Remedy::FewerTemporaries };
        let (without, text) = if is_of_many {
            let without = self.without(cause);
            let fused = if can_fuse { "A fused optimizer has none;" } else { "This optimizer has no fused form;" };
            let left = self.peak_without(&without);
            let text =
                format!("{start} {fused} with foreach=False, only those of one parameter are live at a time: {left}.");
            (Some(without), text)
        } else {
            let fused = if can_fuse { ", and a fused optimizer none" } else { "" };
            let text =
                format!("{start} They belong to one parameter at a time. In-place operations need fewer{fused}.");
            (None, text)
        };
        let condition = Some(cause.condition());
        Some(Advice { without, condition, ..Advice::new(remedy, bytes, text) })
    }

    pub(super) fn fewer_temporaries(&self, phase: Phase) -> Option<Advice> {
        let cause = CategoryAndPhase { category: Category::Temporary, origin: Origin::Phase(phase) };
        let (blocks, bytes) = self.of_cause(cause);
        if !self.is_at_least(bytes, MIN_PERCENT) {
            return None;
        }
        let without = self.without(cause);
        let text = format!(
            "{} are temporaries of {phase}: {}. In-place or fused operations, or parts of the batch, need fewer: {}.",
            self.with_share(bytes),
            self.live_at_once(&blocks),
            self.peak_without(&without),
        );
        let condition = Some(cause.condition());
        Some(Advice { without: Some(without), condition, ..Advice::new(Remedy::FewerTemporaries, bytes, text) })
    }
}
