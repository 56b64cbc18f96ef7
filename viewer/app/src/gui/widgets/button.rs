//! Small buttons whose label for screen readers says more than their text.

use eframe::egui::{Role, Ui, WidgetInfo};

/// Shows a button. Returns whether it was clicked.
pub(crate) fn labelled_button_ui(ui: &mut Ui, text: &str, label: &str, tooltip: &str) -> bool {
    let button = ui.small_button(text);
    button.widget_info(|| WidgetInfo::labeled(Role::Button, true, label));
    button.on_hover_text(tooltip).clicked()
}
