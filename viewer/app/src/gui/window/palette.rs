//! The command palette: all commands in one list, filtered by typing.

use eframe::egui::{self, Align2, Id, Key, Label, Modal, Modifiers, RichText, ScrollArea, TextEdit, Ui};
use highwater_snapshots::count_of;

use crate::Command;
use crate::gui::widgets::{keys, theme};

/// Distance of the palette from the window's upper edge, in points.
const PALETTE_TOP: f32 = 60.0;

#[derive(Debug, Default)]
pub(crate) struct Palette {
    text: String,
    chosen: usize,
}

pub(crate) enum Choice {
    Run(Command),
    Step(u32),
}

impl Palette {
    pub(crate) fn for_step() -> Self {
        Self { text: "go to step ".to_owned(), chosen: 0 }
    }

    /// Shows the palette; `is_usable` returns whether a command can be executed now.
    pub(crate) fn palette_ui(&mut self, ui: &Ui, is_usable: impl Fn(Command) -> bool) -> Entered<Choice> {
        let step = step_of(&self.text);
        let named = if step.is_some() { vec![Command::GoToStep] } else { Command::search(&self.text) };
        let (found, unusable): (Vec<Command>, Vec<Command>) =
            named.into_iter().partition(|command| is_usable(*command));
        let chosen_as = |command: Command| Entered::Value(step.map_or(Choice::Run(command), Choice::Step));
        self.chosen = self.chosen.min(found.len().saturating_sub(1));
        let mut choice = Entered::None;
        // The upper edge stays in place for any number of matches.
        let id = Id::unique("palette");
        let area = Modal::default_area(id).anchor(Align2::CENTER_TOP, [0.0, PALETTE_TOP]);
        let most = (ui.ctx().content_rect().height() - 2.0 * PALETTE_TOP - 90.0).clamp(80.0, 360.0);
        let modal = Modal::new(id).area(area).show(ui.ctx(), |ui| {
            ui.set_width(460.0);
            let (up, down, enter) = ui.input_mut(|input| {
                let mut pressed = |key| input.consume_key(Modifiers::NONE, key);
                (pressed(Key::ArrowUp), pressed(Key::ArrowDown), pressed(Key::Enter))
            });
            self.chosen = (self.chosen + usize::from(down)).saturating_sub(usize::from(up));
            self.chosen = self.chosen.min(found.len().saturating_sub(1));
            let hint = theme::placeholder(ui, "Find a command: memory, leak, export …");
            let search = TextEdit::singleline(&mut self.text).hint_text(hint).desired_width(f32::INFINITY);
            let search = ui.add(search);
            search.widget_info(|| egui::WidgetInfo::labeled(egui::Role::TextInput, true, "Find a command"));
            search.request_focus();
            ui.add_space(4.0);
            let mut about = found.get(self.chosen).copied();
            ScrollArea::vertical().max_height(most).show(ui, |ui| {
                for (row, &command) in found.iter().enumerate() {
                    let name = step.map_or_else(|| command.name().to_owned(), |step| format!("Go to step {step}"));
                    let name = egui::Button::selectable(row == self.chosen, name);
                    let response = ui.add_sized([ui.available_width(), 22.0], name.shortcut_text(keys::first(command)));
                    if response.hovered() {
                        about = Some(command);
                    }
                    if response.clicked() {
                        choice = chosen_as(command);
                    }
                }
                if found.is_empty() {
                    ui.add(Label::new(RichText::new(none_found(&unusable)).weak()).wrap());
                }
            });
            // Below the list, where it covers no command.
            if let Some(command) = about {
                ui.separator();
                ui.add(Label::new(RichText::new(command.tooltip()).weak()).wrap());
            }
            if let Some(&command) = found.get(self.chosen).filter(|_| enter) {
                choice = chosen_as(command);
            }
        });
        if modal.should_close() && matches!(choice, Entered::None) { Entered::Cancelled } else { choice }
    }
}

/// The message shown if no command matches that can be executed now.
fn none_found(unusable: &[Command]) -> String {
    let Some(first) = unusable.first() else { return "No command matches.".to_owned() };
    let others = unusable.len() - 1;
    let others = if others > 0 { format!(" and {}", count_of(others as u64, "other")) } else { String::new() };
    format!("{}{others}: not available now. Most commands need an open recording.", first.name())
}

/// Parses text with a step number, such as `step 1200`, with or without commas; `None` for other text.
fn step_of(text: &str) -> Option<u32> {
    let (words, number) = text.trim().rsplit_once(' ')?;
    let names_step = matches!(words.trim().to_lowercase().as_str(), "step" | "to step" | "go to step" | "iteration");
    number.replace(',', "").parse().ok().filter(|_| names_step)
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Entered<T> {
    /// Keeps the field open, because nothing was entered yet.
    None,
    Cancelled,
    Value(T),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_that_end_with_a_number_name_a_step() {
        assert_eq!(step_of("step 1200"), Some(1200));
        assert_eq!(step_of(" go to step 1,200 "), Some(1200));
        assert_eq!(["step", "1200", "step twelve", "next step 4", "step 99999999999"].map(step_of), [None; 5]);
    }
}
