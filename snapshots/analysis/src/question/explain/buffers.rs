//! Advice on buffers that account for much of a peak, such as a KV cache.

use super::findings::MIN_PERCENT_OF_STATE;
use super::peak_context::{PeakContext, TOP_LINES};
use super::remedy::{Advice, Remedy};
use crate::grouping::dimension::GroupKey;
use crate::grouping::live_groups::LiveGroups;
use crate::question::between::bytes_of;
use crate::rewrite::guess::roles::{Role, Roles};
use highwater_snapshots::Category;
use highwater_snapshots::ids::BlockId;
use highwater_snapshots::line_text::unique_suffixes;
use highwater_snapshots::units::{count_of, format_bytes};

impl PeakContext<'_> {
    pub(super) fn smaller_buffers(&self) -> Option<Advice> {
        let trace = self.trace;
        let (blocks, bytes) = self.pick(|id| trace.blocks.category[id.0 as usize] == Category::Buffer);
        if !self.is_at_least(bytes, 2 * MIN_PERCENT_OF_STATE) {
            return None;
        }
        let sum = |blocks: &[BlockId]| blocks.iter().map(|id| bytes_of(trace, self.peak.metric, *id)).sum::<u64>();
        let count = |blocks: &[BlockId]| count_of(blocks.len() as u64, "block");
        let holders = LiveGroups::of(trace, &blocks, &[GroupKey::Frame], TOP_LINES);
        let mut named: Vec<_> = holders.groups.iter().filter(|group| group.key != ["(none)"]).collect();
        named.sort_by_key(|group| std::cmp::Reverse(sum(&group.blocks)));
        let names = unique_suffixes(&named.iter().map(|group| group.key.join(" ")).collect::<Vec<_>>());
        let lines = match named.as_slice() {
            [] => format!(" ({})", count(&blocks)),
            [all] if all.blocks.len() == blocks.len() => {
                format!(" allocated at {} ({})", names[0], count(&all.blocks))
            }
            some => {
                let line = |(blocks, name): (&[BlockId], &String)| {
                    format!("{} at {name} ({})", format_bytes(sum(blocks)), count(blocks))
                };
                let lines: Vec<String> = some.iter().map(|group| &*group.blocks).zip(&names).map(line).collect();
                format!(" ({}), of which {}", count(&blocks), lines.join(", "))
            }
        };
        let roles = Roles::of(&trace.tables);
        let cached = blocks.iter().copied().filter(|id| roles.role(trace.blocks.stack[id.0 as usize]) == Role::Cache);
        let cached = sum(&cached.collect::<Vec<_>>());
        let advice = match u128::from(cached) * 2 > u128::from(bytes) {
            true => ". A KV cache needs less with fewer or smaller blocks, or with an 8-bit dtype.",
            false => ".",
        };
        let text = format!("{} are buffers{lines}{advice}", self.with_share(bytes));
        let condition = Some("category=buffer".to_owned());
        Some(Advice { condition, ..Advice::new(Remedy::SmallerBuffers, bytes, text) })
    }
}
