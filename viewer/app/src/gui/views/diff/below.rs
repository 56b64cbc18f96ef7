//! The lower part of a comparison: the differences as tables or as a flame graph, and the selected group.

use std::sync::Arc;

use eframe::egui::{Rect, Ui};
use highwater_analysis::{MatchKind, condition};
use highwater_snapshots::format_count;

use super::choices::DiffLook;
use super::flame::{Act, Flame};
use super::job::Answer;
use crate::gui::views::sheet::Sheet;
use crate::gui::widgets::{SortedTable, place_ui};

#[derive(Debug, Default)]
pub(super) struct Below {
    /// The tables of groups, phases, totals and settings.
    pages: [SortedTable; 4],
    details: SortedTable,
    flame: Flame,
    /// The selected group, by its index in the answer.
    pub(super) chosen: Option<usize>,
    /// A note on groups whose two sides do not match exactly.
    pub(super) match_kind: Option<String>,
}

/// Minimum width of the view at which the details are shown beside the groups, in points.
const WITH_DETAILS: f32 = 1100.0;
const SAME_RECORDING: &str = "Both sides are the same recording, so every phase is the same.";
const PAIRED_STEPS: &str = "Steps are paired by number, or the last steps if no number is shared.";

/// Returns the index of the table for a form of display; `None` for the flame graph.
const fn page_of(look: DiffLook) -> Option<usize> {
    match look {
        DiffLook::Groups => Some(0),
        DiffLook::Flame => None,
        DiffLook::Phases => Some(1),
        DiffLook::Totals => Some(2),
        DiffLook::Settings => Some(3),
    }
}

impl Below {
    /// Switches to another answer, with nothing selected.
    pub(super) fn take(&mut self, answer: &Answer) {
        for (page, sheet) in self.pages.iter_mut().zip(&answer.sheets) {
            page.renew(&sheet.rows());
            page.rewind();
        }
        if let Some((_, sheet)) = &answer.details {
            self.details.renew(&sheet.rows());
            self.details.rewind();
        }
        self.flame.reset();
        self.chosen = None;
        let loosely = answer.comparison.diff.groups.iter().filter(|group| group.match_kind == MatchKind::Alike).count();
        self.match_kind = (loosely > 0).then(|| {
            let plural = if loosely == 1 { " was" } else { "s were" };
            format!("{} group{plural} matched loosely.", format_count(loosely as u64))
        });
    }

    /// Clears the selected group. Returns whether there was one.
    pub(super) fn unchoose(&mut self) -> bool {
        self.pages[0].mark(None);
        self.chosen.take().is_some()
    }

    /// Returns search conditions to add, if the user selected any.
    pub(super) fn below_ui(&mut self, ui: &mut Ui, answer: &Arc<Answer>, look: DiffLook) -> Option<String> {
        let Some(row) = page_of(look) else {
            return match self.flame.flame_ui(ui, answer, self.chosen)? {
                Act::Choose(group) => {
                    self.chosen = (self.chosen != Some(group)).then_some(group);
                    None
                }
                Act::Filter(group) => condition_of(answer, group),
            };
        };
        let (sheet, page) = (answer.sheets.get(row)?, self.pages.get_mut(row)?);
        if look == DiffLook::Phases {
            let is_same = answer.comparison.phases.is_empty();
            ui.weak(if is_same { SAME_RECORDING } else { PAIRED_STEPS });
            if is_same {
                return None;
            }
        }
        let whole = ui.available_rect_before_wrap();
        let details = answer.details.as_ref().filter(|_| look == DiffLook::Groups && whole.width() >= WITH_DETAILS);
        let middle = if details.is_some() { whole.center().x } else { whole.right() };
        let sheet_ui = |ui: &mut Ui, place: Rect, sheet: &Sheet, table: &mut SortedTable| {
            place_ui(ui, sheet.name, place, |ui| {
                sheet.lead.iter().for_each(|text| drop(ui.weak(text)));
                table.table_ui(ui, sheet.name, &sheet.rows())
            })
        };
        let touched = sheet_ui(ui, whole.with_max_x(middle), sheet, page);
        if look != DiffLook::Groups {
            return None;
        }
        if let Some((diff, sheet)) = details {
            let right = whole.with_min_x(middle + 16.0);
            let touched = sheet_ui(ui, right, sheet, &mut self.details);
            if let Some(group) = touched.opened.and_then(|row| diff.groups.get(row)) {
                return condition::of_group(&answer.detail_keys, &group.key, &group.members);
            }
        }
        let groups = answer.comparison.diff.groups.len();
        self.chosen = match touched.chosen {
            Some(group) => Some(group).filter(|group| *group < groups),
            None => self.chosen.filter(|_| !touched.is_resorted),
        };
        touched.opened.and_then(|group| condition_of(answer, group))
    }

    /// Shows the groups in an exported picture: as a table and, if there is space, a flame graph next to it.
    pub(super) fn picture_ui(&mut self, ui: &mut Ui, answer: &Arc<Answer>) {
        const TABLE: f32 = 0.58;
        const WIDE: f32 = 1000.0;
        let whole = ui.available_rect_before_wrap();
        if whole.width() < WIDE {
            self.below_ui(ui, answer, DiffLook::Groups);
            return;
        }
        let (mut left, mut right) = (whole, whole);
        left.max.x = whole.left() + whole.width() * TABLE;
        right.min.x = left.max.x + 12.0;
        for (rect, look) in [(left, DiffLook::Groups), (right, DiffLook::Flame)] {
            place_ui(ui, look.name(), rect, |ui| self.below_ui(ui, answer, look));
        }
    }

    pub(super) fn csv(&self, answer: &Answer, look: DiffLook) -> String {
        let row = page_of(look).unwrap_or(0);
        answer
            .sheets
            .get(row)
            .zip(self.pages.get(row))
            .map_or_else(String::new, |(sheet, page)| page.csv(&sheet.rows()))
    }
}

/// The conditions for a group's blocks in A and B; `None` if they cannot be expressed.
pub(super) fn conditions_of(answer: &Answer, group: usize) -> Option<[String; 2]> {
    let group = answer.comparison.diff.groups.get(group)?;
    let of = |values: &[String]| condition::of_group(&answer.keys, values, &group.members);
    let b = of(&group.key)?;
    let a = group.former_key.as_deref().map_or_else(|| Some(b.clone()), of)?;
    Some([a, b])
}

/// Returns the condition for a group's blocks in B, or in A if B has no such blocks; `None` if it cannot be expressed.
fn condition_of(answer: &Answer, group: usize) -> Option<String> {
    conditions_of(answer, group).map(|[_, b]| b)
}
