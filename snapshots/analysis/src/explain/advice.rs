//! Advice: what would lower a peak, only where the recording supports it. A figure is a counterfactual peak, which
//! `whatif --without` gives too; what only a replay or another run can tell is stated without one. A recording that ends
//! in an out-of-memory error has figures up to the failed request alone, and none of what was not complete by then.

use std::collections::HashMap;

use super::idle::Idle;
use super::parts::{Cause, Parts};
use super::state::is_being_created;
use super::{Layers, after, sums};
use crate::absence::{Absence, Grouped, absences};
use crate::between::bytes_of;
use crate::coder::Groups;
use crate::group_key::GroupKey;
use crate::holders::Holders;
use crate::lifetime::Lifetime;
use crate::metric::{Metric, Totals};
use crate::peak::Moment;
use crate::series::Series;
use highwater_snapshots::alloc_rules::AllocRules;
use highwater_snapshots::ids::{BlockId, EventId, ScopeId};
use highwater_snapshots::trace::Trace;
use highwater_snapshots::units::format_bytes;
use highwater_snapshots::{Category, Phase};

/// What concerns less than this share of the peak, in percent, is not worth a word.
const LEAST_PERCENT: u64 = 5;
/// Activations and state below this share are what every training step has.
const LEAST_PERCENT_OF_STATE: u64 = 10;
/// Lines of code that are named.
const TOP_LINES: usize = 3;
/// Memory beside the blocks is not worth a word below this.
const LEAST_BESIDE: u64 = 64 << 20;

/// What could be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Remedy {
    /// An optimizer without intermediate results for all parameters at once.
    FusedOptimizer,
    /// The optimizer's step within backward.
    StepInBackward,
    /// Activations computed again in backward.
    Checkpoint,
    /// Fewer or smaller activations, where no modules are named.
    FewerActivations,
    /// Optimizer state in fewer bytes, or on more devices.
    SmallerState,
    /// Blocks that are freed when they were used for the last time.
    FreeAfterLastUse,
    /// Intermediate results that are alive at once.
    FewerTemporaries,
    /// Segments that grow.
    ExpandableSegments,
    /// Blocks that another stream holds back.
    StreamWaits,
    /// Memory that others use.
    OutsideAllocator,
    /// A recording that begins earlier.
    EarlierRecording,
}

/// One piece of advice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advice {
    /// What could be done.
    pub remedy: Remedy,
    /// The bytes at the peak that it concerns.
    pub bytes: u64,
    /// The peak without all of these blocks. None where the remedy does not remove them all, or concerns no blocks.
    pub without: Option<Moment>,
    /// Allocator settings whose effect a replay tells; none where the remedy is no setting.
    pub settings: Option<&'static str>,
    /// The condition that picks the blocks in question, as `--where` has it; none where it is about no blocks, or where
    /// no short condition picks exactly these.
    pub condition: Option<String>,
    /// All that in words.
    pub text: String,
}

/// What advice is drawn from.
pub(super) struct Scene<'a> {
    pub(super) trace: &'a Trace,
    pub(super) series: &'a Series,
    pub(super) peak: &'a Moment,
    pub(super) totals: &'a Totals,
    pub(super) at_peak: &'a [BlockId],
    pub(super) parts: &'a Parts,
    pub(super) idle: Option<&'a Idle>,
    /// The failed request with which the recording ends.
    pub(super) failed: Option<EventId>,
}

/// Everything that can be said, what saves most first.
pub(super) fn advise(scene: &Scene<'_>, of_parts: &[Absence]) -> Vec<Advice> {
    let rules = [
        scene.fused_optimizer(of_parts),
        scene.step_in_backward(),
        scene.checkpoint().or_else(|| scene.fewer_activations()),
        scene.smaller_state(),
        scene.free_after_last_use(),
        scene.fewer_temporaries(of_parts, Phase::Forward),
        scene.fewer_temporaries(of_parts, Phase::Backward),
        scene.stream_waits(),
        scene.expandable_segments(),
        scene.outside(),
        scene.earlier_recording(),
    ];
    let mut advice: Vec<Advice> = rules.into_iter().flatten().collect();
    // Without a figure of what is saved, activations rank by what they hold.
    let saved = |one: &Advice| match (one.remedy, one.without) {
        (_, Some(without)) => scene.peak.bytes.saturating_sub(without.bytes),
        (Remedy::Checkpoint | Remedy::FewerActivations, None) => one.bytes,
        (_, None) => 0,
    };
    advice.sort_by_key(|one| std::cmp::Reverse((saved(one), one.bytes)));
    advice
}

impl Scene<'_> {
    fn is_much(&self, bytes: u64, percent: u64) -> bool {
        bytes > 0 && u128::from(bytes) * 100 >= u128::from(self.peak.bytes) * u128::from(percent)
    }

    fn share(&self, bytes: u64) -> String {
        share(bytes, self.peak.bytes)
    }

    /// The blocks at the peak that `is_one` picks, and their bytes.
    fn pick(&self, is_one: impl Fn(BlockId) -> bool) -> (Vec<BlockId>, u64) {
        let picked: Vec<BlockId> = self.at_peak.iter().copied().filter(|id| is_one(*id)).collect();
        let bytes = picked.iter().map(|id| bytes_of(self.trace, self.peak.metric, *id)).sum();
        (picked, bytes)
    }

    fn of_cause(&self, cause: Cause) -> (Vec<BlockId>, u64) {
        self.pick(|id| self.parts.cause(id) == Some(cause))
    }

    /// The operation that made most of the bytes of `blocks`, or else the line, in brackets.
    fn mostly(&self, blocks: &[BlockId]) -> String {
        for (key, how) in [(GroupKey::Op, "by"), (GroupKey::Frame, "at")] {
            let holders = Holders::of(self.trace, blocks, &[key], 2);
            let named = holders.groups.iter().find(|group| group.key != ["(none)"]);
            if let Some(group) = named {
                let bytes = group.blocks.iter().map(|id| bytes_of(self.trace, self.peak.metric, *id)).sum();
                return format!(" ({} of them {how} {})", format_bytes(bytes), group.key.join(" "));
            }
        }
        String::new()
    }

    fn left(&self, absence: &Absence) -> Moment {
        after(self.trace, self.series, self.peak.metric, absence)
    }

    /// What the peak would be without the blocks that `is_gone` picks, alive at the peak or not.
    fn left_without(&self, is_gone: impl Fn(BlockId) -> bool) -> Moment {
        let grouped = Grouped::one(self.trace, is_gone);
        let found = absences(self.trace, self.series.device(), self.peak.metric, &[&grouped], |_| false);
        self.left(&found[0][0])
    }

    fn fused_optimizer(&self, of_parts: &[Absence]) -> Option<Advice> {
        let cause = Cause { category: Category::Temporary, phase: Phase::Optimizer };
        let (blocks, bytes) = self.of_cause(cause);
        if !self.is_much(bytes, LEAST_PERCENT) || blocks.len() < 2 {
            return None;
        }
        let without = self.left(self.parts.without(cause, of_parts));
        let text = format!(
            "{} ({}) are temporaries of the optimizer, {} live at once{}. A fused optimizer has none, and one without foreach \
             has those of one parameter at a time: {}.",
            format_bytes(bytes),
            self.share(bytes),
            blocks.len(),
            self.mostly(&blocks),
            self.peak_without(&without),
        );
        let condition = Some(cause.condition());
        Some(Advice { remedy: Remedy::FusedOptimizer, bytes, without: Some(without), settings: None, condition, text })
    }

    /// Gradients that outlive their phase: they wait for the optimizer.
    fn step_in_backward(&self) -> Option<Advice> {
        let trace = self.trace;
        let waits = |id: BlockId| {
            let block = trace.blocks.get(id);
            block.device == self.peak.device
                && block.category == Category::Gradient
                && matches!(Lifetime::of(trace, &block), Lifetime::Step | Lifetime::Steps | Lifetime::Kept)
        };
        let (_, bytes) = self.pick(waits);
        if !self.is_much(bytes, LEAST_PERCENT) || !trace.spans.rows().iter().any(|span| span.phase == Phase::Optimizer)
        {
            return None;
        }
        let without = self.left_without(waits);
        let text = format!(
            "{} ({}) are gradients that wait for the optimizer. An optimizer step in backward updates each parameter as soon \
             as its gradient is complete, and frees the gradient at once: {}.",
            format_bytes(bytes),
            self.share(bytes),
            self.peak_without(&without),
        );
        let condition = Some("category=gradient lifetime=step,steps,kept".to_owned());
        Some(Advice { remedy: Remedy::StepInBackward, bytes, without: Some(without), settings: None, condition, text })
    }

    /// Activations of modules that come in numbers, such as the blocks of a transformer.
    fn checkpoint(&self) -> Option<Advice> {
        let trace = self.trace;
        let is_activation = |id: BlockId| trace.blocks.category[id.0 as usize] == Category::Activation;
        let (blocks, _) = self.pick(is_activation);
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
        if !self.is_much(bytes, LEAST_PERCENT_OF_STATE) || numbers.len() < 2 {
            return None;
        }
        let is_in_row: Vec<bool> = (0..trace.tables.scopes.len())
            .map(|scope| row_of(ScopeId(scope as u32)).is_some_and(|(of, _)| of == row))
            .collect();
        let in_row = |scope: ScopeId| scope.index().is_some_and(|scope| is_in_row.get(scope) == Some(&true));
        let largest = numbers.values().copied().max().unwrap_or(0);
        let ops = trace.tables.ops.len().max(1);
        let again = trace.tables.ops.iter().filter(|op| in_row(op.scope)).count();
        // Which operations would have followed a failed request is not known.
        let repeats = match self.failed {
            Some(_) => String::new(),
            None => format!(", which repeats {} of all operations", share(again as u64, ops as u64)),
        };
        let text = format!(
            "{} ({}) are activations that the {} modules {row}.* keep for backward. Checkpointing keeps only their inputs \
             and recomputes the rest, one module at a time (at most {} each){repeats}. A run with it shows the peak that is \
             left.{}",
            format_bytes(bytes),
            self.share(bytes),
            numbers.len(),
            format_bytes(largest),
            self.without_backward(&blocks),
        );
        let condition = condition_of_row(trace, &row, in_row).map(|scopes| format!("category=activation {scopes}"));
        Some(Advice { remedy: Remedy::Checkpoint, bytes, without: None, settings: None, condition, text })
    }

    /// Activations by line of code, where no modules are named.
    fn fewer_activations(&self) -> Option<Advice> {
        let trace = self.trace;
        let device = self.peak.device;
        let is_activation = |id: BlockId| {
            trace.blocks.category[id.0 as usize] == Category::Activation && trace.blocks.device[id.0 as usize] == device
        };
        let (blocks, bytes) = self.pick(is_activation);
        if !self.is_much(bytes, LEAST_PERCENT_OF_STATE) {
            return None;
        }
        let groups = Groups::of(trace, device, &[GroupKey::Frame], is_activation);
        let at_peak = sums(trace, self.peak.metric, &groups.grouped, self.at_peak);
        let mut rows: Vec<usize> = (0..at_peak.len()).filter(|&row| groups.names(row) != ["(none)"]).collect();
        rows.sort_by_key(|&row| (std::cmp::Reverse(at_peak[row].0), row));
        rows.retain(|&row| self.is_much(at_peak[row].0, LEAST_PERCENT));
        let found = absences(trace, device, self.peak.metric, &[&groups.grouped], |_| false);
        let line = |row: &usize| {
            let left = self.left(&found[0][*row]);
            format!(
                "{} at {} (without them {} is {})",
                format_bytes(at_peak[*row].0),
                groups.names(*row).join(" "),
                self.the_peak(),
                format_bytes(left.bytes)
            )
        };
        let lines: Vec<String> = rows.iter().take(TOP_LINES).map(line).collect();
        let most = if lines.is_empty() { String::new() } else { format!(": {}", lines.join("; ")) };
        let text = format!(
            "{} ({}) are activations kept for backward{most}. Checkpointing recomputes them in \
             backward, one part at a time; a smaller batch or a 16-bit dtype in place of f32 needs less.{}",
            format_bytes(bytes),
            self.share(bytes),
            self.without_backward(&blocks),
        );
        let condition = Some("category=activation".to_owned());
        Some(Advice { remedy: Remedy::FewerActivations, bytes, without: None, settings: None, condition, text })
    }

    fn smaller_state(&self) -> Option<Advice> {
        let of = |category| self.pick(|id| self.trace.blocks.category[id.0 as usize] == category).1;
        let (bytes, parameters) = (of(Category::OptimizerState), of(Category::Parameter));
        if !self.is_much(bytes, LEAST_PERCENT_OF_STATE) {
            return None;
        }
        let beside = match bytes.checked_div(parameters) {
            _ if is_being_created(self.trace, self.peak, self.at_peak, self.failed) => {
                ", which was still being created: all of it takes more".to_owned()
            }
            Some(_) => format!(", {:.1} times the parameters", bytes as f64 / parameters as f64),
            None => String::new(),
        };
        let text = format!(
            "{} ({}) are optimizer state{beside}. An 8-bit optimizer, or sharding the state over ranks, needs less.",
            format_bytes(bytes),
            self.share(bytes),
        );
        let is_state = |id: BlockId| self.trace.blocks.category[id.0 as usize] == Category::OptimizerState;
        let (without, condition) = (Some(self.left_without(is_state)), Some("category=optimizer_state".to_owned()));
        Some(Advice { remedy: Remedy::SmallerState, bytes, without, settings: None, condition, text })
    }

    fn free_after_last_use(&self) -> Option<Advice> {
        let idle = self.idle?;
        let bytes = idle.bytes();
        if !self.is_much(bytes, LEAST_PERCENT) {
            return None;
        }
        let text = format!(
            "{} ({}) are held but not used again: {}. Free each after its last use, and keep nothing saved or returned \
             beyond it: {}.",
            format_bytes(bytes),
            self.share(bytes),
            idle.categories(),
            self.peak_without(&idle.without),
        );
        Some(Advice {
            remedy: Remedy::FreeAfterLastUse,
            bytes,
            without: Some(idle.without),
            settings: None,
            condition: None,
            text,
        })
    }

    fn fewer_temporaries(&self, of_parts: &[Absence], phase: Phase) -> Option<Advice> {
        let cause = Cause { category: Category::Temporary, phase };
        let (blocks, bytes) = self.of_cause(cause);
        if !self.is_much(bytes, LEAST_PERCENT) {
            return None;
        }
        let without = self.left(self.parts.without(cause, of_parts));
        let text = format!(
            "{} ({}) are temporaries of {phase}, {} live at once{}. Operations in place, fused, or on parts of the batch need \
             fewer: {}.",
            format_bytes(bytes),
            self.share(bytes),
            blocks.len(),
            self.mostly(&blocks),
            self.peak_without(&without),
        );
        let condition = Some(cause.condition());
        Some(Advice {
            remedy: Remedy::FewerTemporaries,
            bytes,
            without: Some(without),
            settings: None,
            condition,
            text,
        })
    }

    fn stream_waits(&self) -> Option<Advice> {
        let peak = Moment::peak(self.trace, self.series, Metric::Active);
        let totals = self.series.before_position(self.trace, peak.position());
        let bytes = totals.active - totals.allocated;
        if bytes < LEAST_BESIDE || !self.is_much(bytes, LEAST_PERCENT) {
            return None;
        }
        let text = format!(
            "{} are freed and wait for another stream at the peak of active memory ({}). Wait for that stream before the \
             blocks are freed, or copy on the stream that uses them.",
            format_bytes(bytes),
            format_bytes(totals.active),
        );
        Some(Advice { remedy: Remedy::StreamWaits, bytes, without: None, settings: None, condition: None, text })
    }

    fn expandable_segments(&self) -> Option<Advice> {
        const SETTINGS: &str = "expandable_segments:True";
        let reserved = self.totals.reserved;
        // At the peak that is explained, as its layers have it.
        let bytes = reserved.checked_sub(self.totals.active)?;
        let facts = self.trace.device_facts(self.peak.device);
        if AllocRules::of(facts).is_expandable || bytes < LEAST_BESIDE || u128::from(bytes) * 10 < u128::from(reserved)
        {
            return None;
        }
        let text = format!(
            "{} ({}) of the {} reserved at the peak are free in segments.",
            format_bytes(bytes),
            share(bytes, reserved),
            format_bytes(reserved),
        );
        let (without, settings, condition) = (None, Some(SETTINGS), None);
        Some(Advice { remedy: Remedy::ExpandableSegments, bytes, without, settings, condition, text })
    }

    fn outside(&self) -> Option<Advice> {
        let bytes = Layers::of(self.totals)?.outside?;
        if bytes < LEAST_BESIDE
            || u128::from(bytes) * 100 < u128::from(self.totals.device_used) * u128::from(LEAST_PERCENT)
        {
            return None;
        }
        let text = format!(
            "{} ({}) of the {} in use on the device are outside the allocator: contexts, libraries, other processes. \
             `nvidia-smi` lists the processes.",
            format_bytes(bytes),
            share(bytes, self.totals.device_used),
            format_bytes(self.totals.device_used),
        );
        Some(Advice { remedy: Remedy::OutsideAllocator, bytes, without: None, settings: None, condition: None, text })
    }

    fn earlier_recording(&self) -> Option<Advice> {
        let is_unknown = |id: BlockId| {
            let block = self.trace.blocks.get(id);
            block.is_baseline() && !block.stack.is_some() && block.category == Category::Unknown
        };
        let (_, bytes) = self.pick(is_unknown);
        if !self.is_much(bytes, 2 * LEAST_PERCENT_OF_STATE) {
            return None;
        }
        let text = format!(
            "{} ({}) were live before recording began, without a stack: start recording before the model is built.",
            format_bytes(bytes),
            self.share(bytes),
        );
        let condition = Some("category=unknown lifetime=always,before stack=".to_owned());
        Some(Advice { remedy: Remedy::EarlierRecording, bytes, without: None, settings: None, condition, text })
    }

    /// What follows where autograd kept `blocks` and freed most of them with no backward in the whole recording.
    fn without_backward(&self, blocks: &[BlockId]) -> &'static str {
        let bytes_of_all = |is_one: &dyn Fn(&BlockId) -> bool| -> u64 {
            let chosen = blocks.iter().filter(|id| is_one(id));
            chosen.map(|id| bytes_of(self.trace, self.peak.metric, *id)).sum()
        };
        let freed = bytes_of_all(&|id| self.trace.blocks.free_requested[id.0 as usize].is_some());
        let has_backward = self.trace.spans.rows().iter().any(|span| span.phase == Phase::Backward);
        if has_backward || self.failed.is_some() || self.trace.trust.unfinished || freed * 2 < bytes_of_all(&|_| true) {
            return "";
        }
        " The recording has no backward: if none is to follow, run forward under `torch.no_grad()`, which keeps none of \
         them."
    }

    /// The peak, as far as the recording shows it.
    fn the_peak(&self) -> &'static str {
        if self.failed.is_some() { "the peak up to the failed request" } else { "the peak" }
    }

    /// The peak that is left without the blocks in question, and where it is then.
    fn peak_without(&self, without: &Moment) -> String {
        let saved = self.peak.bytes - without.bytes;
        let moved = if without.phase == self.peak.phase { String::new() } else { format!(", in {}", without.phase) };
        let (peak, left) = (self.the_peak(), format_bytes(without.bytes));
        format!("without them {peak} is {left}, {} less{moved}", format_bytes(saved))
    }
}

/// The part of a module path before its first number, and that number: `blocks` and `3` of `blocks.3.mlp`.
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

/// The condition for the module paths of a row of numbered modules, `blocks` for `blocks.0.mlp`: those that `in_row`
/// picks, and no others. None where no short one does that.
fn condition_of_row(trace: &Trace, row: &str, in_row: impl Fn(ScopeId) -> bool) -> Option<String> {
    let plain = [format!("{row}.")];
    let by_digit: Vec<String> = (0..10).map(|digit| format!("{row}.{digit}")).collect();
    let is_exact = |parts: &&[String]| {
        (0..trace.tables.scopes.len()).map(|scope| ScopeId(scope as u32)).all(|scope| {
            let path = trace.tables.scope_path(scope);
            parts.iter().any(|part| path.contains(part)) == in_row(scope)
        })
    };
    let parts = [&plain[..], &by_digit].into_iter().find(is_exact).filter(|_| !row.contains('"'))?;
    let quoted: Vec<String> = parts.iter().map(|part| format!("\"{part}\"")).collect();
    Some(format!("scope~{}", quoted.join(",")))
}

fn share(part: u64, whole: u64) -> String {
    format!("{:.0} %", part as f64 * 100.0 / whole.max(1) as f64)
}
