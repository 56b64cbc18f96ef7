//! A self-explanatory picture that compares two recordings.

use std::sync::Arc;

use eframe::egui::{Context, Label, RichText, Ui};

use super::views::sheet_ui;
use crate::gui::views::diff::{DiffChoices, DiffView};
use crate::gui::views::timeline::Paint;
use crate::gui::widgets::{Shades, doubts};
use crate::{Recording, Selection};

/// Two recordings (or one recording twice), the settings of the comparison, and the drawing style of bands.
#[derive(Debug)]
pub struct DiffSheet {
    recordings: [Arc<Recording>; 2],
    view: DiffView,
    paint: Paint,
}

impl DiffSheet {
    /// Creates a sheet for two recordings, with a selection in each.
    pub fn new(
        recordings: [Arc<Recording>; 2],
        selections: [&Selection; 2],
        choices: DiffChoices,
        paint: Paint,
    ) -> Self {
        let view = DiffView::new(recordings.each_ref(), selections, choices);
        Self { recordings, view, paint }
    }

    /// Applies the search conditions `text` to both sides.
    pub fn search_for(&mut self, text: &str) {
        // Without a window there is nothing to wake.
        self.view.search_for(&Context::default(), self.recordings.each_ref(), text);
    }

    /// The title of the picture.
    pub fn title(&self) -> String {
        let [a, b] = &self.recordings;
        format!("{} and {}: diff", a.name, b.name)
    }

    /// Draws the title, the view and the facts. Returns whether everything is complete.
    pub fn sheet_ui(&mut self, ui: &mut Ui) -> bool {
        let show = |ui: &mut Ui, sheet: &mut Self| sheet.view.picture_ui(ui, sheet.recordings.each_ref(), &sheet.paint);
        sheet_ui(ui, self, [Self::title_ui, Self::facts_ui], show)
    }

    fn title_ui(&self, ui: &mut Ui) {
        let [a, b] = &self.recordings;
        let name = match Arc::ptr_eq(a, b) {
            true => format!("Two moments of {}", a.name),
            false => format!("{} (A) and {} (B)", a.name, b.name),
        };
        ui.add(Label::new(RichText::new(name).size(20.0).strong()).truncate());
    }

    fn facts_ui(&self, ui: &mut Ui) {
        let conditions = self.view.search_text().trim();
        let sides = self.recordings.iter().zip(["A", "B"]);
        let doubts: Vec<String> = sides
            .filter_map(|(recording, name)| {
                let first = doubts(&recording.trace).into_iter().next()?;
                Some(format!("{name}: {first}"))
            })
            .collect();
        ui.horizontal_wrapped(|ui| {
            if !conditions.is_empty() {
                ui.label(RichText::new(format!("only blocks with {conditions}")).weak());
            }
            let shades = Shades::in_ui(ui);
            match doubts.is_empty() {
                true => ui.label(RichText::new("Complete recordings: every number is exact").color(shades.faint)),
                false => ui.label(RichText::new(doubts.join("  ·  ")).color(shades.warning)),
            };
        });
    }
}
