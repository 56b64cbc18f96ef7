//! The line above a timeline that names what is wrong with a recording.

use eframe::egui::{Align, Frame, Label, Layout, Margin, RichText, Stroke, Ui};

use super::theme::Shades;

/// What a line says, and the button that leads to more.
pub(crate) struct Banner<'a> {
    pub(crate) title: &'a str,
    pub(crate) text: &'a str,
    /// In the tooltip, after the text.
    pub(crate) hint: &'a str,
    /// The button's name and tooltip.
    pub(crate) button: (&'a str, &'a str),
}

impl Banner<'_> {
    /// Shows the line. Returns whether its button was clicked.
    pub(crate) fn banner_ui(&self, ui: &mut Ui) -> bool {
        let shades = Shades::in_ui(ui);
        let frame = Frame::new()
            .fill(shades.warning.gamma_multiply(0.1))
            .stroke(Stroke::new(1.0, shades.warning.gamma_multiply(0.5)))
            .corner_radius(4.0)
            .inner_margin(Margin::symmetric(8, 2));
        let line_ui = |ui: &mut Ui| {
            ui.label(RichText::new(self.title).strong().color(shades.warning));
            let rest = ui.with_layout(Layout::right_to_left(Align::Center), |ui| {
                let (name, tooltip) = self.button;
                let is_clicked = ui.button(name).on_hover_text(tooltip).clicked();
                ui.with_layout(Layout::left_to_right(Align::Center), |ui| {
                    let tooltip = [self.text, self.hint].join("\n");
                    ui.add(Label::new(self.text).truncate()).on_hover_text(tooltip.trim_end());
                });
                is_clicked
            });
            rest.inner
        };
        frame.show(ui, |ui| ui.horizontal(line_ui).inner).inner
    }
}
