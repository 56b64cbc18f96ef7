//! The input of all rules for advice, and phrases that several rules use.

use super::cause::{CategoryAndPhase, largest_allocator};
use super::findings::{Findings, is_at_least};
use super::idle::Idle;
use super::reach::Reach;
use crate::grouping::dimension::GroupKey;
use crate::index::beside::Beside;
use crate::index::together::Together;
use crate::metric::Totals;
use crate::question::between::bytes_of;
use crate::question::peak::Moment;
use highwater_snapshots::Phase;
use highwater_snapshots::ids::BlockId;
use highwater_snapshots::line_text::unique_suffixes;
use highwater_snapshots::trace::Trace;
use highwater_snapshots::units::format_bytes;

/// Maximum number of lines of code named.
pub(super) const TOP_LINES: usize = 3;

/// The input of the rules for advice: the blocks at the peak, and figures over the whole recording.
pub(super) struct PeakContext<'a> {
    /// The recording, or a window of it that contains the peak.
    pub(super) trace: &'a Trace,
    /// The peak; its event is in `trace`.
    pub(super) peak: &'a Moment,
    pub(super) totals: &'a Totals,
    pub(super) at_peak: &'a [BlockId],
    /// The bytes outside of blocks.
    pub(super) beside: &'a [(Beside, u64)],
    /// The pools in use at the same time; `None` unless private pools have much free memory.
    pub(super) pools: Option<&'a Together>,
    pub(super) idle: Option<&'a Idle>,
    pub(super) findings: &'a Findings,
    /// Whether the recording ends with a failed request on any device.
    pub(super) has_failed: bool,
    /// The index of the failed request at the end of the recording; `None` if there is none on this device.
    pub(super) failed_here: Option<u64>,
}

impl PeakContext<'_> {
    pub(super) fn is_at_least(&self, bytes: u64, percent: u64) -> bool {
        is_at_least(bytes, self.peak.bytes, percent)
    }

    pub(super) fn with_share(&self, bytes: u64) -> String {
        with_share(bytes, self.peak.bytes)
    }

    /// Returns the blocks at the peak for which `is_one` is true, and their bytes.
    pub(super) fn pick(&self, is_one: impl Fn(BlockId) -> bool) -> (Vec<BlockId>, u64) {
        let picked: Vec<BlockId> = self.at_peak.iter().copied().filter(|id| is_one(*id)).collect();
        let bytes = picked.iter().map(|id| bytes_of(self.trace, self.peak.metric, *id)).sum();
        (picked, bytes)
    }

    pub(super) fn of_cause(&self, cause: CategoryAndPhase) -> (Vec<BlockId>, u64) {
        self.pick(|id| CategoryAndPhase::of(self.trace, &self.trace.blocks.get(id)) == cause)
    }

    pub(super) fn without(&self, cause: CategoryAndPhase) -> Moment {
        *self.findings.of_causes.without(&cause.key())
    }

    /// Describes `blocks` that are live at once: their number, and the operation, or otherwise the line, that allocated
    /// most of them.
    pub(super) fn live_at_once(&self, blocks: &[BlockId]) -> String {
        let number = blocks.len();
        let count = if number == 1 { "1 tensor".to_owned() } else { format!("{number} tensors live at once") };
        let Some((by, group)) = largest_allocator(self.trace, blocks) else { return count };
        let key = unique_suffixes(&group.key).join(" ");
        let bytes = group.blocks.iter().map(|id| bytes_of(self.trace, self.peak.metric, *id)).sum();
        let how = if by == GroupKey::Op { "by" } else { "at" };
        match group.blocks.len() {
            all if all == number && all > 1 => format!("{count}, all from {key}"),
            all if all == number => format!("{count}, from {key}"),
            _ => format!("{count}, {} of them {how} {key}", format_bytes(bytes)),
        }
    }

    /// Returns a phrase for the peak `without` some blocks, limited to the recorded part of the run.
    pub(super) fn the_peak(&self, without: &Moment) -> String {
        if self.peak.is_state {
            return "the state".to_owned();
        }
        Reach::of(self.failed_here, [self.peak.number(), without.number()]).the_peak("")
    }

    /// Whether the recording ends with a failed request on this device, after the peak.
    pub(super) fn fails_after_peak(&self) -> bool {
        Reach::of(self.failed_here, [self.peak.number()]) == Reach::UpToFailure
    }

    /// Describes the peak without some blocks. Includes the phase if it differs from that of the recorded peak.
    pub(super) fn peak_without(&self, without: &Moment) -> String {
        let saved = self.peak.bytes - without.bytes;
        let moved = match (without.event, without.phase) {
            _ if without.is_state => String::new(),
            (None, _) => "; the new peak is before the first event".to_owned(),
            (_, phase) if phase == self.peak.phase => String::new(),
            (_, Phase::Other) => "; the new peak is outside all phases".to_owned(),
            (_, phase) => format!("; the new peak is in {phase}"),
        };
        let (peak, left) = (self.the_peak(without), format_bytes(without.bytes));
        format!("without them {peak} is {left}, {} less{moved}", format_bytes(saved))
    }
}

/// Formats bytes with their share of `whole`, such as `3 GiB (25%)`.
pub(super) fn with_share(bytes: u64, whole: u64) -> String {
    format!("{} ({})", format_bytes(bytes), share(bytes, whole))
}

pub(super) fn share(part: u64, whole: u64) -> String {
    format!("{:.0}%", part as f64 * 100.0 / whole.max(1) as f64)
}
