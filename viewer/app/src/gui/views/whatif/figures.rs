//! Recorded and predicted peaks, and the peaks with common settings, as tables.

use super::job::{Other, Replayed};
use crate::figures::predicted::{Compared, NO_DIFFERENCE, compared, compared_table, tried, tried_table};
use crate::gui::views::view::Action;
use crate::gui::widgets::{
    Cell, ShownColumn, ShownTable, TableState, Touched, place_ui, step_and_phase, table_ui, theme, when,
};
use crate::report::Column;
use eframe::egui::{Ui, vec2};

const WIDTH: f32 = 80.0;
/// Minimum width, in points, at which the table of peaks names their events and the last column of settings takes the
/// rest of the width.
const ROOM_FOR_EVENTS: f32 = 590.0;
/// The columns of the tried settings, the most important ones first.
const BY_IMPORTANCE: [usize; 6] = [0, 2, 3, 5, 1, 4];

/// Height of a table with this number of rows, in points.
fn height(rows: usize) -> f32 {
    (rows as f32 + 1.0) * theme::ROW_HEIGHT + 4.0
}

/// Shows an unsortable table at its full height.
fn whole_table_ui(ui: &mut Ui, label: &str, rows: &ShownTable<'_>, state: &mut TableState) -> Touched {
    let room = vec2(ui.available_width(), height(rows.count) + theme::SCROLL_WIDTH);
    let (_, place) = ui.allocate_space(room);
    place_ui(ui, label, place, |ui| table_ui(ui, label, rows, state))
}

/// A column of differences, of which those of 0 bytes are faint.
fn difference_column<'a>(column: Column<'a>, tooltip: &'static str) -> ShownColumn<'a> {
    column.wide(84.0, tooltip).look(|_, cell| Cell { is_faint: cell.text == NO_DIFFERENCE, ..cell })
}

/// Returns the recorded and predicted peaks; predicted events are replaced by the corresponding recorded ones.
fn peaks(replayed: &Replayed, other: &Other<'_>) -> Vec<Compared> {
    let mut rows = compared(&replayed.prediction.measured, &other.changed.figures);
    rows.iter_mut().for_each(|row| row.peak = row.peak.map(|peak| other.run.renumbered(&peak)));
    rows
}

/// Returns the action for a clicked moment.
pub(super) fn peaks_ui(ui: &mut Ui, replayed: &Replayed, other: &Other<'_>, state: &mut TableState) -> Option<Action> {
    let rows = peaks(replayed, other);
    let place = if ui.available_width() < ROOM_FOR_EVENTS { step_and_phase } else { when };
    let peak = |row: usize| rows[row].peak;
    let columns = compared_table(rows.clone(), other.changed.oom.is_some()).into_columns();
    let columns = columns.into_iter().map(|column| match column.key {
        "figure" => column.wide(110.0, "The total; each peaks at its own moment."),
        "recorded_bytes" => column.wide(WIDTH, "The recorded peak."),
        "changed_bytes" => column.wide(WIDTH, "The predicted peak."),
        "new_peak" => column
            .shown(|row| peak(row).map(|peak| place(&peak)).unwrap_or_default())
            .wide(0.0, "The moment of the predicted peak. Click or press Enter to go there.")
            .look(|row, cell| Cell { is_link: peak(row).is_some(), ..cell })
            .tip(|row| peak(row).map(|peak| when(&peak))),
        _ => difference_column(column, "Predicted minus recorded."),
    });
    let columns: Vec<_> = columns.map(ShownColumn::fixed).collect();
    let last = columns.len() - 1;
    let table = ShownTable::new(rows.len(), columns);
    let touched = whole_table_ui(ui, "Recorded and predicted peaks", &table, state);
    let linked = touched.chosen.filter(|_| touched.column == Some(last));
    let row = touched.opened.or(linked).and_then(|row| rows.get(row))?;
    row.peak.map(|peak| Action::Moment(peak.position()))
}

/// Returns the settings that were clicked.
pub(super) fn tried_ui(ui: &mut Ui, replayed: &Replayed, state: &mut TableState) -> Option<String> {
    let rows = tried(&replayed.prediction);
    // Where there is little room, the last columns are out of sight.
    let outcome = if ui.available_width() < ROOM_FOR_EVENTS { 196.0 } else { 0.0 };
    let columns = tried_table(&replayed.prediction).into_columns();
    let columns = columns.into_iter().map(|column| match column.key {
        "alloc_conf" => column
            .shown(|row| rows[row].name.to_owned())
            .wide(190.0, "Click or press Enter to replay with these settings.")
            .look(|row, cell| Cell { is_link: rows[row].asked.is_some(), ..cell }),
        "peak_allocated_bytes" => column.wide(WIDTH, "The peak of allocated memory."),
        "peak_reserved_bytes" => column.wide(WIDTH, "The peak of reserved memory."),
        "unused_bytes" => column.wide(122.0, "Peak of reserved memory minus peak of active memory."),
        "result" => column.wide(outcome, "Whether a request fails, or the replay reaches the end of the recording."),
        _ => difference_column(column, "Peak of reserved memory minus the recorded peak."),
    });
    let table = ShownTable::new(rows.len(), columns.map(ShownColumn::fixed)).narrowed(&BY_IMPORTANCE);
    let touched = whole_table_ui(ui, "Settings tried", &table, state);
    // Selecting rows by keys replays nothing; a click does, anywhere in the row.
    let clicked = touched.chosen.filter(|_| touched.column.is_some());
    let row = touched.opened.or(clicked).and_then(|row| rows.get(row))?;
    row.asked.map(str::to_owned)
}

pub(super) fn figures_csv(replayed: &Replayed) -> String {
    match replayed.other() {
        Some(other) => compared_table(peaks(replayed, &other), other.changed.oom.is_some()).csv(),
        None => tried_table(&replayed.prediction).csv(),
    }
}
