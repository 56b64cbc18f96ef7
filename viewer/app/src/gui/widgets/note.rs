//! Sentences below a result: notes and warnings, on as many lines as they need.

use eframe::egui::{Color32, Label, RichText, Ui};

use crate::gui::widgets::theme::Shades;

/// Size of the letters.
const SIZE: f32 = 12.5;

/// Shows a note.
pub(crate) fn note_ui(ui: &mut Ui, text: &str) {
    ui.add(Label::new(RichText::new(text).size(SIZE)).wrap());
}

/// Shows a warning.
pub(crate) fn warning_ui(ui: &mut Ui, text: &str) {
    let colour = Shades::in_ui(ui).warning;
    ui.add(Label::new(RichText::new(text).size(SIZE).color(colour)).wrap());
}

/// Shows the answer of a view, its largest sentence.
pub(crate) fn answer_ui(ui: &mut Ui, text: &str, colour: Color32) {
    ui.add(Label::new(RichText::new(text).size(15.0).strong().color(colour)).wrap());
}
