//! The lists and buttons that choose the files and moments to compare, and the grouping keys.

use std::sync::Arc;

use eframe::egui::{DragValue, Role, Ui, WidgetInfo};
use highwater_analysis::diff::DiffAt;
use highwater_analysis::{GroupKey, Metric, TreeKey};

use super::alignment::Align;
use crate::figures::moment::total_name;
use crate::gui::views::group_keys::{absent_reason, group_keys, key_label};
use crate::gui::widgets::choice::{ChoiceEntry, choice_ui};
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
        /// The side.
        side: usize,
        /// The row of the file.
        row: usize,
    },
    /// Ask for a file, and compare with it.
    Open,
    /// Swap A and B.
    Swap,
    /// Back to the file.
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

/// The kinds of moments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Peak,
    End,
    Step,
    StepEnd,
}

impl Kind {
    const fn of(at: DiffAt) -> Self {
        match at {
            DiffAt::Peak => Self::Peak,
            DiffAt::End => Self::End,
            DiffAt::Step(_) => Self::Step,
            DiffAt::StepEnd(_) => Self::StepEnd,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Peak => "at its peak",
            Self::End => "at its end",
            Self::Step => "at the peak of step",
            Self::StepEnd => "at the end of step",
        }
    }

    const fn at(self, step: u32) -> DiffAt {
        match self {
            Self::Peak => DiffAt::Peak,
            Self::End => DiffAt::End,
            Self::Step => DiffAt::Step(step),
            Self::StepEnd => DiffAt::StepEnd(step),
        }
    }
}

/// The moment of a side; returns another one when the user takes it.
pub(super) fn at_ui(ui: &mut Ui, side: usize, at: DiffAt, recording: &Recording) -> Option<DiffAt> {
    let name = ["A", "B"][side];
    let steps = recording.steps.first().map(|(step, _)| *step).zip(recording.steps.last().map(|(step, _)| *step));
    let all: &[Kind] = match steps {
        Some(_) => &[Kind::Peak, Kind::End, Kind::Step, Kind::StepEnd],
        None => &[Kind::Peak, Kind::End],
    };
    let (DiffAt::Step(now) | DiffAt::StepEnd(now)) = at else {
        let kind = choice_ui(ui, &format!("Moment of {name}"), &Kind::of(at), all, |kind| kind.name().to_owned())?;
        return Some(kind.at(steps.map_or(0, |(_, last)| last)));
    };
    let kind = choice_ui(ui, &format!("Moment of {name}"), &Kind::of(at), all, |kind| kind.name().to_owned());
    let mut step = now;
    let (first, last) = steps.unwrap_or((0, u32::MAX));
    let field = ui.add(DragValue::new(&mut step).range(first.min(now)..=last.max(now)).speed(0.1));
    field.widget_info(|| WidgetInfo::labeled(Role::SpinButton, true, format!("Step of {name}")));
    field.on_hover_text("Type a number or drag. Page Up and Page Down change the step on both sides.");
    let next = kind.unwrap_or(Kind::of(at)).at(step);
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
    let entry = |word: &str, key: GroupKey| {
        let key = TreeKey::By(key);
        ChoiceEntry { name: format!("{word} {}", key_label(key)), problem: absent_in_both(recordings, key) }
    };
    let all: Vec<GroupKey> =
        group_keys(recordings.map(|recording| recording.deepest_scope).into_iter().max().unwrap_or(0)).collect();
    let first = keys.first().copied().unwrap_or(GroupKey::Category);
    if let Some(next) = choice_ui(ui, "Group by", &first, &all, |key| entry("by", *key)) {
        keys.retain(|key| *key != next);
        if let Some(slot) = keys.first_mut() {
            *slot = next;
        } else {
            keys.push(next);
        }
        return;
    }
    let others = all.iter().copied().filter(|key| *key != first);
    let seconds: Vec<Option<GroupKey>> = std::iter::once(None).chain(others.map(Some)).collect();
    let second = keys.get(1).copied();
    let entry = |key: &Option<GroupKey>| key.map_or_else(|| "then nothing".to_owned().into(), |key| entry("then", key));
    if let Some(next) = choice_ui(ui, "Then group by", &second, &seconds, entry) {
        *keys = std::iter::once(first).chain(next).collect();
    }
}

/// The total.
pub(super) fn metric_ui(ui: &mut Ui, now: Metric, all: &[Metric]) -> Option<Metric> {
    ui.label("Total");
    choice_ui(ui, "Compared total", &now, all, |metric| total_name(*metric))
}

/// The alignment.
pub(super) fn align_ui(ui: &mut Ui, now: Align) -> Option<Align> {
    ui.label("Align");
    choice_ui(ui, "Align", &now, Align::ALL, |align| align.name().to_owned())
}
