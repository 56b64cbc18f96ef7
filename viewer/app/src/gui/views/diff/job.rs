//! Computes the difference between two moments on a background thread.

use std::ops::ControlFlow;
use std::sync::{Arc, Weak};

use highwater_analysis::diff::{Comparison, DiffAt, DiffQuery, DiffTree, StackText};
use highwater_analysis::{Filter, GroupKey, Metric, Moment, Siblings};

use super::sheets;
use crate::gui::views::sheet::Sheet;
use crate::gui::widgets::worker::Cancel;
use crate::session::Recording;

/// Most groups listed; the others are added up in one row, and all are in the flame graph.
const MOST_GROUPS: usize = 5_000;

/// One side of a comparison.
#[derive(Clone, Debug)]
pub(super) struct Half {
    pub(super) recording: Arc<Recording>,
    /// Row of the device.
    pub(super) device: usize,
    pub(super) moment: Moment,
}

/// The moment `at` of a device; otherwise why it does not exist. The side is called `name`.
pub(super) fn find(
    recording: &Recording,
    device: usize,
    (at, metric): (DiffAt, Metric),
    name: &str,
) -> Result<Moment, String> {
    let found = at.find(&recording.source, recording.devices[device].device, metric);
    found.map_err(|why| why.to_string())?.ok_or_else(|| {
        let (DiffAt::Step(step) | DiffAt::StepEnd(step)) = at else {
            return format!("{name} does not have the chosen moment");
        };
        let known = match (recording.steps.first(), recording.steps.last()) {
            (Some((first, _)), Some((last, _))) => format!("its steps go from {first} to {last}"),
            _ => "it has no steps".to_owned(),
        };
        format!("{name} has no step {step}: {known}")
    })
}

/// A question.
#[derive(Clone, Debug)]
pub(super) struct Question {
    pub(super) halves: [Half; 2],
    pub(super) keys: Vec<GroupKey>,
    pub(super) filter: Filter,
    pub(super) hides_internals: bool,
}

/// The question last asked, without keeping the recordings in memory.
#[derive(Clone, Debug)]
pub(super) struct Key {
    of: [Weak<Recording>; 2],
    devices: [usize; 2],
    moments: [Moment; 2],
    keys: Vec<GroupKey>,
    filter: Filter,
    hides_internals: bool,
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.of.iter().zip(&other.of).all(|(one, other)| Weak::ptr_eq(one, other))
            && (self.devices, self.moments) == (other.devices, other.moments)
            && (&self.keys, &self.filter) == (&other.keys, &other.filter)
            && self.hides_internals == other.hides_internals
    }
}

impl Key {
    pub(super) fn of(question: &Question) -> Self {
        let [a, b] = &question.halves;
        Self {
            of: [Arc::downgrade(&a.recording), Arc::downgrade(&b.recording)],
            devices: [a.device, b.device],
            moments: [a.moment, b.moment],
            keys: question.keys.clone(),
            filter: question.filter.clone(),
            hides_internals: question.hides_internals,
        }
    }
}

/// The computed difference.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) key: Key,
    pub(super) comparison: Comparison,
    pub(super) tree: DiffTree,
    /// Groups, phases, totals and settings as tables.
    pub(super) sheets: Vec<Sheet>,
}

impl Answer {
    /// Answers `question`; `None` if cancelled.
    pub(super) fn to(question: &Question, cancel: &Cancel) -> Option<Self> {
        let [a, b] = &question.halves;
        let query =
            DiffQuery { keys: &question.keys, top: usize::MAX, filter: &question.filter, siblings: Siblings::Merged };
        let mut watch = |_: u64| if cancel.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        let sources = [&a.recording.source, &b.recording.source];
        // A recording in memory is read without errors.
        let mut comparison = Comparison::of(sources, [a.moment, b.moment], &query, &mut watch).ok()?;
        let tables = [&a.recording.trace.tables, &b.recording.trace.tables];
        let text = StackText { tables, hides_internals: question.hides_internals };
        let tree = DiffTree::of(&comparison.diff.groups, &question.keys, &text);
        comparison.diff.list(MOST_GROUPS);
        let mut stacks = Vec::new();
        if question.keys.contains(&GroupKey::Stack) {
            stacks.extend(comparison.diff.groups.iter().map(|group| text.lines(group).join(" < ")));
        }
        let sheets = vec![
            sheets::of_groups(&comparison.diff, &question.keys, &stacks),
            sheets::of_phases(&comparison),
            sheets::of_totals(&comparison),
            sheets::of_settings(&comparison),
        ];
        Some(Self { key: Key::of(question), comparison, tree, sheets })
    }

    pub(super) fn keys(&self) -> &[GroupKey] {
        &self.key.keys
    }

    pub(super) fn is_filtered(&self) -> bool {
        !self.key.filter.is_empty()
    }

    /// Whether it is of these recordings.
    pub(super) fn is_of(&self, recordings: [&Arc<Recording>; 2]) -> bool {
        self.key.of.iter().zip(recordings).all(|(of, recording)| of.as_ptr() == Arc::as_ptr(recording))
    }
}
