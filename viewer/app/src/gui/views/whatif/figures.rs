//! Recorded and predicted peaks, and the peaks with common settings, as tables.

use eframe::egui::{Ui, vec2};
use highwater_analysis::Metric;

use super::job::{Other, Replayed};
use crate::answers::prediction::Figures;
use crate::figures::predicted::{Compared, compared, compared_table, tried, tried_table};
use crate::gui::views::view::Action;
use crate::gui::widgets::{Cell, Column, Rows, TableState, Touched, place_ui, step_and_phase, table_ui, theme, when};
use crate::report::Unit;

/// Width of a column of bytes, in points.
const WIDTH: f32 = 80.0;
/// Minimum width at which the table of peaks has a column for events, in points.
const ROOM_FOR_EVENTS: f32 = 590.0;

/// Height of a table with this number of rows.
fn height(rows: usize) -> f32 {
    (rows as f32 + 1.0) * theme::ROW_HEIGHT + 4.0
}

/// Shows an unsortable table at its full height.
fn whole_table_ui(ui: &mut Ui, label: &str, rows: &Rows<'_>, state: &mut TableState) -> Touched {
    let room = vec2(ui.available_width(), height(rows.count) + theme::SCROLL_WIDTH);
    let (_, place) = ui.allocate_space(room);
    place_ui(ui, label, place, |ui| table_ui(ui, label, rows, state))
}

/// A column of differences from the recorded peak, with its own tooltip.
fn difference_column<'a>(
    (name, width): (&'static str, f32),
    tooltip: &'static str,
    bytes: impl Fn(usize) -> [u64; 2] + Copy + 'a,
) -> Column<'a> {
    let value = move |row: usize| i128::from(bytes(row)[1]) - i128::from(bytes(row)[0]);
    Column::new(Unit::Difference, (name, width), tooltip, value).look(move |row, cell| match value(row) {
        0 => Cell { is_faint: true, text: "none".to_owned(), ..cell },
        _ => cell,
    })
}

/// The peaks, with the recorded events to which they correspond.
fn peaks(replayed: &Replayed, other: &Other<'_>) -> Vec<Compared> {
    let mut rows = compared(&replayed.prediction.measured, &other.changed.figures);
    rows.iter_mut().for_each(|row| row.peak = row.peak.map(|peak| other.run.renumbered(&peak)));
    rows
}

/// Shows the peaks. Returns the action for a clicked moment.
pub(super) fn peaks_ui(ui: &mut Ui, replayed: &Replayed, other: &Other<'_>, state: &mut TableState) -> Option<Action> {
    let rows = peaks(replayed, other);
    let place = if ui.available_width() < ROOM_FOR_EVENTS { step_and_phase } else { when };
    let peak = |row: usize| rows[row].peak;
    let columns = [
        Column::text(("Peak of", 110.0), "The total; each peaks at its own moment.", |row| rows[row].name.as_str()),
        Column::bytes(("Recorded", WIDTH), "The recorded peak.", |row| rows[row].bytes[0]),
        Column::bytes(("What if", WIDTH), "The predicted peak.", |row| rows[row].bytes[1]),
        difference_column(("Difference", 84.0), "Predicted minus recorded.", |row| rows[row].bytes),
        Column::text(
            ("New peak at", 0.0),
            "The moment of the predicted peak. Click or press Enter to go there.",
            |row| peak(row).map(|peak| place(&peak)),
        )
        .look(|row, cell| Cell { is_link: peak(row).is_some(), ..cell })
        .tip(|row| peak(row).map(|peak| when(&peak))),
    ];
    let last = columns.len() - 1;
    let table = Rows::new(rows.len(), columns.map(Column::fixed));
    let touched = whole_table_ui(ui, "Peaks, recorded and what if", &table, state);
    let linked = touched.chosen.filter(|_| touched.column == Some(last));
    let row = touched.opened.or(linked).and_then(|row| rows.get(row))?;
    row.peak.map(|peak| Action::Moment(peak.position()))
}

/// Shows the results of the settings that were tried. Returns the settings that were clicked.
pub(super) fn tried_ui(ui: &mut Ui, replayed: &Replayed, state: &mut TableState) -> Option<String> {
    let rows = tried(&replayed.prediction);
    let before = replayed.prediction.measured.peak_bytes(Metric::Reserved);
    let figures = |row: usize| figures_of(rows[row].figures);
    // Where there is little room, the last columns are out of sight.
    let [settings, outcome] = if ui.available_width() < ROOM_FOR_EVENTS { [190.0, 196.0] } else { [0.0; 2] };
    let columns = [
        Column::text(("Settings", settings), "Click or press Enter to replay with these settings.", |row| {
            rows[row].name
        })
        .look(|row, cell| Cell { is_link: rows[row].asked.is_some(), ..cell }),
        Column::bytes(("Reserved", WIDTH), "The peak of reserved memory.", |row| figures(row)[1]),
        difference_column(("vs. recorded", 104.0), "Peak of reserved memory minus the recorded peak.", |row| {
            [before, figures(row)[1]]
        }),
        Column::text(
            ("Outcome", outcome),
            "Whether a request fails, or the replay reaches the end of the recording.",
            |row| rows[row].end.as_str(),
        ),
        Column::bytes(("Allocated", WIDTH), "The peak of allocated memory.", |row| figures(row)[0]),
        Column::bytes(("Reserved − active", 122.0), "Peak of reserved memory minus peak of active memory.", |row| {
            figures(row)[2]
        }),
    ];
    let table = Rows::new(rows.len(), columns.map(Column::fixed));
    let touched = whole_table_ui(ui, "Settings tried", &table, state);
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

/// The current table as CSV, with recorded event numbers.
pub(super) fn figures_csv(replayed: &Replayed) -> String {
    match replayed.other() {
        Some(other) => compared_table(peaks(replayed, &other), other.changed.oom.is_some()).csv(),
        None => tried_table(&replayed.prediction).csv(),
    }
}
