//! Notes and warnings below a result, as wrapped sentences.

use eframe::egui::text::{LayoutJob, TextFormat};
use eframe::egui::{Color32, FontId, Label, Role, Ui, WidgetInfo};

use crate::gui::widgets::theme::Shades;

/// Font size in points.
const SIZE: f32 = 12.5;

/// Shows `text` in small letters of the normal text colour.
pub(crate) fn note_ui(ui: &mut Ui, text: &str) {
    let colour = ui.visuals().text_color();
    ui.add(Label::new(with_code(text, SIZE, colour)).wrap());
}

pub(crate) fn assumption_ui(ui: &mut Ui, text: &str) {
    quiet_ui(ui, &format!("Assumed: {text}."));
}

/// Shows a note on how figures were computed, in small, faint letters.
pub(crate) fn quiet_ui(ui: &mut Ui, text: &str) {
    let colour = ui.visuals().weak_text_color();
    ui.add(Label::new(with_code(text, SIZE, colour)).wrap());
}

pub(crate) fn warning_ui(ui: &mut Ui, text: &str) {
    let colour = Shades::in_ui(ui).warning;
    ui.add(Label::new(with_code(text, SIZE, colour)).wrap());
}

pub(crate) fn answer_ui(ui: &mut Ui, text: &str, colour: Color32) {
    ui.add(Label::new(with_code(text, 15.0, colour)).wrap());
}

/// Formats text, with the parts between backticks as code.
pub(crate) fn with_code(text: &str, size: f32, colour: Color32) -> LayoutJob {
    let mut job = LayoutJob::default();
    for (row, part) in text.split('`').enumerate() {
        let font = if row % 2 == 1 { FontId::monospace(size - 0.5) } else { FontId::proportional(size) };
        job.append(part, 0.0, TextFormat::simple(font, colour));
    }
    job
}

pub(crate) fn labelled_button_ui(ui: &mut Ui, text: &str, label: &str, tooltip: &str) -> bool {
    let button = ui.small_button(text);
    button.widget_info(|| WidgetInfo::labeled(Role::Button, true, label));
    button.on_hover_text(tooltip).clicked()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_is_without_backticks_in_letters_of_one_width() {
        let job = with_code("run `a b`, then `c`", 12.0, Color32::BLACK);
        assert_eq!(job.text, "run a b, then c");
        let code = |row: usize| job.sections[row].format.font_id.family == eframe::egui::FontFamily::Monospace;
        assert_eq!([0, 1, 2, 3].map(code), [false, true, false, true]);
    }
}
