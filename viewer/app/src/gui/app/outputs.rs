//! Output from the app: copied tables, and tables and pictures saved as files.

use std::path::Path;

use eframe::egui;

use super::App;
use crate::files::destination::io_error;
use crate::files::output::write_whole;
use crate::gui::open_file::OpenFile;
use crate::gui::surface::{Paper, Sheet, SheetView, png, save_view};
use crate::gui::views::timeline::TimelineStyle;
use crate::gui::window::dialog::Ask;
use crate::gui::window::saving::Task;
use std::sync::Arc;

impl App {
    pub(super) fn copy_table(&mut self, ctx: &egui::Context) {
        let side = self.settings.side;
        match self.table(side.name()) {
            Ok(csv) => ctx.copy_text(csv),
            Err(why) => self.messages.push(why),
        }
    }

    pub(super) fn save_below(&mut self, ctx: &egui::Context) {
        let Some(bottom) = self.settings.bottom else {
            let text = "There is no view below the timeline: Ctrl+4 shows segments, Ctrl+5 events, Ctrl+6 why the peak is \
                        so high, Ctrl+7 what if, Ctrl+B the plan.";
            self.messages.push(text.to_owned());
            return;
        };
        self.ask_to_save(ctx, bottom.name());
    }

    /// Asks where to write the table of a view.
    pub(super) fn ask_to_save(&mut self, ctx: &egui::Context, view: &str) {
        let Some(file) = self.current_mut() else { return };
        let name = format!("{}-{}", stem(file), view.to_lowercase());
        match file.table(view) {
            Ok(write) => self.ask(ctx, Ask::Save(Task::table(&name, write))),
            Err(why) => self.messages.push(why),
        }
    }

    /// Draws the timeline and the view below it on paper of the window's size.
    pub(super) fn save_picture(&mut self, ctx: &egui::Context) {
        let Some(file) = self.files.get(self.current) else { return };
        let look = TimelineStyle {
            paint: self.settings.paint,
            has_overview: file.selection.view().x != file.selection.whole(&file.recording).x,
            matches: Arc::clone(file.search.matches()),
        };
        let name = stem(file);
        let view = SheetView::beside(self.settings.bottom);
        let recording = Arc::clone(&file.recording);
        let mut sheet = Sheet::new(recording, file.selection.clone(), look, file.search.text());
        sheet.views.plan = file.views.plan.same();
        let room = ctx.content_rect().size();
        let paper = Paper::fitting(room, ctx.pixels_per_point(), ctx.theme());
        let write = move |path: &Path| {
            let title = sheet.title(view);
            let written = save_view(path, paper, &title, |ui| sheet.sheet_ui(ui, view));
            written.map(|_| ()).map_err(|why| why.to_string())
        };
        self.ask(ctx, Ask::Save(Task::picture(&name, write)));
    }

    pub(super) fn save_window(&mut self, ctx: &egui::Context) {
        let name = self.current().map_or_else(|| "highwater".to_owned(), stem);
        let (outbox, wake) = (self.pictures.0.clone(), ctx.clone());
        ctx.request_screenshot(move |picture| {
            let write = move |path: &Path| {
                let written = write_whole(path, |out| png::write(out, &picture).map_err(io_error));
                written.map(|_| ()).map_err(|why| why.to_string())
            };
            // The window may be closed by now.
            let _ = outbox.send(Task::window(&name, write));
            wake.request_repaint();
        });
    }
}

/// The recording's name without its ending.
fn stem(file: &OpenFile) -> String {
    let name = Path::new(&file.recording.name);
    name.file_stem().unwrap_or(name.as_os_str()).to_string_lossy().into_owned()
}
