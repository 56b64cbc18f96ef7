//! Handles inputs from other threads and the system: recordings, chosen and dropped files, and results.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use eframe::egui;

use super::App;
use crate::example::Running;
use crate::files::HAS_PATHS;
use crate::files::fleet::Fleet;
use crate::files::follow::{Followed, Following};
use crate::files::loader::{Loaded, Source};
use crate::gui::host::dropped_paths;
use crate::gui::open_file::OpenFile;
use crate::gui::views::whatif::Predicted;
use crate::gui::window::dialog::{Ask, Asking, Chosen, Dialogs, Task};
use crate::gui::window::path_field::PathField;
use crate::{Pending, Recording};

/// An input to the app from outside, such as from a page or its server.
#[derive(Debug)]
pub enum Arrival {
    /// A file to open.
    File(Source),
    /// The next bytes of the recording with this name, which is still being written.
    Grown(PathBuf, Vec<u8>),
    /// No more bytes of the recording with this name will arrive.
    Ended(PathBuf),
    /// The current ranks of a folder.
    Ranks(Box<Fleet>),
    /// The user closed a file dialog without choosing a file.
    NoneChosen,
    /// A link to a view: the fragment of a URL.
    Link(String),
    /// Compares the first two recordings once all are open.
    Compare,
    /// The file could not be downloaded, for this reason.
    Failed(PathBuf, String),
}

impl App {
    pub(super) fn take_arrivals(&mut self, ctx: &egui::Context) {
        let arrived: Vec<Arrival> = self.inbox.1.try_iter().collect();
        for arrival in arrived {
            match arrival {
                Arrival::File(source) => self.load(ctx, source),
                Arrival::Grown(name, bytes) => self.feed(ctx, name, bytes),
                Arrival::Ended(name) => self.end_feed(&name),
                Arrival::Ranks(fleet) => self.take_ranks(*fleet),
                Arrival::NoneChosen => self.compares_next = false,
                Arrival::Link(text) => self.follow_link(ctx, &text),
                Arrival::Compare => self.compares_first = true,
                Arrival::Failed(name, why) => self.failures.push((name, why)),
            }
        }
        self.take_recordings(ctx);
        if self.compares_first && !self.is_loading() {
            self.compares_first = false;
            if self.files.len() > 1 {
                self.compare(ctx, [0, 1]);
            }
        }
        self.take_arriving(ctx);
        self.take_followed(ctx);
        self.follow_folder(ctx);
        self.take_predicted(ctx);
        if let Some(recorded) = self.example.as_ref().and_then(Running::poll) {
            match (recorded, self.example.take()) {
                (Ok(path), _) => self.open(ctx, &path),
                (Err(why), Some(example)) => self.failures.push((example.file, why)),
                (Err(_), None) => {}
            }
        }
        self.take_answers(ctx);
        for path in dropped_paths(ctx) {
            self.open(ctx, &path);
        }
        let pictures: Vec<Task> = self.pictures.1.try_iter().collect();
        for task in pictures {
            self.ask(ctx, Ask::Save(task));
        }
        let messages = &mut self.messages;
        self.savings.retain(|saving| match saving.poll() {
            None => true,
            Some(outcome) => {
                messages.push(outcome.map_or_else(|why| why, |path| format!("Wrote {}", path.display())));
                false
            }
        });
        messages.extend(self.files.iter_mut().filter_map(|file| file.message.take()));
    }

    fn take_recordings(&mut self, ctx: &egui::Context) {
        let (mut ready, mut failed, mut folders) = (Vec::new(), Vec::new(), Vec::new());
        self.loading.retain(|loading| {
            let outcome = loading.poll();
            let is_pending = outcome.is_none();
            match outcome {
                None => {}
                Some(Ok(Loaded::Recording(recording))) => ready.push(*recording),
                Some(Ok(Loaded::Folder(read))) => folders.push((loading.path().to_owned(), *read)),
                Some(Err(why)) => failed.push((loading.path().to_owned(), why)),
            }
            is_pending
        });
        let has_read = !ready.is_empty();
        for recording in ready {
            self.failures.retain(|(path, _)| Some(path) != recording.path.as_ref());
            if let Some(path) = recording.path.as_ref().filter(|_| HAS_PATHS) {
                self.settings.remember(path);
            }
            self.show(ctx, recording);
        }
        if has_read && self.loading.is_empty() {
            self.linked = None;
        }
        for (path, (fleet, followed)) in folders {
            self.failures.retain(|(known, _)| *known != path);
            self.settings.remember(&path);
            self.show_folder(path, fleet, Some(followed));
            // Folders are not compared.
            self.compares_next = false;
        }
        self.compares_next &= failed.is_empty();
        for (path, why) in failed {
            self.failures.retain(|(known, _)| *known != path);
            self.failures.push((path, why));
        }
    }

    /// Passes the next bytes of the recording `name` to its open file; opens a new file if there is none.
    fn feed(&mut self, ctx: &egui::Context, name: PathBuf, bytes: Vec<u8>) {
        if self.ended_inputs.contains(&name) {
            return;
        }
        let followings = self.files.iter_mut().filter_map(|file| file.following.as_mut()).chain(&mut self.arriving);
        let takes = |following: &&mut Following| following.path() == name && !following.has_input_ended();
        match followings.into_iter().find(takes) {
            Some(following) => following.feed(bytes),
            None => {
                let wake = ctx.clone();
                let mut following = Following::fed(name, move || wake.request_repaint());
                following.feed(bytes);
                self.arriving.push(following);
            }
        }
    }

    /// Tells the file that follows the recording `name` that no more bytes will arrive.
    fn end_feed(&mut self, name: &Path) {
        let followings = self.files.iter_mut().filter_map(|file| file.following.as_mut()).chain(&mut self.arriving);
        followings.filter(|following| following.path() == name).for_each(Following::end);
    }

    /// Shows recordings whose first events have arrived.
    fn take_arriving(&mut self, ctx: &egui::Context) {
        for mut following in std::mem::take(&mut self.arriving) {
            match following.poll() {
                None => self.arriving.push(following),
                Some(Followed::Grown(recording) | Followed::Finished(recording)) => {
                    self.show_arrived(ctx, *recording);
                    if let Some(row) = self.row_of(following.path()) {
                        // Replaces the following of the file's previous contents.
                        self.files[row].following = (!following.has_ended()).then_some(following);
                    }
                }
                // Recordings whose bytes are fed are always held in memory.
                Some(Followed::Long(_) | Followed::Lengthened | Followed::Completed) => {}
                Some(Followed::Abandoned) => {
                    let why = "no event was recorded, and the file does not grow any more".to_owned();
                    self.failures.push((following.path().to_owned(), why));
                }
                Some(Followed::Lost(why)) => {
                    self.ended_inputs.insert(following.path().to_owned());
                    self.failures.push((following.path().to_owned(), why));
                }
            }
        }
    }

    /// Shows a recording that is being received in place of the open one with the same path, otherwise in a new tab.
    fn show_arrived(&mut self, ctx: &egui::Context, recording: Recording) {
        match recording.path.as_deref().and_then(|path| self.row_of(path)) {
            Some(row) => self.files[row].replace(recording, row == self.current),
            None => self.show(ctx, recording),
        }
    }

    fn take_followed(&mut self, ctx: &egui::Context) {
        // No message for ranks, since the files of a rotation are completed one after another.
        let is_rank = |file: &OpenFile| self.folder.as_ref().is_some_and(|folder| folder.has(&file.recording));
        let ranks: Vec<bool> = self.files.iter().map(is_rank).collect();
        for (row, file) in self.files.iter_mut().enumerate() {
            let is_in_front = row == self.current;
            match file.following.as_mut().and_then(|following| following.poll()) {
                Some(Followed::Grown(recording)) => file.replace(*recording, is_in_front),
                Some(Followed::Finished(recording)) => {
                    if !ranks[row] {
                        self.messages.push(complete(&recording.name));
                    }
                    file.following = None;
                    file.replace(*recording, is_in_front);
                }
                Some(Followed::Long(run)) => file.become_long(ctx, &run),
                Some(Followed::Lengthened) => file.renew_part(ctx),
                Some(Followed::Completed) => {
                    self.messages.push(complete(&file.recording.name));
                    file.following = None;
                    file.renew_part(ctx);
                }
                Some(Followed::Abandoned) => {
                    file.following = None;
                    if !ranks[row] {
                        let name = &file.recording.name;
                        self.messages.push(format!("{name} has stopped growing and is no longer followed"));
                    }
                }
                Some(Followed::Lost(why)) => {
                    file.following = None;
                    if let Some(path) = &file.recording.path {
                        self.ended_inputs.insert(path.clone());
                        self.failures.push((path.clone(), why));
                    }
                }
                None => {}
            }
        }
    }

    /// Shows predicted recordings: in a tab, or compared with the original recording.
    fn take_predicted(&mut self, ctx: &egui::Context) {
        for row in 0..self.files.len() {
            let Some(Predicted { recording, compares }) = self.files[row].views.whatif.take_predicted() else {
                continue;
            };
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

    /// Asks for a path, unless a dialog for opening a file is already open.
    pub(super) fn ask(&mut self, ctx: &egui::Context, ask: Ask) {
        let is_opening = !matches!(ask, Ask::Save(_));
        if is_opening && self.asking.iter().any(|asking| !asking.is_saving) {
            return;
        }
        if self.dialogs == Dialogs::PathField {
            return self.take_answer(ctx, ask, Chosen::Unavailable);
        }
        let wake = ctx.clone();
        self.asking.push(Asking::start(ask, move || wake.request_repaint()));
    }

    fn take_answers(&mut self, ctx: &egui::Context) {
        let mut answers = Vec::new();
        self.asking.retain(|asking| asking.answer.poll().map(|answer| answers.push(answer)).is_none());
        for answer in answers {
            match answer {
                Ok((ask, chosen)) => self.take_answer(ctx, ask, chosen),
                Err(why) => self.messages.push(why),
            }
        }
    }

    /// Opens or writes the chosen path; without file dialogs, shows a text field for the path.
    pub(super) fn take_answer(&mut self, ctx: &egui::Context, ask: Ask, chosen: Chosen) {
        match (ask, chosen) {
            (ask, Chosen::Unavailable) => self.path_field = Some(PathField::new(ask)),
            (Ask::File | Ask::Folder, Chosen::Path(path)) => self.open(ctx, &path),
            (Ask::File | Ask::Folder, Chosen::Arriving) => {}
            (Ask::File | Ask::Folder, Chosen::Cancelled) => self.compares_next = false,
            (Ask::Save(task), Chosen::Path(path)) => {
                let wake = ctx.clone();
                let (write, wake) = (move || task.write(&path), move || wake.request_repaint());
                self.savings.push(Pending::start("highwater-save", "cannot write the file", write, wake));
            }
            (Ask::Save(_), Chosen::Cancelled | Chosen::Arriving) => {}
        }
    }
}

fn complete(name: &str) -> String {
    format!("{name} is complete: the program has finished writing it")
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use highwater_notation::trace_from_text;
    use highwater_snapshots::format::write_trace;

    use super::*;

    #[test]
    fn the_next_file_of_a_rotation_ends_the_reading_of_the_one_before() {
        let bytes = |text: &str| write_trace(Vec::new(), &trace_from_text(text).unwrap()).unwrap();
        // Two sections of events, so that the first half can be shown alone.
        let text: String = (0..70_000).map(|number| format!("alloc b{number} {}\n", 100 + number % 7)).collect();
        let (first, next) = (bytes(&text), bytes("alloc a 10"));
        let (start, end) = first.split_at(first.len() * 19 / 20);
        let (ctx, name) = (egui::Context::default(), PathBuf::from("rank/0/rank0.snap"));
        let mut app = App::default();
        let begun = Instant::now();
        let wait = |app: &mut App, is_shown: fn(&OpenFile) -> bool| {
            while !app.files.first().is_some_and(is_shown) {
                assert!(begun.elapsed() < Duration::from_secs(60), "it is never shown");
                std::thread::sleep(Duration::from_millis(1));
                app.take_arriving(&ctx);
            }
        };
        app.feed(&ctx, name.clone(), start.to_vec());
        wait(&mut app, |file| file.following.is_some());
        app.feed(&ctx, name.clone(), end.to_vec());
        app.end_feed(&name);
        app.feed(&ctx, name, next);
        wait(&mut app, |file| file.recording.trace.events.len() == 1);
        assert!(app.files[0].following.is_none(), "the end of the first file would replace the next one");
    }
}
