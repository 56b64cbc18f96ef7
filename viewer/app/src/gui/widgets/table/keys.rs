//! Keyboard navigation of a table that has the focus.

use eframe::egui::{self, Event, Key, Response, Ui};
use highwater_snapshots::shown::spreadsheet_text;

use super::{ShownColumn, TableState, Touched};
use crate::gui::widgets::keys::pressed_keys;

/// Horizontal scroll step of an arrow key, in points.
const STRIDE: f32 = 60.0;

/// Handles the keys while the table has the keyboard focus: arrows, pages, Home and End select rows, Enter opens the
/// selected row. Left and right scroll columns. Escape returns the focus.
pub(super) fn walk(
    ui: &Ui,
    response: &Response,
    (rows, in_view): (usize, usize),
    state: &mut TableState,
    touched: &mut Touched,
) {
    if response.clicked() {
        response.request_focus();
    }
    let Some(pressed) = pressed_keys(ui, response, [true; 2]).filter(|_| rows > 0) else { return };
    let page = in_view.saturating_sub(1).max(1) as i64;
    let by = pressed(Key::ArrowDown) - pressed(Key::ArrowUp) + page * (pressed(Key::PageDown) - pressed(Key::PageUp));
    state.aside += STRIDE * (pressed(Key::ArrowRight) - pressed(Key::ArrowLeft)) as f32;
    let last = rows as i64 - 1;
    let now = state.chosen.map(|row| (row as i64).min(last));
    // Without a selected row, navigation starts at the rows in view.
    let first = (state.first as i64).min(last);
    let next = match (pressed(Key::Home), pressed(Key::End)) {
        (1.., _) => Some(0),
        (_, 1..) => Some(last),
        _ if by != 0 => Some(now.map_or(first + by - by.signum(), |now| now + by).clamp(0, last)),
        _ => now,
    };
    if let Some(next) = next.filter(|_| next != now) {
        let next = next as usize;
        (state.chosen, touched.chosen) = (Some(next), Some(next));
        state.first = state.first.min(next).max((next + 1).saturating_sub(in_view));
    }
    if pressed(Key::Enter) > 0 {
        touched.opened = state.chosen;
    }
}

pub(super) fn is_copying(ui: &Ui, response: &Response) -> bool {
    response.has_focus()
        && ui.input_mut(|input| {
            let before = input.events.len();
            input.events.retain(|event| !matches!(event, Event::Copy));
            input.events.len() < before
        })
}

/// Copies the cells of a row to the clipboard, separated by tabs for pasting into spreadsheets.
pub(super) fn copy(ctx: &egui::Context, columns: &[ShownColumn<'_>], words: &[String]) {
    let cell = |(column, text): (&ShownColumn<'_>, &String)| match column.data.unit.is_numeric() {
        true => text.clone(),
        false => spreadsheet_text(text).into_owned(),
    };
    let cells: Vec<String> = columns.iter().zip(words).map(cell).collect();
    ctx.copy_text(cells.join("\t"));
}
