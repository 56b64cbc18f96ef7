//! Computes the explanation of a peak on a background thread, with all texts of the view.

use std::ops::ControlFlow;
use std::sync::Arc;

use highwater_analysis::explain::Remedy;
use highwater_analysis::peak::Query;
use highwater_analysis::phases::{phases, reached_elsewhere};
use highwater_analysis::{
    Composition, ExplainedGroup, Explanation, Filter, GroupKey, Metric, Moment, Siblings, Source, Watch, condition,
    short_stack,
};
use highwater_snapshots::{DeviceId, Error, EventKind, Trace};

use crate::Recording;
use crate::answers::explanation::explain;
use crate::figures::moment::elsewhere_text;
use crate::gui::colouring::short_line;
use crate::gui::identity::Identity;
use crate::gui::views::view::ViewContext;
use crate::gui::widgets::Cancel;
use crate::session::absent::Absent;
use crate::session::run::Run;

/// Maximum number of groups listed; the rest is summed.
const MAX_GROUPS: usize = 10_000;

/// The explanation of a recording that is being written is recomputed once the recording has grown by its size divided
/// by this.
const GROWTH: u64 = 8;

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
    /// Replaces the first key by the default key, and drops the second, if no block has a value for it.
    pub(super) fn possible(self, absent: &Absent) -> Self {
        let has = |key: &GroupKey| absent.reason(*key).is_none();
        let first = if has(&self.first) { self.first } else { Self::default().first };
        Self { first, second: self.second.filter(|key| has(key) && *key != first) }
    }

    pub(super) fn list(self) -> Vec<GroupKey> {
        std::iter::once(self.first).chain(self.second).collect()
    }
}

/// The recording to explain; for a part of a long recording, the whole recording.
#[derive(Clone, Debug, PartialEq)]
enum Of {
    Recording(Identity<Recording>),
    Run(Identity<Run>),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Key {
    of: Of,
    device: DeviceId,
    /// Number of events of a long recording, which may grow; 0 otherwise.
    events: u64,
    pub(super) metric: Metric,
    pub(super) filter: Filter,
    pub(super) keys: Keys,
}

impl Key {
    pub(super) fn new(context: &ViewContext<'_>, metric: Metric, keys: Keys) -> Self {
        let (of, events) = match &context.recording.run {
            Some(run) => (Of::Run(Identity::of(run)), run.events()),
            None => (Of::Recording(Identity::of(context.recording)), 0),
        };
        Self { of, device: context.index().device, events, metric, filter: context.filter.clone(), keys }
    }

    /// Whether both keys concern the same device of the same recording, which may have grown in between.
    pub(super) fn is_about(&self, other: &Self) -> bool {
        (&self.of, self.device) == (&other.of, other.device)
    }

    /// Returns whether the recording of `other` has grown enough since this key to justify another pass over all
    /// events.
    pub(super) fn is_outgrown_by(&self, other: &Self) -> bool {
        other.events > self.events + self.events / GROWTH
    }

    /// Whether both keys request the same explanation, of a recording that may have grown in between.
    pub(super) fn is(&self, other: &Self) -> bool {
        self.is_about(other) && (self.metric, self.keys) == (other.metric, other.keys) && self.filter == other.filter
    }

    fn source(&self) -> Option<Source<'static>> {
        match &self.of {
            Of::Recording(recording) => Some(recording.get()?.source.clone()),
            Of::Run(run) => Some(run.get()?.source()),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Row {
    /// The values of the keys, each as a single line; of a group of identical modules, their pattern.
    pub(super) names: Vec<String>,
    /// The values of the keys in full, for tooltips; of a group of identical modules, one line for each.
    pub(super) in_full: Vec<String>,
    pub(super) condition: Option<String>,
    pub(super) bytes: u64,
    pub(super) blocks: u64,
    pub(super) without: Moment,
    /// The difference between the peak and `without`, in bytes.
    pub(super) saved: u64,
}

impl Row {
    fn of(trace: &Trace, group: &ExplainedGroup, peak: &Moment, keys: &[GroupKey]) -> Self {
        let mut names = group.key.clone();
        for (name, key) in names.iter_mut().zip(keys) {
            match key {
                GroupKey::Stack if group.stack.is_some() => {
                    let lines = short_stack(&trace.tables, group.stack);
                    *name = lines.iter().map(|line| short_line(line)).collect::<Vec<_>>().join(" < ");
                }
                GroupKey::Frame => *name = short_line(name),
                _ => {}
            }
        }
        Self {
            names,
            in_full: match group.members.as_slice() {
                [] => group.key.clone(),
                members => {
                    let of_key = |at: usize| {
                        let mut values: Vec<&str> = members.iter().map(|values| values[at].as_str()).collect();
                        values.dedup();
                        values.join("\n")
                    };
                    (0..keys.len()).map(of_key).collect()
                }
            },
            condition: condition::of_group(keys, &group.key, &group.members),
            bytes: group.bytes_at_peak,
            blocks: group.blocks_at_peak,
            without: group.without,
            saved: group.saved_bytes(peak),
        }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Explained {
    pub(super) keys: Keys,
    /// The peak, filtered blocks, removals and advice; its groups are moved to `rows`.
    pub(super) explanation: Explanation,
    pub(super) composition: Composition,
    pub(super) rows: Vec<Row>,
    /// Sum of the rows and of the groups that are not listed.
    pub(super) bytes: u64,
    /// A note on other phases that reach the same peak.
    pub(super) elsewhere: Option<String>,
    pub(super) failed: u64,
}

impl Explained {
    /// Computes the explanation, or returns why the recording cannot be read; `None` if cancelled or closed.
    pub(super) fn of(key: &Key, cancel: &Cancel) -> Option<Result<Arc<Self>, String>> {
        let mut watch = |_: u64| if cancel.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        match Self::explain(&key.source()?, key, &mut watch) {
            Err(Error::Cancelled) => None,
            explained => Some(explained.map(Arc::new).map_err(|why| why.to_string())),
        }
    }

    fn explain(source: &Source<'_>, key: &Key, watch: Watch<'_>) -> Result<Self, Error> {
        let (device, keys) = (key.device, key.keys.list());
        let siblings = Siblings::Merged;
        let query = Query { keys: &keys, top: MAX_GROUPS, filter: &key.filter, siblings };
        let mut explanation = explain(source, device, key.metric, &query, watch)?;
        // The figure of needed state is no saving.
        explanation.advice.sort_by_key(|one| one.remedy == Remedy::SmallerState);
        let composition = {
            let at = source.window_at(explanation.peak.number())?;
            let index = at.index(device);
            Composition::at(&at.trace, &index.series, &index.live, at.events.end)
        };
        let groups = std::mem::take(&mut explanation.groups);
        let row = |group: &ExplainedGroup| Row::of(source.facts(), group, &explanation.peak, &keys);
        let rows: Vec<Row> = groups.iter().map(row).collect();
        let bytes = rows.iter().map(|row| row.bytes).sum::<u64>() + explanation.rest_bytes;
        let phases = phases(source.facts(), device, key.metric, source.stages(device, key.metric, watch)?);
        let elsewhere = elsewhere_text(&reached_elsewhere(&phases, &explanation.peak));
        let failed = source.count(device, EventKind::Oom);
        Ok(Self { keys: key.keys, explanation, composition, rows, bytes, elsewhere, failed })
    }
}
