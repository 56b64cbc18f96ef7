//! Output from the app: copied tables, and tables and pictures saved as files.

use std::path::Path;
use std::sync::Arc;

use eframe::egui;
use highwater_analysis::Metric;
use serde_json::{Value, json};

use super::App;
use crate::files::destination::io_error;
use crate::files::output::write_whole;
use crate::gui::open_file::OpenFile;
use crate::gui::surface::{Paper, Sheet, SheetView, png, save_view};
use crate::gui::views::timeline::TimelineStyle;
use crate::gui::widgets::Computed as _;
use crate::gui::window::dialog::{Ask, Task};

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

    pub(super) fn ask_to_save(&mut self, ctx: &egui::Context, view: &str) {
        let Some(file) = self.current_mut() else { return };
        let name = format!("{}-{}", stem(file), view.to_lowercase());
        match file.table(view) {
            Ok(write) => self.ask(ctx, Ask::Save(Task::table(&name, write))),
            Err(why) => self.messages.push(why),
        }
    }

    /// Saves a picture of the timeline and the view below it, in the size of the window.
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

fn stem(file: &OpenFile) -> String {
    let name = Path::new(&file.recording.name);
    name.file_stem().unwrap_or(name.as_os_str()).to_string_lossy().into_owned()
}

impl App {
    /// Returns the app's state: open files, errors, and for the current recording its device, total, visible range
    /// (`x`), peak, and the bytes at the moment under the pointer, the pinned moment, or the peak. It is busy while
    /// anything is being read, computed or drawn; `ranks` are those of the open folder, with their peaks.
    pub fn state(&self) -> Value {
        let front = self.current().map(|file| {
            let index = &file.recording.devices[file.selection.device];
            let peak = index.peak(&file.recording.trace, file.selection.metric);
            let x = &file.selection.view().x;
            json!({
                "name": file.recording.name,
                "events": file.recording.trace.events.len(),
                "device": index.device.0,
                "metric": file.selection.metric,
                "x": [x.start, x.end],
                "peak_bytes": peak.bytes,
                "peak_event": peak.event.map(|event| event.0),
                "moment_bytes": file.pointed_moment().bytes,
                "has_picture": file.timeline.picture().is_some(),
                "is_growing": file.following.is_some(),
            })
        });
        let is_front_busy = self.comparison().is_none() && self.current().is_some_and(|file| file.is_busy());
        let is_comparing_busy = self.comparison().is_some_and(|view| view.is_busy());
        let failures = self.failures.iter().map(|(path, why)| (path.display().to_string(), why));
        let ranks = self.fleet().into_iter().flat_map(|fleet| &fleet.ranks);
        json!({
            "is_busy": self.is_loading() || is_front_busy || is_comparing_busy,
            "recordings": self.files.iter().map(|file| &file.recording.name).collect::<Vec<_>>(),
            "failures": failures.collect::<Vec<_>>(),
            "messages": self.messages,
            "is_comparing": self.comparison().is_some(),
            "front": front,
            "ranks": ranks.map(|rank| (rank.label(), rank.peak(Metric::Allocated).bytes)).collect::<Vec<_>>(),
        })
    }

    /// Returns the table of the view called `name` as CSV.
    ///
    /// # Errors
    /// Fails with a message if nothing is open, if there is no such view, or if its table is not complete. A view must
    /// be shown to have a table.
    pub fn table(&mut self, view: &str) -> Result<String, String> {
        let write = self.current_mut().ok_or("nothing is open")?.table(view)?;
        let mut csv = Vec::new();
        write(&mut csv).map_err(|why| why.to_string())?;
        String::from_utf8(csv).map_err(|why| why.to_string())
    }
}
