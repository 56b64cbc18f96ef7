//! Stack: the lines of a stack, with the source code that they stand in where it is at hand.

use std::collections::HashMap;

use eframe::egui::{self, CollapsingHeader, Label, RichText, Role, TextWrapMode, Ui, WidgetInfo};
use highwater_snapshots::analysis::frames::{StackLine, stack_lines};
use highwater_snapshots::tables::SourceLine;
use highwater_snapshots::{StackId, Trace};

use super::facts::main_line;
use crate::gui::source::Excerpt;
use crate::gui::theme::Shades;

/// A place in a file: its path and its line.
pub(super) type Place = (String, u32);

/// What was found at places; none where the file is not at hand.
pub(super) type Sources = HashMap<Place, Option<Excerpt>>;

/// A stack as it is shown.
#[derive(Debug)]
pub(super) struct StackRows {
    name: &'static str,
    rows: Vec<(StackLine, Option<Place>)>,
    /// The place that stands for all.
    main: Option<Place>,
    /// Whether source code is shown for every line of the program.
    has_all: bool,
}

impl StackRows {
    pub(super) fn new(trace: &Trace, name: &'static str, stack: StackId) -> Self {
        let tables = &trace.tables;
        let place = |line: &SourceLine| {
            let file = tables.string(line.file);
            (line.line > 0 && !file.is_empty()).then(|| (file.to_owned(), line.line))
        };
        let places = tables.stack_frames(stack).flat_map(|frame| {
            let lines = tables.frame_lines(frame);
            // A frame that is not resolved has a line of its own, without a place.
            lines.iter().map(place).chain(lines.is_empty().then_some(None))
        });
        let main = main_line(trace, stack).and_then(|line| place(&line));
        Self { name, rows: stack_lines(tables, stack).into_iter().zip(places).collect(), main, has_all: false }
    }

    /// The places whose source code is worth reading.
    pub(super) fn places(&self) -> impl Iterator<Item = &Place> {
        self.rows.iter().filter(|(line, _)| line.is_program).filter_map(|(_, place)| place.as_ref()).chain(&self.main)
    }

    /// The stack as text, a line each.
    pub(super) fn text(&self) -> String {
        let lines: Vec<&str> = self.rows.iter().map(|(line, _)| line.text.as_str()).collect();
        lines.join("\n")
    }

    /// Shows the stack, innermost first: the user's lines plain, the machinery's faint, and folded where it stands
    /// innermost. Files changed after `recorded_us` (Unix time in microseconds) are said to be.
    pub(super) fn stack_ui(&mut self, ui: &mut Ui, sources: &Sources, recorded_us: u64) {
        ui.add_space(8.0);
        let has_source = self.places().filter(|place| sources.get(*place).is_some_and(Option::is_some)).count();
        ui.horizontal(|ui| {
            ui.strong(self.name);
            if self.rows.is_empty() {
                return;
            }
            let copy = ui.small_button("Copy");
            copy.widget_info(|| WidgetInfo::labeled(Role::Button, true, format!("Copy the stack {}", self.name)));
            if copy.on_hover_text("Copy this stack as text.").clicked() {
                ui.ctx().copy_text(self.text());
            }
            if has_source > 1 {
                let all = ui.checkbox(&mut self.has_all, "Source of every line");
                all.on_hover_text("Shows the source code of each line of the program, not only of the innermost.");
            }
        });
        if self.rows.is_empty() {
            ui.weak("no stack was recorded");
            return;
        }
        let shades = Shades::in_ui(ui);
        let mut main = self.main.as_ref();
        let mut row_ui = |ui: &mut Ui, (line, place): &(StackLine, Option<Place>)| {
            line_ui(ui, &line.text, if line.is_program { shades.strong } else { shades.faint });
            let is_main = main.is_some() && main == place.as_ref();
            if is_main {
                main = None;
            }
            let Some(place) = place.as_ref().filter(|_| is_main || self.has_all && line.is_program) else { return };
            if let Some(Some(excerpt)) = sources.get(place) {
                excerpt_ui(ui, place.1, excerpt, recorded_us);
            }
        };
        // How memory was obtained matters less than for whom: the allocator's own lines are folded away.
        let inner = self.rows.iter().position(|(line, _)| line.is_program).unwrap_or(0);
        if inner > 0 {
            let title = format!("{inner} lines of allocator and framework");
            let folded = CollapsingHeader::new(RichText::new(title).size(12.0)).id_salt(self.name);
            folded.show(ui, |ui| self.rows[..inner].iter().for_each(|row| row_ui(ui, row)));
        }
        self.rows[inner..].iter().for_each(|row| row_ui(ui, row));
    }
}

/// One line of a stack: the function, and below it where that is.
fn line_ui(ui: &mut Ui, text: &str, colour: egui::Color32) {
    ui.scope(|ui| {
        ui.style_mut().wrap_mode = Some(TextWrapMode::Truncate);
        ui.spacing_mut().item_spacing.y = 0.0;
        let (function, place) = text.rsplit_once(" (").unwrap_or((text, ""));
        ui.add(Label::new(RichText::new(function).monospace().size(12.0).color(colour))).on_hover_text(text);
        if !place.is_empty() {
            let place = place.trim_end_matches(')');
            let faint = Shades::in_ui(ui).faint;
            ui.add(Label::new(RichText::new(format!("    {place}")).monospace().size(11.0).color(faint)))
                .on_hover_text(text);
        }
    });
}

/// Lines of source code, the one that is meant marked.
fn excerpt_ui(ui: &mut Ui, line: u32, excerpt: &Excerpt, recorded_us: u64) {
    let shades = Shades::in_ui(ui);
    let frame = egui::Frame::new()
        .fill(shades.canvas)
        .inner_margin(4)
        .outer_margin(egui::Margin { left: 14, ..egui::Margin::ZERO });
    frame.show(ui, |ui| {
        ui.style_mut().wrap_mode = Some(TextWrapMode::Truncate);
        ui.spacing_mut().item_spacing.y = 0.0;
        for (number, text) in (excerpt.first..).zip(&excerpt.lines) {
            let is_meant = number == line;
            let mark = if is_meant { '>' } else { ' ' };
            let colour = if is_meant { shades.strong } else { shades.faint };
            let text = format!("{mark}{number:>5}  {text}");
            ui.add(Label::new(RichText::new(&text).monospace().size(11.0).color(colour))).on_hover_text(&text);
        }
        if recorded_us > 0 && excerpt.changed_unix_us.is_some_and(|changed| changed > recorded_us) {
            ui.colored_label(shades.warning, "The file was changed after the recording: lines may have moved.");
        }
    });
}
