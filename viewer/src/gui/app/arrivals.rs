//! Arrivals: what other threads and the system bring to the window: recordings, chosen and dropped files, outcomes.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use eframe::egui;

use super::App;
use crate::example::Running;
use crate::follow::Followed;
use crate::gui::open_file::OpenFile;
use crate::gui::saving::Task;
use crate::gui::whatif::Predicted;
use crate::loader::Outcome;

impl App {
    /// Takes in all that has arrived since the last frame.
    pub(super) fn take_news(&mut self, ctx: &egui::Context) {
        self.take_recordings(ctx);
        self.take_followed();
        self.take_predicted(ctx);
        if let Some(recorded) = self.example.as_ref().and_then(Running::poll) {
            match (recorded, self.example.take()) {
                (Ok(path), _) => self.open(ctx, &path),
                (Err(why), Some(example)) => self.failures.push((example.file().to_owned(), why)),
                (Err(_), None) => {}
            }
        }
        if let Some(Ok(path)) = self.dialog.as_ref().map(Receiver::try_recv) {
            self.dialog = None;
            match path {
                Some(path) => self.open(ctx, &path),
                None => self.compares_next = false,
            }
        }
        let dropped: Vec<PathBuf> =
            ctx.input(|input| input.raw.dropped_files.iter().map(|file| file.path().to_owned()).collect());
        for path in dropped {
            self.open(ctx, &path);
        }
        let pictures: Vec<Task> = self.pictures.1.try_iter().collect();
        for task in pictures {
            self.ask(ctx, task);
        }
        let said = &mut self.said;
        self.savings.retain(|saving| match saving.poll() {
            None => true,
            Some(outcome) => {
                match outcome {
                    Some(Ok(path)) => said.push(format!("Wrote {}", path.display())),
                    Some(Err(why)) => said.push(why),
                    None => {}
                }
                false
            }
        });
        said.extend(self.files.iter_mut().filter_map(|file| file.take_notice()));
    }

    fn take_recordings(&mut self, ctx: &egui::Context) {
        let (mut ready, mut failed, mut folders) = (Vec::new(), Vec::new(), Vec::new());
        self.loading.retain(|loading| match loading.poll() {
            Outcome::Pending => true,
            Outcome::Cancelled => false,
            Outcome::Ready(recording) => {
                ready.push(*recording);
                false
            }
            Outcome::Folder(fleet) => {
                folders.push((loading.path().to_owned(), *fleet));
                false
            }
            Outcome::Failed(why) => {
                failed.push((loading.path().to_owned(), why));
                false
            }
        });
        for recording in ready {
            self.failures.retain(|(path, _)| Some(path) != recording.path.as_ref());
            if let Some(path) = &recording.path {
                self.settings.remember(path);
            }
            self.show(ctx, recording);
        }
        for (path, fleet) in folders {
            self.failures.retain(|(known, _)| *known != path);
            self.settings.remember(&path);
            self.show_folder(path, fleet);
            // Only files are compared.
            self.compares_next = false;
        }
        self.compares_next &= failed.is_empty();
        for (path, why) in failed {
            self.failures.retain(|(known, _)| *known != path);
            self.failures.push((path, why));
        }
    }

    /// What has become of files that are still being written.
    fn take_followed(&mut self) {
        for (row, file) in self.files.iter_mut().enumerate() {
            let is_in_front = row == self.current;
            match file.following.as_mut().and_then(|following| following.poll()) {
                Some(Followed::Grown(recording)) => file.replace(*recording, is_in_front),
                Some(Followed::Finished(recording)) => {
                    self.said.push(format!("{} is finished: all of it is shown", recording.name));
                    file.following = None;
                    file.replace(*recording, is_in_front);
                }
                Some(Followed::Lost(why)) => {
                    file.following = None;
                    if let Some(path) = &file.recording.path {
                        self.failures.push((path.clone(), why));
                    }
                }
                None => {}
            }
        }
    }

    /// Shows recordings that were predicted: in a tab, or beside the recording that they come from.
    fn take_predicted(&mut self, ctx: &egui::Context) {
        for row in 0..self.files.len() {
            let Some(Predicted { recording, compares }) = self.files[row].take_predicted() else { continue };
            let is_same = |file: &OpenFile| Arc::ptr_eq(&file.recording.trace, &recording.trace);
            let known = self.files.iter().position(is_same);
            match known {
                Some(known) => self.bring_to_front(known),
                None => self.show(ctx, recording),
            }
            if compares {
                self.current = row;
                self.compare(ctx, [row, known.unwrap_or(self.files.len() - 1)]);
            }
        }
    }

    /// Asks for a recording.
    pub(super) fn ask_for_file(&mut self, ctx: &egui::Context) {
        self.ask_by_dialog(ctx, || {
            let dialog = rfd::FileDialog::new().set_title("Open a recording");
            let endings = ["snap", "pickle", "pkl", "json", "html", "gz"];
            dialog.add_filter("Recordings", &endings).add_filter("All files", &["*"]).pick_file()
        });
    }

    /// Asks for a folder of ranks.
    pub(super) fn ask_for_folder(&mut self, ctx: &egui::Context) {
        self.ask_by_dialog(ctx, || rfd::FileDialog::new().set_title("Open the recordings of all ranks").pick_folder());
    }

    /// Opens the system's dialog on a thread of its own, so that the window goes on.
    fn ask_by_dialog(&mut self, ctx: &egui::Context, ask: impl FnOnce() -> Option<PathBuf> + Send + 'static) {
        if self.dialog.is_some() {
            return;
        }
        let (sender, receiver) = channel();
        let wake = ctx.clone();
        let ask = move || {
            // The window may be gone by now.
            let _ = sender.send(ask());
            wake.request_repaint();
        };
        match std::thread::Builder::new().name("highwater-dialog".to_owned()).spawn(ask) {
            Ok(_) => self.dialog = Some(receiver),
            Err(why) => self.failures.push((PathBuf::from("a file"), format!("cannot show the dialog: {why}"))),
        }
    }
}
