//! The ranks of a run as an open folder, shown instead of or next to files. Its ranks can be opened.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use eframe::egui::{self, CentralPanel, Panel, Ui};
use highwater_analysis::Metric;
use web_time::Instant;

use super::App;
use crate::files::HAS_PATHS;
use crate::files::fleet::{Fleet, FollowedFleet};
use crate::files::loader::open_rank;
use crate::gui::host;
use crate::gui::views::rank_strip::{CellPlace, ShownCell};
use crate::gui::views::rank_table::FleetView;
use crate::gui::window::dialog::{Ask, Task};
use crate::{Command, Pending, Recording};

#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    view: FleetView,
    /// Whether the folder is shown instead of a file.
    is_in_front: bool,
    /// The rank that was opened from the strip. The next rank opened there replaces it.
    opened: Option<PathBuf>,
    /// The recordings to read again; `None` while they are being read, and if a server sends the ranks.
    followed: Option<FollowedFleet>,
    reading: Option<Pending<(Option<Fleet>, FollowedFleet)>>,
}

impl Folder {
    pub(super) fn has(&self, recording: &Recording) -> bool {
        let ranks = &self.view.fleet().ranks;
        recording.path.as_ref().is_some_and(|path| ranks.iter().any(|rank| rank.path == *path))
    }
}

impl App {
    /// Returns the view of the folder; `None` if the folder is not shown.
    pub fn folder(&self) -> Option<&FleetView> {
        self.folder.as_ref().filter(|folder| folder.is_in_front).map(|folder| &folder.view)
    }

    pub(super) fn fleet(&self) -> Option<&Fleet> {
        self.folder.as_ref().map(|folder| &**folder.view.fleet())
    }

    /// Shows the ranks of the folder at `path` in place of any other folder, and follows changes.
    pub(super) fn show_folder(&mut self, path: PathBuf, fleet: Fleet, followed: Option<FollowedFleet>) {
        let opened = self.folder.take().filter(|folder| folder.path == path).and_then(|folder| folder.opened);
        self.leave_comparison();
        let view = FleetView::new(Arc::new(fleet));
        self.folder = Some(Folder { path, view, is_in_front: true, opened, followed, reading: None });
    }

    /// Reads the changes in the open folder if it is time to do so, and shows them.
    pub(super) fn follow_folder(&mut self, ctx: &egui::Context) {
        let Some(folder) = &mut self.folder else { return };
        if let Some(read) = folder.reading.as_ref().and_then(Pending::poll) {
            folder.reading = None;
            match read {
                Ok((fleet, followed)) => {
                    folder.followed = Some(followed);
                    fleet.into_iter().for_each(|fleet| folder.view.renew(Arc::new(fleet)));
                }
                Err(why) => self.messages.push(why),
            }
        }
        let Some(due) = folder.followed.as_ref().map(FollowedFleet::due) else { return };
        let wait = due.saturating_duration_since(Instant::now());
        if !wait.is_zero() {
            return ctx.request_repaint_after(wait);
        }
        let Some(mut followed) = folder.followed.take() else { return };
        let flow = || ControlFlow::Continue(());
        let read = move || {
            let read = followed.read(|file, is_whole| open_rank(file, is_whole, flow), |_, _| flow());
            // If a folder was deleted, the ranks already read stay.
            Ok((read.unwrap_or_default(), followed))
        };
        let wake = ctx.clone();
        let reading =
            Pending::start("highwater-ranks", "cannot follow the folder", read, move || wake.request_repaint());
        folder.reading = Some(reading);
    }

    /// Updates the ranks of the open folder. Without one, shows a new folder, unless the user has closed it before, and
    /// opens the rank that a link names, or the only one.
    pub(super) fn take_ranks(&mut self, fleet: Fleet) {
        let path = PathBuf::from(&fleet.name);
        if let Some(folder) = &mut self.folder {
            return folder.view.renew(Arc::new(fleet));
        }
        if self.ended_inputs.contains(&path) {
            return;
        }
        let linked = self.link.as_ref().map(|link| link.look.path.as_path());
        let is_wanted = |path: &&PathBuf| fleet.ranks.len() == 1 || Some(path.as_path()) == linked;
        let wanted = fleet.ranks.iter().map(|rank| &rank.path).find(is_wanted).cloned();
        self.show_folder(path, fleet, None);
        wanted.iter().for_each(|path| self.open_served(path));
    }

    pub(super) fn leave_folder(&mut self) {
        if let Some(folder) = &mut self.folder {
            folder.is_in_front = false;
        }
    }

    /// Whether `command` can be executed on the displayed folder; `None` if it does not concern folders.
    pub(super) fn can_in_folder(&self, command: Command) -> Option<bool> {
        if command == Command::ShowRanks {
            return Some(self.folder.is_some());
        }
        self.folder()?;
        match command {
            Command::Reload | Command::Close | Command::CopyTable | Command::SaveTable => Some(true),
            Command::NextFile | Command::PreviousFile => Some(!self.files.is_empty()),
            command => Some(!command.needs_recording()),
        }
    }

    /// Executes a command on the folder. Returns whether the command was executed.
    pub(super) fn run_in_folder(&mut self, ctx: &egui::Context, command: Command) -> bool {
        if command == Command::ShowRanks {
            if let Some(folder) = &mut self.folder {
                // The same command returns to the file.
                folder.is_in_front = !folder.is_in_front || self.files.is_empty();
            }
            return true;
        }
        let Some(folder) = self.folder.as_ref().filter(|folder| folder.is_in_front) else { return false };
        match command {
            Command::Reload => {
                let path = folder.path.clone();
                self.open(ctx, &path);
            }
            Command::Close => {
                // A server sends its folder again, which is then ignored.
                self.ended_inputs.insert(folder.path.clone());
                self.folder = None;
            }
            Command::CopyTable => ctx.copy_text(folder.view.csv()),
            Command::SaveTable => {
                let csv = folder.view.csv();
                self.ask(ctx, Ask::Save(Task::table("ranks", move |out| out.write_all(csv.as_bytes()))));
            }
            Command::NextFile | Command::PreviousFile => self.leave_folder(),
            _ => return false,
        }
        true
    }

    /// Shows the folder if it is in front. Returns whether it was shown.
    pub(super) fn folder_ui(&mut self, ui: &mut Ui) -> bool {
        let Some(folder) = self.folder.as_mut().filter(|folder| folder.is_in_front) else { return false };
        let opened = CentralPanel::default().show(ui, |ui| folder.view.fleet_ui(ui)).inner;
        let path = opened.and_then(|row| Some(folder.view.fleet().ranks.get(row)?.path.clone()));
        if let Some(path) = path {
            self.open_rank(ui.ctx(), &path);
        }
        true
    }

    /// Shows the strip of ranks with their allocated memory, if the folder or one of its ranks is in front. Returns
    /// whether that is so.
    pub(super) fn folder_ranks_ui(&mut self, ui: &mut Ui) -> bool {
        let Some(folder) = &self.folder else { return false };
        let fleet = Arc::clone(folder.view.fleet());
        let current = self.files.get(self.current).filter(|_| !folder.is_in_front);
        let front = current
            .and_then(|file| fleet.ranks.iter().position(|rank| Some(&rank.path) == file.recording.path.as_ref()));
        if front.is_none() && !folder.is_in_front {
            return false;
        }
        let front = front.map(|row| CellPlace { file: row, device: fleet.ranks[row].main });
        let ranks = &mut self.ranks;
        let chosen = Panel::top("ranks")
            .show(ui, |ui| ranks.ranks_ui(ui, ShownCell::Fleet(&fleet), Metric::Allocated, front))
            .inner;
        if let Some(rank) = chosen.and_then(|place| fleet.ranks.get(place.file)) {
            self.open_in_strip(ui.ctx(), &rank.path);
        }
        true
    }

    /// Shows a rank, in its tab if it is open, otherwise in a new one.
    fn open_rank(&mut self, ctx: &egui::Context, path: &Path) {
        match self.row_of(path) {
            Some(row) => self.bring_to_front(row),
            None if HAS_PATHS => self.open(ctx, path),
            None => {
                self.linked = None;
                self.open_served(path);
            }
        }
    }

    /// Makes the page follow a recording on its server, even if the tab of the recording was closed before. Has no
    /// effect if its first bytes are already being read.
    pub(super) fn open_served(&mut self, path: &Path) {
        if self.arriving.iter().any(|arriving| arriving.path() == path && !arriving.has_input_ended()) {
            return;
        }
        self.ended_inputs.remove(path);
        host::open_served(path);
    }

    /// Opens a rank in place of the rank last opened from the strip, so that only one of them is in memory.
    fn open_in_strip(&mut self, ctx: &egui::Context, path: &Path) {
        let known = self.row_of(path).is_some();
        let former =
            self.folder.as_mut().and_then(|folder| if known { None } else { folder.opened.replace(path.to_owned()) });
        self.open_rank(ctx, path);
        let Some(former) = former.filter(|former| former != path) else { return };
        let row = self.row_of(&former);
        if row.is_some_and(|row| self.is_compared(row)) {
            // It stays open and is still followed.
            return;
        }
        self.loading.retain(|loading| loading.path() != former);
        self.arriving.retain(|arriving| arriving.path() != former);
        host::stop_served(&former);
        if let Some(row) = row {
            self.close(row);
            if let Some(folder) = self.folder.as_mut() {
                // Until the next rank has been read.
                folder.is_in_front = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use highwater_notation::trace_from_text;
    use highwater_snapshots::format::write_trace;

    use super::*;

    #[test]
    fn a_folder_is_followed_while_it_is_open() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str| {
            let bytes = write_trace(Vec::new(), &trace_from_text("alloc a 10").unwrap()).unwrap();
            std::fs::write(folder.path().join(name), bytes).unwrap();
        };
        write("rank0.snap");
        let (ctx, mut app) = (egui::Context::default(), App::default());
        app.open(&ctx, folder.path());
        let begun = Instant::now();
        let wait = |app: &mut App, count: usize| {
            while app.fleet().is_none_or(|fleet| fleet.ranks.len() != count) {
                assert!(begun.elapsed() < Duration::from_secs(60), "{count} ranks are never shown");
                std::thread::sleep(Duration::from_millis(5));
                app.take_arrivals(&ctx);
            }
        };
        wait(&mut app, 1);
        write("rank1.snap");
        wait(&mut app, 2);
        std::fs::remove_dir_all(folder.path()).unwrap();
        let due = |app: &App| app.folder.as_ref().unwrap().followed.as_ref().map(FollowedFleet::due);
        let last = due(&app);
        while due(&app).is_none_or(|due| Some(due) == last) {
            assert!(begun.elapsed() < Duration::from_secs(60), "the folder is never read again");
            std::thread::sleep(Duration::from_millis(5));
            app.take_arrivals(&ctx);
        }
        assert_eq!(app.fleet().unwrap().ranks.len(), 2, "what was read stays");
    }

    #[test]
    fn the_next_rank_of_the_strip_leaves_itself_and_what_is_compared_alone() {
        let ctx = egui::Context::default();
        let [first, second, third] =
            ["rank0.snap", "rank1.snap", "rank2.snap"].map(|name| std::path::absolute(name).unwrap());
        let mut app = App::default();
        app.show_folder("ranks".into(), Fleet::default(), None);
        app.open_in_strip(&ctx, &first);
        app.open_in_strip(&ctx, &first);
        assert_eq!(app.loading.len(), 1, "a second click does not end the first");
        for path in [&first, &second] {
            app.open_recording(Recording::new("rank", Some(path.clone()), trace_from_text("alloc a 10").unwrap()));
        }
        app.compare(&ctx, [0, 1]);
        app.open_in_strip(&ctx, &third);
        assert!(app.row_of(&first).is_some(), "it is compared");
        assert_eq!(app.loading.len(), 2, "a compared recording is still being read");
    }
}
