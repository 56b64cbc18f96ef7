//! Derives advice on how to lower a peak from the recording. Figures are counterfactual peaks, as computed by
//! `whatif --without`; advice whose effect only a replay or another run can measure has no figure. If the recording
//! ends in an out-of-memory error, the text names the part that the figures cover, and figures for incomplete optimizer
//! state are omitted.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::Layers;
use super::findings::{MIN_PERCENT, MIN_PERCENT_OF_STATE};
use super::peak_context::{PeakContext, TOP_LINES, share, with_share};
use super::remedy::{Advice, Remedy};
use super::selection::is_kept_gradient;
use super::state::is_being_created;
use crate::grouping::condition::any_of;
use crate::grouping::dimension::GroupKey;
use crate::grouping::key_encoder::{Code, KeyEncoder};
use crate::index::beside::Beside;
use crate::index::pools::{BlockPool, Pools};
use crate::question::between::bytes_of;
use highwater_snapshots::alloc_rules::AllocRules;
use highwater_snapshots::ids::{BlockId, ScopeId};
use highwater_snapshots::line_text::unique_suffixes;
use highwater_snapshots::trace::Trace;
use highwater_snapshots::units::format_bytes;
use highwater_snapshots::{Category, Phase};

/// Minimum number of bytes outside of blocks that is worth advice.
pub(super) const MIN_BESIDE: u64 = 64 << 20;

/// All advice, most effective first.
pub(super) fn advise(scene: &PeakContext<'_>) -> Vec<Advice> {
    let is_state = scene.peak.is_state;
    let rules = [
        scene.fused_optimizer(),
        scene.step_in_backward(),
        scene.checkpoint().or_else(|| scene.fewer_activations()),
        scene.smaller_state(),
        scene.free_after_last_use(),
        scene.fewer_temporaries(Phase::Forward),
        scene.fewer_temporaries(Phase::Backward),
        scene.fewer_temporaries(Phase::Eval),
        scene.stream_waits(),
        // The concurrent use of pools, and the blocks live before recording began, cannot be known without events;
        // neither can a replay with other settings.
        scene.share_pools().filter(|_| !is_state),
        scene.expandable_segments().filter(|_| !is_state),
        scene.outside(),
        scene.earlier_recording().filter(|_| !is_state),
        scene.fix_leak(),
        scene.smaller_buffers(),
        scene.segment_churn(),
    ];
    let mut advice: Vec<Advice> = rules.into_iter().flatten().collect();
    Advice::sort(&mut advice, scene.peak.bytes);
    advice
}

/// The free bytes in segments of private pools, by pool.
pub(super) fn free_in_private(beside: &[(Beside, u64)]) -> impl Iterator<Item = (BlockPool, u64)> {
    beside.iter().filter_map(|(beside, bytes)| match beside {
        Beside::Free(Some(place)) if place.pool.is_private() => Some((place.pool, *bytes)),
        _ => None,
    })
}

impl PeakContext<'_> {
    fn step_in_backward(&self) -> Option<Advice> {
        let (_, bytes) = self.pick(|id| is_kept_gradient(self.trace, id));
        let without = self.findings.of_kept_gradients;
        let without = without.filter(|_| self.findings.could_step_in_backward)?;
        let text = format!(
            "{} are gradients kept until the optimizer step. An optimizer step in backward updates each parameter as soon \
             as its gradient is complete, and frees the gradient at once: {}.",
            self.with_share(bytes),
            self.peak_without(&without),
        );
        let condition = Some("category=gradient lifetime=step,steps,kept".to_owned());
        Some(Advice { without: Some(without), condition, ..Advice::new(Remedy::StepInBackward, bytes, text) })
    }

    /// Advice to checkpoint activations of numbered modules, such as the blocks of a transformer.
    fn checkpoint(&self) -> Option<Advice> {
        let trace = self.trace;
        let (blocks, _) = self.kept_activations();
        let mut rows: HashMap<ScopeId, Option<(String, String)>> = HashMap::new();
        let mut row_of =
            |scope: ScopeId| rows.entry(scope).or_insert_with(|| numbered(&trace.tables.scope_path(scope))).clone();
        let mut sums: HashMap<String, (u64, HashMap<String, u64>)> = HashMap::new();
        for &id in &blocks {
            if let Some((row, number)) = row_of(trace.blocks.scope[id.0 as usize]) {
                let (sum, of_number) = sums.entry(row).or_default();
                let bytes = bytes_of(trace, self.peak.metric, id);
                *sum += bytes;
                *of_number.entry(number).or_default() += bytes;
            }
        }
        let (row, (bytes, numbers)) = sums.into_iter().max_by_key(|(row, (bytes, _))| (*bytes, row.clone()))?;
        if !self.is_at_least(bytes, MIN_PERCENT_OF_STATE) || numbers.len() < 2 {
            return None;
        }
        let is_in_row: Vec<bool> = (0..trace.tables.scopes.len())
            .map(|scope| row_of(ScopeId(scope as u32)).is_some_and(|(of, _)| of == row))
            .collect();
        let in_row = |scope: ScopeId| scope.index().is_some_and(|scope| is_in_row.get(scope) == Some(&true));
        let largest = numbers.values().copied().max().unwrap_or(0);
        let all: u64 = self.findings.operations.values().sum();
        let in_modules = self.findings.operations.iter().filter(|(scope, _)| in_row(**scope));
        let again: u64 = in_modules.map(|(_, count)| count).sum();
        // Operations may not be recorded, and after a failed request those that would have followed are unknown.
        let repeats = if again > 0 && !self.has_failed {
            format!(", which repeats {} of all operations", share(again, all))
        } else {
            String::new()
        };
        let text = format!(
            "{} are activations that the {} modules {row}.* keep for backward.{} Checkpointing keeps only their \
             inputs and recomputes the rest, one module at a time (at most {} each){repeats}.",
            self.with_share(bytes),
            numbers.len(),
            self.without_backward(&blocks),
            format_bytes(largest),
        );
        let condition = condition_of_row(trace, &row, in_row).map(|scopes| format!("category=activation {scopes}"));
        Some(Advice { condition, ..Advice::new(Remedy::Checkpoint, bytes, text) })
    }

    /// Advice on activations by line of code, for recordings without activations in numbered modules.
    fn fewer_activations(&self) -> Option<Advice> {
        let trace = self.trace;
        let (blocks, bytes) = self.kept_activations();
        let found = self.findings.of_activation_lines.as_ref()?;
        if !self.is_at_least(bytes, MIN_PERCENT_OF_STATE) {
            return None;
        }
        let mut coder = KeyEncoder::new(trace);
        let mut sums: HashMap<Code, u64> = HashMap::new();
        for &id in &blocks {
            let line = coder.code(id, GroupKey::Frame);
            *sums.entry(line).or_default() += bytes_of(trace, self.peak.metric, id);
        }
        let mut rows: Vec<(Code, u64, String)> =
            sums.into_iter().map(|(line, bytes)| (line, bytes, coder.label(GroupKey::Frame, line))).collect();
        rows.retain(|(_, bytes, name)| self.is_at_least(*bytes, MIN_PERCENT) && name != "(none)");
        rows.sort_by_key(|&(line, bytes, _)| (std::cmp::Reverse(bytes), line));
        rows.truncate(TOP_LINES);
        let names = unique_suffixes(&rows.iter().map(|(.., name)| name).collect::<Vec<_>>());
        let line = |((line, at_line, _), name): (&(Code, u64, String), &String)| {
            let left = found.without(&[*line]);
            // A line that allocates everything needs no separate figure.
            let at_line = match *at_line {
                all if all == bytes => "all".to_owned(),
                most if share(most, bytes) == "100%" => "nearly all".to_owned(),
                some => format_bytes(some),
            };
            format!("{at_line} at {name} (without them {} is {})", self.the_peak(left), format_bytes(left.bytes))
        };
        let lines: Vec<String> = rows.iter().zip(&names).map(line).collect();
        let most = if lines.is_empty() { String::new() } else { format!(": {}", lines.join("; ")) };
        let text = format!(
            "{} are activations kept for backward{most}.{} Checkpointing recomputes them in \
             backward, one part at a time; a smaller batch or a 16-bit dtype instead of f32 needs less memory.",
            self.with_share(bytes),
            self.without_backward(&blocks),
        );
        let condition = Some("category=activation".to_owned());
        Some(Advice { condition, ..Advice::new(Remedy::FewerActivations, bytes, text) })
    }

    fn smaller_state(&self) -> Option<Advice> {
        let of = |category| self.pick(|id| self.trace.blocks.category[id.0 as usize] == category).1;
        let (bytes, parameters) = (of(Category::OptimizerState), of(Category::Parameter));
        if !self.is_at_least(bytes, MIN_PERCENT_OF_STATE) {
            return None;
        }
        let beside = match bytes.checked_div(parameters) {
            _ if is_being_created(self.trace, self.peak, self.at_peak, self.findings.unfinished_optimizer.as_ref()) => {
                let when = match self.peak.is_state {
                    true => "then",
                    false if self.fails_after_peak() => "when memory ran out",
                    false => "at the peak",
                };
                format!(", which was still being created {when}: the complete state is larger")
            }
            Some(_) => format!(", {:.1} times the parameters", bytes as f64 / parameters as f64),
            None => String::new(),
        };
        let text = format!(
            "{} are optimizer state{beside}. An 8-bit optimizer, or sharding the state over ranks, needs less.",
            self.with_share(bytes),
        );
        let (without, condition) = (self.findings.of_state, Some("category=optimizer_state".to_owned()));
        Some(Advice { without, condition, ..Advice::new(Remedy::SmallerState, bytes, text) })
    }

    fn free_after_last_use(&self) -> Option<Advice> {
        let idle = self.idle?;
        let bytes = idle.bytes();
        if !self.is_at_least(bytes, MIN_PERCENT) {
            return None;
        }
        let text = format!(
            "{} are live but not used again: {}. Free each after its last use, and do not save or \
             return it for longer: {}.",
            self.with_share(bytes),
            idle.categories(),
            self.peak_without(&idle.without),
        );
        Some(Advice { without: Some(idle.without), ..Advice::new(Remedy::FreeAfterLastUse, bytes, text) })
    }

    fn stream_waits(&self) -> Option<Advice> {
        let totals = self.findings.at_active_peak;
        let bytes = totals.active - totals.allocated;
        if bytes < MIN_BESIDE || !self.is_at_least(bytes, MIN_PERCENT) {
            return None;
        }
        let text = format!(
            "{} are freed and wait for another stream {} ({}). Wait for that stream before the blocks are freed, or copy on \
             the stream that uses them.",
            format_bytes(bytes),
            if self.peak.is_state { "in active memory" } else { "at the peak of active memory" },
            format_bytes(totals.active),
        );
        Some(Advice::new(Remedy::StreamWaits, bytes, text))
    }

    /// Advice on private pools of CUDA graphs, whose free memory only the same pool can reuse.
    fn share_pools(&self) -> Option<Advice> {
        let reserved = self.totals.reserved;
        let mut free: BTreeMap<BlockPool, u64> = BTreeMap::new();
        free_in_private(self.beside).for_each(|(pool, bytes)| *free.entry(pool).or_default() += bytes);
        let bytes: u64 = free.values().sum();
        // A pool that is in use at the peak may have nothing free then, and could share its memory at other moments.
        let pools = Pools::of(self.trace);
        let in_use = self.at_peak.iter().map(|id| pools.pool(self.trace, &self.trace.blocks.get(*id)));
        let reserving: BTreeSet<BlockPool> = free.keys().copied().chain(in_use).collect();
        let sets = self.pools?.private_apart(reserving);
        let (pools, most) = sets.into_iter().max_by_key(|(pools, _)| pools.len())?;
        let text = format!(
            "{} of the {} reserved at the peak are free in {} private pools. {} private pools are never in use at the \
             same time, and at most {} are in their blocks at once: let them share one pool, as graphs that are captured \
             into it do.",
            with_share(bytes, reserved),
            format_bytes(reserved),
            free.len(),
            pools.len(),
            format_bytes(most),
        );
        Some(Advice::new(Remedy::SharePools, bytes, text))
    }

    fn expandable_segments(&self) -> Option<Advice> {
        const SETTINGS: &str = "expandable_segments:True";
        let reserved = self.totals.reserved;
        // `totals` is at the explained peak, not at the peak of reserved memory.
        let shared = self.share_pools().map_or(0, |advice| advice.bytes);
        let bytes = reserved.checked_sub(self.totals.active)?.checked_sub(shared)?;
        let device = self.peak.device;
        let can_expand = self.trace.allocator(device).has_settings()
            && !AllocRules::of(self.trace.device_facts(device)).is_expandable
            && !self.has_mapped_segments();
        if !can_expand || bytes < MIN_BESIDE || u128::from(bytes) * 10 < u128::from(reserved) {
            return None;
        }
        let text = format!(
            "{} of the {} reserved at the peak are free in segments.",
            with_share(bytes, reserved),
            format_bytes(reserved),
        );
        Some(Advice { settings: Some(SETTINGS), ..Advice::new(Remedy::ExpandableSegments, bytes, text) })
    }

    fn outside(&self) -> Option<Advice> {
        let bytes = Layers::of(self.totals)?.outside?;
        if bytes < MIN_BESIDE || u128::from(bytes) * 100 < u128::from(self.totals.device_used) * u128::from(MIN_PERCENT)
        {
            return None;
        }
        let text = format!(
            "{} of the {} in use on the device are outside the allocator: contexts, libraries, other processes. \
             `nvidia-smi` lists the processes.",
            with_share(bytes, self.totals.device_used),
            format_bytes(self.totals.device_used),
        );
        Some(Advice::new(Remedy::OutsideAllocator, bytes, text))
    }

    fn earlier_recording(&self) -> Option<Advice> {
        let is_unknown = |id: BlockId| {
            let block = self.trace.blocks.get(id);
            block.is_from_before() && !block.stack.is_some() && block.category == Category::Unknown
        };
        let (_, bytes) = self.pick(is_unknown);
        if !self.is_at_least(bytes, 2 * MIN_PERCENT_OF_STATE) {
            return None;
        }
        let text = format!(
            "{} were live before recording began, without a stack: start recording before the model is built.",
            self.with_share(bytes),
        );
        let condition = Some("category=unknown lifetime=always,before stack=".to_owned());
        Some(Advice { condition, ..Advice::new(Remedy::EarlierRecording, bytes, text) })
    }

    /// Returns an additional sentence if at least half of the bytes of `blocks` were freed although the complete
    /// recording
    /// has no backward, otherwise an empty text.
    fn without_backward(&self, blocks: &[BlockId]) -> &'static str {
        let bytes_of_all = |is_one: &dyn Fn(&BlockId) -> bool| -> u64 {
            let chosen = blocks.iter().filter(|id| is_one(id));
            chosen.map(|id| bytes_of(self.trace, self.peak.metric, *id)).sum()
        };
        let freed = bytes_of_all(&|id| self.trace.blocks.get(*id).is_freed());
        let is_cut = self.has_failed || self.trace.trust.unfinished;
        if self.findings.has_backward || is_cut || freed * 2 < bytes_of_all(&|_| true) {
            return "";
        }
        " The recording has no backward: for inference, run forward under `torch.no_grad()`, which keeps none of \
         them."
    }
}

/// Splits a module path at its first number, such as `blocks.3.mlp` into `blocks` and `3`; `None` if it has none, or
/// nothing before it.
fn numbered(path: &str) -> Option<(String, String)> {
    let mut before: Vec<&str> = Vec::new();
    for part in path.split('.') {
        if !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()) {
            return (!before.is_empty()).then(|| (before.join("."), part.to_owned()));
        }
        before.push(part);
    }
    None
}

/// Returns the condition for the paths of numbered modules (`blocks` for `blocks.0.mlp`) that selects exactly those for
/// which `in_row` is true; `None` if there is no short condition.
fn condition_of_row(trace: &Trace, row: &str, in_row: impl Fn(ScopeId) -> bool) -> Option<String> {
    let plain = [format!("{row}.")];
    let by_digit: Vec<String> = (0..10).map(|digit| format!("{row}.{digit}")).collect();
    let is_exact = |parts: &&[String]| {
        (0..trace.tables.scopes.len()).map(|scope| ScopeId(scope as u32)).all(|scope| {
            let path = trace.tables.scope_path(scope);
            parts.iter().any(|part| path.contains(part)) == in_row(scope)
        })
    };
    let parts = [&plain[..], &by_digit].into_iter().find(is_exact)?;
    any_of("scope~", parts.iter().map(String::as_str))
}
