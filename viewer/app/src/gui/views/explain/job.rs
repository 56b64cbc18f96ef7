//! Computes the explanation of a peak on a background thread, with all texts of the view.

use std::sync::{Arc, Weak};

use highwater_analysis::explain::{Cause, Composition, ExplainQuery, ExplainedGroup, Origin, PeakPiece};
use highwater_analysis::frames::short_stack;
use highwater_analysis::lifetime::phase_of;
use highwater_analysis::phases::reached_elsewhere;
use highwater_analysis::{Explanation, Filter, GroupKey, Metric, Moment};
use highwater_snapshots::{BlockId, DeviceId, Phase, Trace};

use crate::answers::explanation::explain;
use crate::figures::moment::elsewhere_text;
use crate::gui::filter::terms::condition_of;
use crate::gui::views::colouring::short_line;
use crate::gui::widgets::worker::Cancel;
use crate::session::Recording;
use crate::session::absent::Absent;

/// Most groups listed; the others are added up.
const MOST_GROUPS: usize = 10_000;

/// The grouping keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Keys {
    pub(super) first: GroupKey,
    pub(super) second: Option<GroupKey>,
}

impl Default for Keys {
    fn default() -> Self {
        Self { first: GroupKey::Category, second: Some(GroupKey::Phase) }
    }
}

impl Keys {
    /// Replaces keys for which no block has a value by the default keys.
    pub(super) fn possible(self, absent: &Absent) -> Self {
        let has = |key: &GroupKey| absent.reason(*key).is_none();
        let first = if has(&self.first) { self.first } else { Self::default().first };
        Self { first, second: self.second.filter(|key| has(key) && *key != first) }
    }

    pub(super) fn list(self) -> Vec<GroupKey> {
        std::iter::once(self.first).chain(self.second).collect()
    }
}

/// The key of an explanation. Does not keep the recording, so that its memory is freed when the file is read again.
#[derive(Clone, Debug)]
pub(super) struct Key {
    pub(super) of: Weak<Recording>,
    pub(super) device: usize,
    pub(super) metric: Metric,
    pub(super) filter: Filter,
    pub(super) keys: Keys,
}

/// A question: the recording and the key.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) recording: Arc<Recording>,
    pub(super) key: Key,
}

/// Shown as the phase of blocks that were live before the recording.
const BEFORE_RECORDING: &str = "before the recording";

/// Whether all blocks of a device attributed to setup were live before the recording.
fn is_only_before(trace: &Trace, device: DeviceId) -> bool {
    (0..trace.blocks.len()).filter(|row| trace.blocks.device[*row] == device).all(|row| {
        let block = trace.blocks.get(BlockId(row as u32));
        block.is_baseline() || phase_of(trace, &block) != Phase::Setup
    })
}

/// A group of blocks as a row.
#[derive(Clone, Debug)]
pub(super) struct Row {
    /// The values of the keys, each on one line.
    pub(super) names: Vec<String>,
    /// The same values in full.
    pub(super) in_full: Vec<String>,
    /// The `--where` condition for the group, if there is one.
    pub(super) condition: Option<String>,
    /// Bytes at the peak.
    pub(super) bytes: u64,
    pub(super) blocks: u64,
    /// The peak without these blocks.
    pub(super) without: Moment,
    /// How much lower that is, in bytes.
    pub(super) saved: u64,
}

impl Row {
    fn of(trace: &Trace, group: &ExplainedGroup, (peak, is_before): (&Moment, bool), keys: &[GroupKey]) -> Self {
        let mut names = group.key.clone();
        for (name, key) in names.iter_mut().zip(keys) {
            match key {
                GroupKey::Stack if group.stack.is_some() => {
                    let lines = short_stack(&trace.tables, group.stack);
                    *name = lines.iter().map(|line| short_line(line)).collect::<Vec<_>>().join(" < ");
                }
                GroupKey::Frame => *name = short_line(name),
                GroupKey::Phase if is_before && name == Phase::Setup.name() => {
                    BEFORE_RECORDING.clone_into(name);
                }
                _ => {}
            }
        }
        Self {
            names,
            in_full: group.key.clone(),
            condition: condition_of(keys, &group.key),
            bytes: group.bytes_at_peak,
            blocks: group.blocks_at_peak,
            without: group.without,
            saved: group.saved_bytes(peak),
        }
    }
}

/// The computed explanation.
#[derive(Clone, Debug)]
pub(super) struct Explained {
    pub(super) key: Key,
    /// Peak, filtered blocks, removals, advice; its groups are in `rows`.
    pub(super) explanation: Explanation,
    /// The pieces of memory at the peak.
    pub(super) composition: Composition,
    pub(super) rows: Vec<Row>,
    /// Sum of the rows and of the groups not listed.
    pub(super) bytes: u64,
    /// A note on other moments with the same peak.
    pub(super) elsewhere: Option<String>,
    /// Whether all that counts as made in setup was live before the recording.
    is_before: bool,
}

impl Explained {
    /// The name of a part of the peak.
    pub(super) fn cause_name(&self, cause: &Cause) -> String {
        if cause.phase == Phase::Setup && self.is_before {
            return PeakPiece::Blocks { category: cause.category, origin: Origin::BeforeRecording }.name();
        }
        cause.name(self.explanation.peak.has_phase)
    }

    /// Answers `asked`; `None` if cancelled.
    pub(super) fn of(asked: Asked, cancel: &Cancel) -> Option<Self> {
        let Asked { recording, key } = asked;
        let trace = &recording.trace;
        let index = recording.devices.get(key.device)?;
        let keys = key.keys.list();
        let query = ExplainQuery { metric: key.metric, keys: &keys, top: MOST_GROUPS, filter: &key.filter };
        let mut explanation = explain(trace, &index.series, &index.live, &query);
        if cancel.is_cancelled() {
            return None;
        }
        let position = explanation.peak.position();
        let composition = Composition::at(trace, &index.series, &index.live, position);
        let groups = std::mem::take(&mut explanation.groups);
        let is_before = is_only_before(trace, index.device);
        let of_peak = (&explanation.peak, is_before);
        let rows: Vec<Row> = groups.iter().map(|group| Row::of(trace, group, of_peak, &keys)).collect();
        let bytes = rows.iter().map(|row| row.bytes).sum::<u64>() + explanation.rest_bytes;
        let elsewhere = elsewhere_text(&reached_elsewhere(trace, &explanation.peak));
        Some(Self { key, explanation, composition, rows, bytes, elsewhere, is_before })
    }
}
