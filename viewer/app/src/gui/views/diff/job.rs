//! Computes the difference between two moments on a background thread.

use std::ops::ControlFlow;
use std::sync::Arc;

use highwater_analysis::diff::StackText;
use highwater_analysis::peak::Query;
use highwater_analysis::{Comparison, Diff, DiffAt, DiffTree, Filter, GroupKey, Metric, Moment, Siblings};
use highwater_snapshots::Category;

use super::{Of, sheets};
use crate::Recording;
use crate::gui::identity::Identity;
use crate::gui::views::sheet::Sheet;
use crate::gui::widgets::Cancel;

/// Maximum number of groups in the table; the others are combined in one row. The flame graph has all groups.
const MAX_GROUPS: usize = 5_000;

/// Finds the moment that `at` describes on a device, or returns why it does not exist. `name` is `A` or `B`.
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

/// The key of the background query.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Question {
    pub(super) of: Of,
    pub(super) moments: [Moment; 2],
    pub(super) keys: Vec<GroupKey>,
    pub(super) filter: Filter,
    pub(super) hides_internals: bool,
}

impl Question {
    pub(super) fn is_about(&self, recordings: [&Arc<Recording>; 2]) -> bool {
        self.of.iter().zip(recordings).all(|((known, _), recording)| known.is(recording))
    }
}

/// Returns the grouping keys of the details: the only key of `keys`, and the operation or otherwise the source line, if
/// both recordings have values for it. Empty if `keys` has several keys, or if there is no such second key.
fn detail_keys(keys: &[GroupKey], recordings: &[Arc<Recording>; 2]) -> Vec<GroupKey> {
    let is_there = |key: &GroupKey| recordings.iter().all(|recording| recording.absent.reason(*key).is_none());
    let [first] = keys else { return Vec::new() };
    let second = [GroupKey::Op, GroupKey::Frame].into_iter().find(|key| key != first && is_there(key));
    second.map_or_else(Vec::new, |second| vec![*first, second])
}

#[derive(Debug)]
pub(super) struct Answer {
    pub(super) keys: Vec<GroupKey>,
    pub(super) is_filtered: bool,
    pub(super) comparison: Comparison,
    pub(super) tree: DiffTree,
    /// The name of the leaks of a side, if nearly all of its bytes without a known category are leaked.
    pub(super) leak: Option<String>,
    pub(super) sheets: Vec<Sheet>,
    /// The groups by [`Self::detail_keys`], and their table; `None` if there are no such keys, or if cancelled.
    pub(super) details: Option<(Diff, Sheet)>,
    /// The grouping keys of the details; may be empty.
    pub(super) detail_keys: Vec<GroupKey>,
}

impl Answer {
    /// Computes the answer to `question`; `None` if cancelled, or if a recording was closed.
    pub(super) fn to(question: &Question, cancel: &Cancel) -> Option<Arc<Self>> {
        let [(a, _), (b, _)] = &question.of;
        let recordings = [a.get()?, b.get()?];
        let query =
            Query { keys: &question.keys, top: usize::MAX, filter: &question.filter, siblings: Siblings::Merged };
        let mut watch = |_: u64| if cancel.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        let sources = recordings.each_ref().map(|recording| &recording.source);
        // A recording in memory is read without errors.
        let mut comparison = Comparison::of(sources, question.moments, &query, &mut watch).ok()?;
        let tables = recordings.each_ref().map(|recording| &recording.trace.tables);
        let text = StackText { tables, hides_internals: question.hides_internals };
        let tree = DiffTree::of(&comparison.diff.groups, &question.keys, &text);
        comparison.diff.list(MAX_GROUPS);
        let leak = |(recording, (_, device)): (&Arc<Recording>, &(Identity<Recording>, usize))| {
            recording.devices[*device].leak_of(Category::Unknown.name()).map(str::to_owned)
        };
        let leak = recordings.iter().zip(&question.of).find_map(leak);
        let mut stacks = Vec::new();
        if question.keys.contains(&GroupKey::Stack) {
            stacks.extend(comparison.diff.groups.iter().map(|group| text.lines(group).join(" < ")));
        }
        let sheets = vec![
            sheets::of_groups(&comparison.diff, &question.keys, &stacks, leak.as_deref()),
            sheets::of_phases(&comparison),
            sheets::of_totals(&comparison),
            sheets::of_settings(&comparison),
        ];
        let (keys, is_filtered) = (question.keys.clone(), !question.filter.is_empty());
        let detail_keys = detail_keys(&keys, &recordings);
        let details = (!detail_keys.is_empty()).then(|| {
            let query = Query { keys: &detail_keys, top: MAX_GROUPS, ..query };
            let diff = Comparison::of(sources, question.moments, &query, &mut watch).ok()?.diff;
            let sheet = sheets::of_groups(&diff, &detail_keys, &[], leak.as_deref());
            Some((diff, Sheet { name: "Details", ..sheet }))
        });
        let details = details.flatten();
        Some(Arc::new(Self { keys, is_filtered, comparison, tree, leak, sheets, details, detail_keys }))
    }
}
