//! The frames of a call stack, with source code where the file is available.

use std::collections::HashMap;

use eframe::egui::{self, CollapsingHeader, CursorIcon, Label, RichText, Sense, TextWrapMode, Ui};
use highwater_analysis::frames::StackLine;
use highwater_analysis::stack_lines;
use highwater_snapshots::line_text::LineText;
use highwater_snapshots::tables::SourceLine;
use highwater_snapshots::{StackId, Trace};

use super::facts::main_line;
use crate::gui::colouring::short_line;
use crate::gui::host;
use crate::gui::views::source::Excerpt;
use crate::gui::widgets::{Shades, fitted, labelled_button_ui};

/// A source location: path and line.
pub(super) type Place = (String, u32);

/// Source excerpts by location; `None` if the file is not available.
pub(super) type Sources = HashMap<Place, Option<Excerpt>>;

#[derive(Debug)]
pub(super) struct StackRows {
    name: &'static str,
    rows: Vec<(StackLine, Option<Place>)>,
    /// The location that represents the stack.
    main: Option<Place>,
    /// Whether source code is shown for all lines of the user's program.
    has_all: bool,
    /// Whether the frames are addresses that have not been symbolized but could be.
    is_bare: bool,
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
            // A frame that is not resolved has its own line, without a location.
            lines.iter().map(place).chain(lines.is_empty().then_some(None))
        });
        let main = main_line(trace, stack).and_then(|line| place(&line));
        let rows: Vec<_> = stack_lines(tables, stack).into_iter().zip(places).collect();
        let mut frames = tables.stack_frames(stack);
        let is_bare = !rows.is_empty() && frames.all(|frame| tables.is_unresolved(frame));
        Self { name, rows, main, has_all: false, is_bare }
    }

    /// The locations whose source code may be shown.
    pub(super) fn places(&self) -> impl Iterator<Item = &Place> {
        self.rows.iter().filter(|(line, _)| line.is_program).filter_map(|(_, place)| place.as_ref()).chain(&self.main)
    }

    pub(super) fn text(&self) -> String {
        let lines: Vec<&str> = self.rows.iter().map(|(line, _)| line.text.as_str()).collect();
        lines.join("\n")
    }

    /// Shows the stack, innermost first: frames of the user's program in normal text, internal frames in faint text. In
    /// a stack of the program, internal frames are collapsed if they are innermost or many. Files changed after
    /// `recorded_us` (Unix time in microseconds) get a warning.
    pub(super) fn stack_ui(&mut self, ui: &mut Ui, sources: &Sources, recorded_us: u64) {
        ui.add_space(8.0);
        let has_source = self.places().filter(|place| sources.get(*place).is_some_and(Option::is_some)).count();
        ui.horizontal(|ui| {
            ui.strong(self.name);
            if self.rows.is_empty() {
                return;
            }
            let label = format!("Copy the stack {}", self.name);
            if labelled_button_ui(ui, "Copy", &label, "Copy this stack as text.") {
                ui.ctx().copy_text(self.text());
            }
            if has_source > 1 {
                let all = ui.checkbox(&mut self.has_all, "Source of every line");
                all.on_hover_text("Show the source code of each line of your program, not only of the innermost.");
            }
        });
        if self.rows.is_empty() {
            ui.weak("No stack was recorded.");
            return;
        }
        if self.is_bare {
            ui.weak("Run `highwater symbolize FILE` to find the functions and lines of these addresses.");
        }
        let shades = Shades::in_ui(ui);
        let mut main = self.main.as_ref();
        let mut row_ui = |ui: &mut Ui, (line, place): &(StackLine, Option<Place>)| {
            line_ui(ui, &line.text, place.as_ref(), if line.is_program { shades.strong } else { shades.faint });
            let is_main = main.is_some() && main == place.as_ref();
            if is_main {
                main = None;
            }
            let Some(place) = place.as_ref().filter(|_| is_main || self.has_all && line.is_program) else { return };
            if let Some(Some(excerpt)) = sources.get(place) {
                excerpt_ui(ui, place.1, excerpt, recorded_us);
            }
        };
        let has_program = self.rows.iter().any(|(line, _)| line.is_program);
        let runs = self.rows.chunk_by(|(above, _), (below, _)| above.is_program == below.is_program);
        for (number, run) in runs.enumerate() {
            let is_machinery = has_program && run.iter().all(|(line, _)| !line.is_program);
            // Frames of allocator and framework matter less than the caller, so they are folded.
            if is_machinery && (number == 0 || run.len() >= MIN_FOLDED) {
                let of = if number == 0 { "allocator and framework" } else { "framework" };
                let plural = if run.len() == 1 { "" } else { "s" };
                let title = RichText::new(format!("{} line{plural} of {of}", run.len())).size(12.0);
                let folded = CollapsingHeader::new(title).id_salt((self.name, number));
                folded.show(ui, |ui| run.iter().for_each(|row| row_ui(ui, row)));
            } else {
                run.iter().for_each(|row| row_ui(ui, row));
            }
        }
    }
}

/// Minimum number of consecutive internal frames that are collapsed between frames of the program.
const MIN_FOLDED: usize = 3;

/// Shows one line of a stack: file, line number and function, and beside them the folder of the file.
fn line_ui(ui: &mut Ui, text: &str, place: Option<&Place>, colour: egui::Color32) {
    ui.horizontal(|ui| {
        ui.style_mut().wrap_mode = Some(TextWrapMode::Truncate);
        let line = LineText::parse(text);
        let folder = line.path.strip_suffix(line.file_name()).unwrap_or_default();
        link_ui(&row_ui(ui, &short_line(text), text, 12.0, colour), place);
        if !folder.is_empty() {
            row_ui(ui, folder, text, 11.0, Shades::in_ui(ui).faint);
        }
    });
}

/// Opens `place` in the editor when the row is clicked, if the app runs in an editor.
fn link_ui(row: &egui::Response, place: Option<&Place>) {
    let Some((file, line)) = place.filter(|_| host::has_editor()) else { return };
    let link = row.interact(Sense::click()).on_hover_cursor(CursorIcon::PointingHand);
    if link.on_hover_text("Click to open this line in the editor.").clicked() {
        host::open_line(file, *line);
    }
}

/// Shows `shown`, truncated to the available space, and the full `text` on hover.
fn row_ui(ui: &mut Ui, shown: &str, text: &str, size: f32, colour: egui::Color32) -> egui::Response {
    let fits = fitted(ui, shown, &egui::FontId::monospace(size), ui.available_width()).unwrap_or_default();
    let label = Label::new(RichText::new(fits.into_owned()).monospace().size(size).color(colour));
    ui.add(label).on_hover_text(text)
}

fn excerpt_ui(ui: &mut Ui, line: u32, excerpt: &Excerpt, recorded_us: u64) {
    let shades = Shades::in_ui(ui);
    let frame = egui::Frame::new()
        .fill(shades.canvas)
        .inner_margin(4)
        .outer_margin(egui::Margin { left: 14, ..egui::Margin::ZERO });
    frame.show(ui, |ui| {
        ui.style_mut().wrap_mode = Some(TextWrapMode::Truncate);
        ui.spacing_mut().item_spacing.y = 0.0;
        // Common indentation is removed to save space.
        let indents = excerpt.lines.iter().filter(|text| !text.trim().is_empty());
        let indent = indents.map(|text| text.len() - text.trim_start_matches(' ').len()).min().unwrap_or(0);
        for (number, text) in (excerpt.first..).zip(&excerpt.lines) {
            let text = text.get(indent..).unwrap_or_default();
            let is_meant = number == line;
            let mark = if is_meant { '>' } else { ' ' };
            let colour = if is_meant { shades.strong } else { shades.faint };
            let text = format!("{mark}{number:>5}  {text}");
            ui.add(Label::new(RichText::new(&text).monospace().size(11.0).color(colour))).on_hover_text(&text);
        }
        if recorded_us > 0 && excerpt.changed_unix_us.is_some_and(|changed| changed > recorded_us) {
            let text = "This file changed after the recording; lines may have moved.";
            ui.add(Label::new(RichText::new(text).color(shades.warning)).wrap());
        }
    });
}
