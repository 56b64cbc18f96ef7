//! A text field for the number of a step.

use eframe::egui::{Id, Key, Label, Modal, RichText, Role, TextEdit, Ui, WidgetInfo};

use crate::gui::widgets::theme::{self, Shades};
use crate::gui::window::entered::Entered;

/// Width of the field, in points.
const WIDTH: f32 = 240.0;

/// The open field.
#[derive(Debug, Default)]
pub struct StepField {
    text: String,
    is_focused: bool,
}

impl StepField {
    /// Shows the field over everything else.
    pub(crate) fn step_field_ui(&mut self, ui: &Ui) -> Entered<u32> {
        let mut entered = Entered::None;
        let modal = Modal::new(Id::unique("step field")).show(ui.ctx(), |ui| {
            ui.set_width(WIDTH);
            ui.strong("Go to step");
            let hint = theme::placeholder(ui, "Number of a step, such as 1200");
            let field = ui.add(TextEdit::singleline(&mut self.text).hint_text(hint).desired_width(f32::INFINITY));
            field.widget_info(|| WidgetInfo::labeled(Role::TextInput, true, "Step"));
            if !std::mem::replace(&mut self.is_focused, true) {
                field.request_focus();
            }
            let number = step_number(&self.text);
            let is_wrong = number.is_none() && !self.text.trim().is_empty();
            let problem = if is_wrong { "expected an integer" } else { "" };
            ui.add(Label::new(RichText::new(problem).color(Shades::in_ui(ui).warning)));
            let has_entered = ui.input(|input| input.key_pressed(Key::Enter));
            ui.horizontal(|ui| {
                let button = ui.add_enabled(number.is_some(), eframe::egui::Button::new("Go"));
                if let Some(number) = number.filter(|_| button.clicked() || has_entered) {
                    entered = Entered::Value(number);
                }
                if ui.button("Cancel").clicked() {
                    entered = Entered::Cancelled;
                }
            });
        });
        if modal.should_close() && entered == Entered::None { Entered::Cancelled } else { entered }
    }
}

/// The number of a step as it is typed, also with commas between thousands.
pub(crate) fn step_number(text: &str) -> Option<u32> {
    text.trim().replace(',', "").parse().ok()
}
