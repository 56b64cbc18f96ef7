//! The lists and buttons that choose the files and moments to compare, and the grouping keys.

use std::sync::Arc;

use eframe::egui::{DragValue, Role, Ui, WidgetInfo};
use highwater_analysis::diff::DiffAt;
use highwater_analysis::{GroupKey, TreeKey};

use crate::gui::views::group_keys::{self, absent_reason, group_keys};
use crate::gui::widgets::choice::choice_ui;
use crate::session::Recording;

/// The open files, and which of them are A and B.
#[derive(Clone, Debug)]
pub struct Files {
    /// The names of the open files, in order.
    pub names: Vec<String>,
    /// The rows of A and B, which may be the same.
    pub rows: [usize; 2],
}

/// The user's request to the app.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiffAction {
    /// Compare this file, as side 0 or 1.
    Take {
        /// The side that shows the file: 0 for A, 1 for B.
        side: usize,
        /// The row of the file among the open ones.
        row: usize,
    },
    /// Ask for a file, and compare with it.
    Open,
    /// Swap A and B.
    Swap,
    /// End the comparison, and return to the file.
    Close,
}

/// The list of files for one side; a file that is not open yet can be B.
pub(super) fn file_ui(ui: &mut Ui, files: &Files, side: usize) -> Option<DiffAction> {
    /// The row for a file that is to be opened.
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

/// The moment of a side; returns another one when the user takes it.
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

/// The reason that no block of either side has a value for `key`; `None` if one side has some, which distinguishes the
/// sides.
pub(super) fn absent_in_both(recordings: [&Arc<Recording>; 2], key: TreeKey) -> Option<&'static str> {
    let [a, b] = recordings.map(|recording| absent_reason(&recording.absent, key));
    a.and(b)
}

/// The grouping keys: one key, and a second within it.
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
