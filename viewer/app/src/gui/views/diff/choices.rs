//! The settings of a comparison: moments, grouping keys, and how the difference is shown.

use std::sync::Arc;

use eframe::egui::{DragValue, Role, Ui, WidgetInfo};
use highwater_analysis::{DiffAt, GroupKey, Metric, TreeKey};

use super::alignment::Align;
use crate::Recording;
use crate::gui::views::group_keys::{self, absent_reason, group_keys};
use crate::gui::widgets::choice_ui;

highwater_snapshots::vocabulary!(
    /// The forms in which a comparison can be shown.
    #[derive(Default)]
    DiffLook {
        /// Groups as a table.
        #[default]
        Groups = "Groups",
        /// Groups as a flame graph.
        Flame = "Flame",
        /// The peaks of each phase of each step, as a table.
        Phases = "Phases",
        /// The peaks of each total, as a table.
        Totals = "Totals",
        /// The recorded facts of both sides, as a table.
        Settings = "Settings",
    }
);

impl DiffLook {
    pub(crate) const fn tooltip(self) -> &'static str {
        match self {
            Self::Groups => "Groups by difference. Double click or Enter restricts both sides to a group.",
            Self::Flame => "The same groups as a flame graph; a bar is as wide as its larger side.",
            Self::Phases => "The peak of each phase of each step, side by side.",
            Self::Totals => "The peak of each total over the whole recordings.",
            Self::Settings => "Program, device and allocator settings of both sides.",
        }
    }
}

/// The settings of a comparison.
#[derive(Clone, Debug, PartialEq)]
pub struct DiffChoices {
    /// The total whose moments are compared.
    pub metric: Metric,
    /// The moments of A and B.
    pub at: [DiffAt; 2],
    /// The grouping keys, at least one.
    pub keys: Vec<GroupKey>,
    /// The alignment of the timelines.
    pub align: Align,
    /// Whether stacks omit frames of libraries and frameworks.
    pub hides_internals: bool,
    /// The form in which the comparison is shown.
    pub look: DiffLook,
}

impl DiffChoices {
    /// The default settings: the peaks of two recordings, or the ends of the last two complete steps of one, or its
    /// peak and its end if it has fewer than two. Groups by the most informative key of both if it is the same,
    /// otherwise by category. If the peaks of `metric` of two recordings are similar but those of reserved memory are
    /// not, compares the latter by pool.
    pub fn usual(recordings: [&Recording; 2], metric: Metric) -> Self {
        let is_one = std::ptr::eq(recordings[0], recordings[1]);
        let of_one = || {
            let last = DiffAt::last_steps(&recordings[0].source, recordings[0].trace.main_device());
            last.ok().flatten().unwrap_or([DiffAt::Peak, DiffAt::End])
        };
        let at = if is_one { of_one() } else { [DiffAt::Peak; 2] };
        let [a, b] = recordings.map(|recording| recording.absent.leading_key());
        let key = if a == b { a } else { GroupKey::Category };
        let is_of_reserved = !is_one && !differs(recordings, metric) && differs(recordings, Metric::Reserved);
        let (metric, key) = if is_of_reserved { (Metric::Reserved, GroupKey::Pool) } else { (metric, key) };
        Self { metric, at, keys: vec![key], align: Align::default(), hides_internals: true, look: DiffLook::default() }
    }

    /// Moves moments that refer to steps by `by` steps.
    pub(super) fn shift(&mut self, by: i32) {
        for at in &mut self.at {
            if let DiffAt::Step(step) | DiffAt::StepEnd(step) = at {
                *step = step.saturating_add_signed(by);
            }
        }
    }
}

/// Whether the peaks of the main devices differ by more than a hundredth of the larger one.
fn differs(recordings: [&Recording; 2], metric: Metric) -> bool {
    let peak = |recording: &Recording| {
        let main = recording.trace.main_device();
        let index = recording.devices.iter().find(|index| index.device == main);
        index.map_or(0, |index| index.peak(&recording.trace, metric).bytes)
    };
    let [a, b] = recordings.map(peak);
    a.abs_diff(b) > a.max(b) / 100
}

#[derive(Clone, Debug)]
pub(crate) struct Files {
    /// The names of the open files, in the order of their tabs.
    pub names: Vec<String>,
    /// The indices of A and B among the open files, which may be the same.
    pub rows: [usize; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DiffAction {
    /// Compare an open file, as side A or B.
    Take {
        /// The side that shows the file: 0 for A, 1 for B.
        side: usize,
        /// The index of the file among the open ones.
        row: usize,
    },
    /// Choose a file, and compare it with A.
    Open,
    Swap,
    /// End the comparison, and return to the file.
    Close,
}

/// For B, the list has an entry to open another file.
pub(super) fn file_ui(ui: &mut Ui, files: &Files, side: usize) -> Option<DiffAction> {
    /// The value of the entry for a file that is not open yet.
    const OPEN: usize = usize::MAX;
    let name = ["A", "B"][side];
    let mut rows: Vec<usize> = (0..files.names.len()).collect();
    if side == 1 {
        rows.push(OPEN);
    }
    let text = |row: &usize| files.names.get(*row).cloned().unwrap_or_else(|| "Open another file…".to_owned());
    ui.strong(name);
    match choice_ui(ui, &format!("File {name}"), &files.rows[side], &rows, text)? {
        OPEN => Some(DiffAction::Open),
        row => Some(DiffAction::Take { side, row }),
    }
}

pub(super) fn at_ui(ui: &mut Ui, side: usize, at: DiffAt, recording: &Recording) -> Option<DiffAt> {
    let side = ["A", "B"][side];
    let name = |at: &DiffAt| {
        let name = match at {
            DiffAt::Peak => "at its peak",
            DiffAt::End => "at its end",
            DiffAt::Step(_) => "at the peak of step",
            DiffAt::StepEnd(_) => "at the end of step",
        };
        name.to_owned()
    };
    let steps = recording.steps.first().zip(recording.steps.last()).map(|((first, _), (last, _))| (*first, *last));
    let now = if let DiffAt::Step(step) | DiffAt::StepEnd(step) = at { Some(step) } else { None };
    let step = now.or(steps.map(|(_, last)| last)).unwrap_or(0);
    let all = [DiffAt::Peak, DiffAt::End, DiffAt::Step(step), DiffAt::StepEnd(step)];
    let all = &all[..if steps.is_some() { 4 } else { 2 }];
    let mut next = choice_ui(ui, &format!("Moment of {side}"), &at, all, name).unwrap_or(at);
    if let (Some(now), DiffAt::Step(step) | DiffAt::StepEnd(step)) = (now, &mut next) {
        let (first, last) = steps.unwrap_or((0, u32::MAX));
        let field = ui.add(DragValue::new(step).range(first.min(now)..=last.max(now)).speed(0.1));
        field.widget_info(|| WidgetInfo::labeled(Role::SpinButton, true, format!("Step of {side}")));
        field.on_hover_text("Type a number or drag. Page Up and Page Down change the step on both sides.");
    }
    (next != at).then_some(next)
}

/// Returns the reason no block of either side has a value of `key`; `None` if one side has such blocks.
pub(super) fn absent_in_both(recordings: [&Arc<Recording>; 2], key: TreeKey) -> Option<&'static str> {
    let [a, b] = recordings.map(|recording| absent_reason(&recording.absent, key));
    a.and(b)
}

pub(super) fn keys_ui(ui: &mut Ui, keys: &mut Vec<GroupKey>, recordings: [&Arc<Recording>; 2]) {
    let [a, b] = recordings.map(|recording| recording.deepest_scope);
    let all: Vec<GroupKey> = group_keys(a.max(b)).collect();
    let mut first = keys.first().copied().unwrap_or(GroupKey::Category);
    let mut second = keys.get(1).copied();
    let (former, chosen) = ((first, second), (&mut first, &mut second));
    let labels = ["Group by", "Then group by"];
    group_keys::keys_ui(ui, labels, chosen, &all, |key| absent_in_both(recordings, key));
    if (first, second) != former {
        *keys = std::iter::once(first).chain(second).collect();
    }
}

#[cfg(test)]
mod tests {
    use highwater_notation::trace_from_text;

    use super::*;

    #[test]
    fn two_recordings_that_differ_only_in_reserved_memory_are_compared_by_it() {
        let recording = |text: &str| Recording::new("test", None, trace_from_text(text).unwrap());
        let small = recording("segment_alloc 0x10000000 4194304 large\nalloc a 2097152 large");
        let large = recording("segment_alloc 0x10000000 8388608 large\nalloc a 2097152 large");
        let of = |a: &Recording, b: &Recording, metric| {
            let choices = DiffChoices::usual([a, b], metric);
            (choices.metric, choices.keys)
        };
        let same = recording("segment_alloc 0x10000000 4194304 large\nalloc a 2097152 large");
        assert_eq!(of(&small, &large, Metric::Requested), (Metric::Reserved, vec![GroupKey::Pool]));
        assert_eq!(of(&small, &same, Metric::Requested), (Metric::Requested, vec![GroupKey::Category]));
        let more = recording("segment_alloc 0x10000000 8388608 large\nalloc a 4194304 large < f (m.py:1)");
        assert_eq!(of(&small, &more, Metric::Requested).0, Metric::Requested);
        assert_eq!(of(&more, &more, Metric::Requested).1, [GroupKey::Frame]);
    }
}
