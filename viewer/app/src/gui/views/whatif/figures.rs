//! Recorded and predicted peaks, and the peaks with common settings, as tables.

use eframe::egui::{Ui, UiBuilder, vec2};
use highwater_analysis::Metric;
use highwater_snapshots::units::{format_bytes, format_count};

use super::job::{Other, Replayed};
use crate::answers::prediction::Figures;
use crate::figures::predicted::{Compared, compared, compared_table, difference, tried, tried_table};
use crate::gui::views::view::Action;
use crate::gui::widgets::table::{Cell, Column, TableState, Touched, columns_left_out_ui, table_with_tips_ui};
use crate::gui::widgets::theme;
use crate::gui::widgets::words::{step_and_phase, when};

const fn number(name: &'static str, tooltip: &'static str) -> Column {
    Column { name, tooltip, width: 80.0, is_number: true, is_sortable: false }
}

const fn text(name: &'static str, tooltip: &'static str, width: f32) -> Column {
    Column { name, tooltip, width, is_number: false, is_sortable: false }
}

const PEAKS: [Column; 5] = [
    text("Peak of", "The total; each peaks at its own moment.", 110.0),
    number("Recorded", "The recorded peak."),
    number("What if", "The predicted peak."),
    Column { width: 84.0, ..number("Difference", "Predicted minus recorded.") },
    text("New peak at", "The moment of the predicted peak. Click or press Enter to go there.", 0.0),
];

const TRIED: [Column; 6] = [
    text("Settings", "Click or press Enter to replay with these settings.", 0.0),
    number("Allocated", "The peak of allocated memory."),
    number("Reserved", "The peak of reserved memory."),
    Column { width: 108.0, ..number("Reserved − active", "Peak of reserved memory minus peak of active memory.") },
    Column { width: 104.0, ..number("vs. recorded", "Peak of reserved memory minus the recorded peak.") },
    text("Outcome", "Whether a request fails, or the replay reaches the end of the recording.", 196.0),
];

/// Least width at which the table of settings has all its columns, in points.
const ROOM_FOR_ALL: f32 = 774.0;
/// Least width at which it says how each replay ends, in points.
const ROOM_FOR_OUTCOME: f32 = 560.0;
/// Least width at which the table of peaks names events, in points.
const ROOM_FOR_EVENTS: f32 = 590.0;

/// Height of a table with this number of rows.
fn height(rows: usize) -> f32 {
    (rows as f32 + 1.0) * theme::ROW_HEIGHT + 4.0
}

/// Shows the table at the height of its rows.
fn whole_table_ui(
    ui: &mut Ui,
    (label, columns): (&str, &[Column]),
    rows: usize,
    state: &mut TableState,
    cells: (impl FnMut(usize, usize) -> Cell, impl FnMut(usize, usize) -> Option<String>),
) -> Touched {
    let room = vec2(ui.available_width(), height(rows) + theme::SCROLL_WIDTH);
    let (_, place) = ui.allocate_space(room);
    let show = |ui: &mut Ui| table_with_tips_ui(ui, label, columns, rows, state, cells);
    ui.scope_builder(UiBuilder::new().id_salt(label).max_rect(place), show).inner
}

/// The peaks, at recorded events.
fn peaks(replayed: &Replayed, other: &Other<'_>) -> Vec<Compared> {
    let mut rows = compared(&replayed.prediction.measured, &other.changed.figures);
    rows.iter_mut().for_each(|row| row.peak = row.peak.map(|peak| other.run.told(&peak)));
    rows
}

/// Shows the peaks. Returns the moment that was clicked.
pub(super) fn peaks_ui(ui: &mut Ui, replayed: &Replayed, other: &Other<'_>, state: &mut TableState) -> Option<Action> {
    let rows = peaks(replayed, other);
    let place = if ui.available_width() < ROOM_FOR_EVENTS { step_and_phase } else { when };
    let cell = |row: usize, column: usize| {
        let Some(row) = rows.get(row) else { return Cell::default() };
        let [before, after] = row.bytes;
        match column {
            0 => row.name.as_str().into(),
            1 => format_bytes(before).into(),
            2 => format_bytes(after).into(),
            3 => Cell { is_faint: before == after, ..difference(before, after).into() },
            _ => row.peak.map_or_else(Cell::default, |peak| Cell { is_link: true, ..place(&peak).into() }),
        }
    };
    let tip = |row: usize, column: usize| {
        let row = rows.get(row)?;
        if column + 1 == PEAKS.len() {
            return row.peak.map(|peak| when(&peak));
        }
        let bytes = row.bytes;
        let exact = *bytes.get(column.checked_sub(1)?)?;
        Some(format!("{} B", format_count(exact)))
    };
    let touched = whole_table_ui(ui, ("Peaks, recorded and what if", &PEAKS), rows.len(), state, (cell, tip));
    let linked = touched.chosen.filter(|_| touched.column == Some(PEAKS.len() - 1));
    let row = touched.opened.or(linked).and_then(|row| rows.get(row))?;
    row.peak.map(|peak| Action::Moment(peak.position()))
}

/// Shows the settings that were tried. Returns those that were clicked.
pub(super) fn tried_ui(ui: &mut Ui, replayed: &Replayed, state: &mut TableState) -> Option<String> {
    let rows = tried(&replayed.prediction);
    let before = replayed.prediction.measured.peak_bytes(Metric::Reserved);
    // In little space, only the figures to compare stay.
    let shown: &[usize] = match ui.available_width() {
        ROOM_FOR_ALL.. => &[0, 1, 2, 3, 4, 5],
        ROOM_FOR_OUTCOME.. => &[0, 2, 4, 5],
        _ => &[0, 2, 4],
    };
    columns_left_out_ui(ui, TRIED.len() - shown.len());
    let columns: Vec<Column> = shown.iter().map(|column| TRIED[*column]).collect();
    let of = |column: usize| shown.get(column).copied().unwrap_or_default();
    let cell = |row: usize, column: usize| {
        let column = of(column);
        let Some(row) = rows.get(row) else { return Cell::default() };
        let [allocated, reserved, unused] = figures_of(row.figures);
        match column {
            0 => Cell { is_link: row.asked.is_some(), ..row.name.into() },
            1 => format_bytes(allocated).into(),
            2 => format_bytes(reserved).into(),
            3 => format_bytes(unused).into(),
            4 => Cell { is_faint: before == reserved, ..difference(before, reserved).into() },
            _ => row.end.as_str().into(),
        }
    };
    let tip = |row: usize, column: usize| {
        let exact = *figures_of(rows.get(row)?.figures).get(of(column).checked_sub(1)?)?;
        Some(format!("{} B", format_count(exact)))
    };
    let touched = whole_table_ui(ui, ("Settings tried", &columns), rows.len(), state, (cell, tip));
    // Selecting rows by keys replays nothing; a click does, anywhere in the row.
    let clicked = touched.chosen.filter(|_| touched.column.is_some());
    let row = touched.opened.or(clicked).and_then(|row| rows.get(row))?;
    row.asked.map(str::to_owned)
}

/// The peaks of allocated and reserved memory, and the difference between the peaks of reserved and active memory.
fn figures_of(figures: &Figures) -> [u64; 3] {
    let [allocated, reserved] = [Metric::Allocated, Metric::Reserved].map(|metric| figures.peak_bytes(metric));
    [allocated, reserved, figures.reserved_beyond_active()]
}

/// The current table as CSV, at recorded events.
pub(super) fn figures_csv(replayed: &Replayed) -> String {
    match replayed.other() {
        Some(other) => compared_table(peaks(replayed, &other), other.changed.oom.is_some()).csv(),
        None => tried_table(&replayed.prediction).csv(),
    }
}
