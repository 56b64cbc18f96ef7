//! The message about a file that could not be opened or recorded. It stays until the user closes it.

use std::path::Path;

use eframe::egui::{Button, RichText, Role, Ui, WidgetInfo};

use crate::files::file_name;
use crate::gui::widgets::Shades;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    Retry,
    Dismiss,
}

/// Shows the reason the file at `path` could not be opened. If `can_retry` is false, because the file has no path,
/// there is no button to try again.
pub(crate) fn failure_ui(ui: &mut Ui, path: &Path, why: &str, can_retry: bool) -> Option<Answer> {
    let shades = Shades::in_ui(ui);
    let name = file_name(path);
    let mut answer = None;
    let button = |ui: &mut Ui, text: &str, label: String, tooltip: &str| {
        let response = ui.add(Button::new(text));
        response.widget_info(|| WidgetInfo::labeled(Role::Button, true, label.clone()));
        response.on_hover_text(tooltip).clicked()
    };
    ui.horizontal_wrapped(|ui| {
        let heading = RichText::new(format!("Cannot open {name}:")).color(shades.warning).strong();
        ui.label(heading).on_hover_text(path.display().to_string());
        ui.label(why);
        if can_retry && button(ui, "Try again", format!("Try again: {name}"), "Read the file again.") {
            answer = Some(Answer::Retry);
        }
        if button(ui, "Copy", format!("Copy the message about {name}"), "Copy the file's path and this message.") {
            ui.ctx().copy_text(format!("{}: {why}", path.display()));
        }
        if button(ui, "Dismiss", "Dismiss".to_owned(), "Close this message.") {
            answer = Some(Answer::Dismiss);
        }
    });
    answer
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use egui_kittest::Harness;
    use egui_kittest::kittest::Queryable as _;

    use super::*;

    #[test]
    fn a_failure_is_named_and_answered() {
        let answers = Rc::new(RefCell::new(Vec::new()));
        let heard = Rc::clone(&answers);
        let mut harness = Harness::new_ui(move |ui| {
            heard.borrow_mut().extend(failure_ui(ui, Path::new("/runs/a.snap"), "it is gone.", true));
        });
        harness.get_by_label("Cannot open a.snap:");
        harness.get_by_label("it is gone.");
        harness.get_by_label("Try again: a.snap").click();
        harness.run_steps(2);
        harness.get_by_label("Dismiss").click();
        harness.run_steps(2);
        assert_eq!(*answers.borrow(), [Answer::Retry, Answer::Dismiss]);
    }

    #[test]
    fn what_cannot_be_read_twice_is_not_offered_again() {
        let harness = Harness::new_ui(|ui| {
            failure_ui(ui, Path::new("-"), "it ended early.", false);
        });
        assert!(harness.query_by_label_contains("Try again").is_none());
    }
}
