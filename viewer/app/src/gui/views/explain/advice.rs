//! Advice on lowering the peak, each item with its saving and the remaining peak in bytes, and the peak after removing
//! one part after another.

use eframe::egui::{Align, Frame, Label, Layout, RichText, Ui};
use highwater_analysis::explain::Remedy;
use highwater_analysis::{Advice, Filter, GroupKey, Moment};
use highwater_snapshots::format_bytes;

use super::job::Explained;
use super::{Looks, only};
use crate::gui::views::view::Action;
use crate::gui::widgets::{
    Cell, ShownColumn, ShownTable, TableState, exact_height_ui, labelled_button_ui, note_ui, quiet_ui, step_and_phase,
    table_ui, theme, when,
};
use crate::report::{Column, column_of};

const CARD_WIDTH: f32 = 320.0;
/// Minimum width, in points, at which the table of removals shows all columns.
const ROOM_FOR_ALL: f32 = 540.0;

/// The caption of the removals, with the reason parts are missing there.
const REMOVED: &str = "One removed after another; parameters, optimizer state, buffers and inputs are needed.";

const CARDS: usize = 3;

/// Shows the items of advice, in their order, as cards in rows of similar length.
pub(super) fn cards_ui(ui: &mut Ui, explained: &Explained, filter: &Filter, can_click: bool) -> Option<Action> {
    let explanation = &explained.explanation;
    if explanation.advice.is_empty() {
        let of = if explanation.peak.is_state { "state" } else { "peak" };
        ui.add(Label::new(RichText::new(format!("No advice: no rule applies to this {of}.")).weak()).wrap());
        return None;
    }
    let most = ((ui.available_width() / CARD_WIDTH) as usize).clamp(1, CARDS);
    let cards = explanation.advice.len().div_ceil(explanation.advice.len().div_ceil(most));
    let peak = &explanation.peak;
    let sizes =
        |one: &Advice| one.saving(peak.bytes).map_or([one.bytes; 3], |saving| [one.bytes, saving, peak.bytes - saving]);
    let size = column_of(explanation.advice.iter().flat_map(sizes));
    let mut action = None;
    for (row, advice) in explanation.advice.chunks(cards).enumerate() {
        // Cards side by side are equally high, with their buttons at the end, which takes a frame to know.
        let id = ui.scope_id().with(("cards", row));
        let mut heights = ui.data(|data| data.get_temp::<Vec<f32>>(id)).unwrap_or_default();
        heights.resize(advice.len(), 0.0);
        let height = heights.iter().copied().fold(0.0, f32::max);
        let before = heights.clone();
        ui.columns(cards, |columns| {
            for (((column, one), ui), own) in advice.iter().enumerate().zip(columns).zip(&mut heights) {
                let frame = Frame::group(ui.style()).fill(ui.visuals().faint_bg_color).inner_margin(10);
                let number = row * cards + column + 1;
                let card = |ui: &mut Ui| {
                    let rest = height - *own;
                    let action = card_ui(ui, (number, rest), one, figure(one, peak, &size), (filter, can_click));
                    *own = (ui.min_rect().height() - rest).round();
                    action
                };
                // Columns would stretch the spaces between words.
                let shown = frame.show(ui, |ui| ui.with_layout(Layout::top_down(Align::Min), card).inner);
                action = shown.inner.or(action.take());
            }
        });
        if heights != before {
            ui.data_mut(|data| data.insert_temp(id, heights));
            ui.ctx().request_repaint();
        }
    }
    action
}

/// If the saving is unknown, or not to be had in full, returns the size of the blocks in a faint colour.
fn figure(advice: &Advice, peak: &Moment, size: impl Fn(u64) -> String) -> (RichText, String) {
    let faint = |caption: String| (RichText::new(size(advice.bytes)).weak(), caption);
    let left = advice.saving(peak.bytes).map(|saving| (format!("−{}", size(saving)), size(peak.bytes - saving)));
    let (of, without) = if peak.is_state { ("affected", "without it") } else { ("of the peak", "peak without it") };
    let what = if advice.peak_with.is_some() { "peak with it" } else { without };
    match left {
        None => faint("affected".to_owned()),
        Some((_, left)) if advice.remedy == Remedy::SmallerState => faint(format!("{of}; {left} without it")),
        Some((saving, left)) => (RichText::new(saving).strong(), format!("{left} {what}")),
    }
}

/// Shows a card: its subject and its saving, then the advice, and after `rest` points of space the buttons.
fn card_ui(
    ui: &mut Ui,
    (number, rest): (usize, f32),
    advice: &Advice,
    (figure, caption): (RichText, String),
    (filter, can_click): (&Filter, bool),
) -> Option<Action> {
    ui.set_width(ui.available_width());
    ui.strong(advice.remedy.subject());
    ui.horizontal_wrapped(|ui| {
        ui.label(figure.size(18.0));
        ui.label(RichText::new(caption).weak());
    });
    note_ui(ui, &advice.text);
    ui.add_space(rest);
    if can_click { buttons_ui(ui, number, advice, filter) } else { None }
}

fn buttons_ui(ui: &mut Ui, number: usize, advice: &Advice, filter: &Filter) -> Option<Action> {
    if advice.condition.is_none() && advice.without.is_none() {
        return None;
    }
    let label = |name: &str| format!("{name}: advice {number}");
    let mut action = None;
    ui.horizontal_wrapped(|ui| {
        if let Some(condition) = &advice.condition {
            let chosen = only(condition, filter);
            let is_chosen = chosen == Action::Only(String::new());
            let name = if is_chosen { "All blocks" } else { "Only these blocks" };
            if labelled_button_ui(ui, name, &label(name), &format!("Blocks with {condition}")) {
                action = Some(chosen);
            }
        }
        if let Some(without) = &advice.without {
            let name = "Go to the peak without it";
            let tooltip = format!("{}: {}", when(without), format_bytes(without.bytes));
            if labelled_button_ui(ui, name, &label(name), &tooltip) {
                action = Some(Action::Event(without.number()));
            }
        }
    });
    action
}

/// Shows the peak after removing one part after another; nothing if no part can be removed.
pub(super) fn removals_ui(
    ui: &mut Ui,
    explained: &Explained,
    looks: Looks<'_>,
    state: &mut TableState,
) -> Option<Action> {
    let (peak, removals) = (&explained.explanation.peak, &explained.explanation.removals);
    if removals.is_empty() || peak.is_state {
        return None;
    }
    let left = |row: usize| match row.checked_sub(1) {
        None => peak,
        Some(row) => removals.get(row).map_or(peak, |removal| &removal.left),
    };
    let removed = |row: usize| row.checked_sub(1).and_then(|row| removals.get(row));
    let name = |row: usize| {
        removed(row).map_or_else(|| "nothing, as recorded".to_owned(), |removal| looks.name(removal.cause.name()))
    };
    let category = |row: usize| looks.colour(GroupKey::Category, removed(row)?.cause.category.name());
    let share = |row: usize| Some((left(row).bytes as f64 / peak.bytes.max(1) as f64) as f32);
    let go_to = |row: usize| Some(when(left(row)));
    // In little space, the peak that is left leads to where it is.
    let is_narrow = ui.available_width() < ROOM_FOR_ALL;
    let mut without = Column::bytes("peak_without", "peak left", |row| left(row).bytes)
        .wide(120.0, "The peak without this part and all parts above it. Press Enter to go there.")
        .look(|row, cell| Cell { share: share(row), is_link: is_narrow, ..cell });
    if is_narrow {
        without = without.tip(go_to);
    }
    let columns = [
        Column::text("removed", "then without", name)
            .wide(0.0, "Parts removed one after another, each time the one that lowers the remaining peak most.")
            .look(|row, cell| Cell { swatch: category(row), ..cell }),
        Column::bytes("bytes_at_peak", "size", |row| removed(row).map(|removal| removal.bytes_at_peak))
            .wide(80.0, "Bytes of the part at the peak that remains without the parts above it."),
        without,
        Column::text("new_peak", "new peak at", |row| step_and_phase(left(row)))
            .wide(124.0, "The moment of that peak. Click or press Enter to go there.")
            .look(|_, cell| Cell { is_link: true, ..cell })
            .tip(go_to),
    ];
    let rows = ShownTable::new(removals.len() + 1, columns.map(ShownColumn::fixed));
    let rows = rows.narrowed(if is_narrow { &[0, 2] } else { &[0, 1, 2, 3] });
    quiet_ui(ui, REMOVED);
    let height = (removals.len() + 2) as f32 * theme::ROW_HEIGHT + 4.0;
    let touched = exact_height_ui(ui, height, |ui| table_ui(ui, "Removals", &rows, state));
    let linked = touched.chosen.filter(|_| touched.column == Some(rows.columns.len() - 1));
    touched.opened.or(linked).map(|row| Action::Event(left(row).number()))
}
