//! The app's window: open files, files being read, and the execution of commands.

mod arrivals;
mod comparing;
mod folder;
mod chrome;
mod link;
mod outputs;

use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use eframe::egui::{self, CentralPanel, Panel, Ui, ViewportCommand};
use highwater_snapshots::Trace;

use crate::example::{Examples, Running};
use crate::files::discard::discard;
use crate::files::follow::Following;
use crate::files::is_stdin;
use crate::files::loader::{Loading, Source};
use crate::gui::host;
use crate::gui::open_file::OpenFile;
use crate::gui::views::plan::PlanView;
use crate::gui::views::rank_strip::Ranks;
use crate::gui::views::timeline::{Paint, Stacking};
use crate::gui::widgets::{keys, theme};
use crate::gui::window::dialog::{Ask, Asking, Dialogs, Task};
use crate::gui::window::file_style::FileStyle;
use crate::gui::window::help::Help;
use crate::gui::window::palette::Palette;
use crate::gui::window::path_field::PathField;
use crate::gui::window::settings::Settings;
use crate::gui::window::top_bar;
use crate::gui::window::welcome::Welcome;
use crate::session::run::MAX_RESIDENT_EVENTS;
use crate::{ColourBy, Command, Pending, Recording};
use comparing::Comparing;
use folder::Folder;
use link::Link;

pub use arrivals::Arrival;

/// Change of the zoom factor by one command.
const SCALE_STEP: f32 = 0.1;
const SCALES: std::ops::Range<f32> = 0.5..3.0;

/// A channel whose values from other threads are handled in the next frame.
#[derive(Debug)]
struct Inbox<T>(Sender<T>, Receiver<T>);

impl<T> Default for Inbox<T> {
    fn default() -> Self {
        let (sender, receiver) = channel();
        Self(sender, receiver)
    }
}

/// The state of the app. It can be used without a window: [`Self::app_ui`] draws into any `Ui`, [`Self::run`] executes
/// any command.
#[derive(Debug, Default)]
pub struct App {
    files: Vec<OpenFile>,
    current: usize,
    inbox: Inbox<Arrival>,
    loading: Vec<Loading>,
    /// Recordings that are being written and have no events yet.
    arriving: Vec<Following>,
    failures: Vec<(PathBuf, String)>,
    settings: Settings,
    palette: Option<Palette>,
    /// The kind of file dialogs in use.
    pub dialogs: Dialogs,
    asking: Vec<Asking>,
    path_field: Option<PathField>,
    help: Option<Help>,
    title: String,
    welcome: Welcome,
    /// The examples offered on the start screen.
    pub examples: Examples,
    example: Option<Running>,
    ranks: Ranks,
    /// Files being written.
    savings: Vec<Pending<PathBuf>>,
    /// Screenshots of the window to be saved.
    pictures: Inbox<Task>,
    comparing: Option<Comparing>,
    folder: Option<Folder>,
    /// Whether to compare the next opened file with the current one.
    compares_next: bool,
    /// Recordings whose further bytes are ignored, because their tabs were closed or reading them failed.
    ended_inputs: HashSet<PathBuf>,
    /// Whether to compare the first two files once all are open.
    compares_first: bool,
    /// The view to restore in a file after the file is opened.
    link: Option<Link>,
    /// The recording of the last link, or the first of several that are opened together.
    linked: Option<PathBuf>,
    /// The link to the current view, as text.
    shown_link: String,
    /// Messages to the user, shown until they are dismissed or a command is executed.
    messages: Vec<String>,
    /// Maximum number of events in memory; `None` for the default. Longer recordings are read in parts.
    pub most_resident: Option<u64>,
    is_styled: bool,
}

impl App {
    /// Creates an app without open files.
    pub fn new(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    fn most_resident(&self) -> u64 {
        self.most_resident.unwrap_or(MAX_RESIDENT_EVENTS)
    }

    /// The settings to save for the next start.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The title of the window.
    pub fn title(&self) -> &str {
        &self.title
    }

    /// The recording of the selected tab; `None` without recordings.
    pub fn current(&self) -> Option<&OpenFile> {
        self.files.get(self.current)
    }

    /// The recording of the selected tab, mutable.
    pub fn current_mut(&mut self) -> Option<&mut OpenFile> {
        self.files.get_mut(self.current)
    }

    /// Whether a file is being read.
    pub fn is_loading(&self) -> bool {
        !self.loading.is_empty()
    }

    /// Starts reading `path`, which may be a folder of ranks, and shows a preview. `-` stands for standard input. Does
    /// nothing if the path is already being read.
    pub fn open(&mut self, ctx: &egui::Context, path: &Path) {
        // The list of recent files outlives the current directory.
        let absolute = if is_stdin(path) { Ok(path.to_owned()) } else { std::path::absolute(path) };
        let path = &absolute.unwrap_or_else(|_| path.to_owned());
        if let Some(row) = self.row_of(path) {
            self.bring_to_front(row);
        }
        self.load(ctx, Source::Path(path.to_owned()));
    }

    /// Starts reading `paths`. The tab of the first path stays selected, regardless of which is read first.
    pub fn open_all(&mut self, ctx: &egui::Context, paths: &[PathBuf]) {
        paths.iter().for_each(|path| self.open(ctx, path));
        if let [first, _, ..] = paths {
            self.linked = std::path::absolute(first).ok();
        }
    }

    /// Starts reading `source`, unless it is already being read.
    fn load(&mut self, ctx: &egui::Context, source: Source) {
        if self.loading.iter().all(|loading| loading.path() != source.path()) {
            let wake = ctx.clone();
            self.loading.push(Loading::start(source, self.most_resident(), move || wake.request_repaint()));
        }
    }

    /// Returns a sender for input from outside, such as files without a path.
    pub fn inbox(&self) -> Sender<Arrival> {
        self.inbox.0.clone()
    }

    /// Shows a recording that is in memory.
    pub fn open_trace(&mut self, name: &str, trace: Trace) {
        self.open_recording(Recording::new(name, None, trace));
    }

    /// Shows a recording that was read elsewhere.
    pub fn open_recording(&mut self, recording: Recording) {
        self.show(&egui::Context::default(), recording);
    }

    /// Shows a recording in place of the open recording of the same file, otherwise in a new, selected tab, with its
    /// saved view settings.
    fn show(&mut self, ctx: &egui::Context, recording: Recording) {
        self.leave_folder();
        let row = recording.path.as_deref().and_then(|path| self.row_of(path));
        if let Some(row) = row {
            self.files[row].replace(recording, row == self.current);
            if self.files[row].following.is_some() && self.files[row].recording.run.is_some() {
                // The previously opened file is no longer followed.
                self.files[row].follow(ctx);
            }
            if self.compares_next {
                self.compare_opened(ctx, row);
            }
            return;
        }
        let look = recording.path.as_deref().and_then(|path| self.settings.look(path)).cloned();
        match look.as_ref().and_then(|look| look.colours) {
            Some((colour_by, stacking)) => {
                (self.settings.paint.colour_by, self.settings.paint.stacking) = (colour_by, stacking);
            }
            None => self.settings.start_with(&recording),
        }
        let mut file = OpenFile::new(recording, look.as_ref());
        file.most_resident = self.most_resident();
        file.views.plan = PlanView::default().with_rerun(self.examples.rerun);
        if is_being_written(&file.recording) {
            file.follow(ctx);
        }
        self.files.push(file);
        self.current = self.files.len() - 1;
        self.apply_link(ctx, self.current);
        self.compare_opened(ctx, self.files.len() - 1);
        // A file that a link names stays in front of files opened with it.
        if let Some(row) = self.linked.as_deref().and_then(|path| self.row_of(path)) {
            self.current = row;
        }
    }

    fn close(&mut self, row: usize) {
        if row >= self.files.len() {
            return;
        }
        let file = self.files.remove(row);
        // Another file of the same rank may follow.
        let is_rank = self.folder.as_ref().is_some_and(|folder| folder.has(&file.recording));
        if let Some(path) = file.recording.path.as_ref().filter(|_| is_rank || file.following.is_some()) {
            self.arriving.retain(|arriving| arriving.path() != path);
            self.ended_inputs.insert(path.clone());
            host::stop_served(path);
        }
        self.keep_look(&file);
        self.compare_closed(row);
        // Millions of rows are freed on another thread, so that the window does not freeze.
        let freed = Arc::downgrade(&file.recording);
        discard(file, freed);
        if row < self.current || self.current >= self.files.len() {
            self.current = self.current.saturating_sub(1);
        }
    }

    fn keep_look(&mut self, file: &OpenFile) {
        let Paint { colour_by, stacking, .. } = self.settings.paint;
        if let Some(look) = FileStyle::of(&file.recording, &file.selection, colour_by, stacking) {
            self.settings.keep_look(look);
        }
    }

    fn row_of(&self, path: &Path) -> Option<usize> {
        self.files.iter().position(|file| file.recording.path.as_deref() == Some(path))
    }

    /// Whether `command` can be executed now.
    pub fn can(&self, command: Command) -> bool {
        match command {
            command if !command.is_offered() => false,
            command if let Some(can) = self.can_in_folder(command) => can,
            Command::NextFile | Command::PreviousFile => self.files.len() > 1,
            command if let Some(can) = self.comparison().and_then(|view| view.can(command)) => can,
            command => !command.needs_recording() || self.current().is_some_and(|file| file.can(command)),
        }
    }

    /// Returns the reason `command` cannot be executed now and a remedy, as a sentence; `None` if it is obvious.
    fn absence(&self, command: Command) -> Option<String> {
        if command == Command::OpenFolder && !command.is_offered() {
            return Some("A browser cannot open folders: drop the recordings of the folder here.".to_owned());
        }
        if self.folder().is_some() && command.needs_recording() {
            return Some("Open a rank first: double-click its row, or press Enter.".to_owned());
        }
        self.current().and_then(|file| file.absence(command))
    }

    fn bring_to_front(&mut self, row: usize) {
        self.current = row;
        self.leave_comparison();
        self.leave_folder();
    }

    /// Executes `command`.
    pub fn run(&mut self, ctx: &egui::Context, command: Command) {
        if !self.can(command) {
            return;
        }
        self.messages.clear();
        if self.run_comparing(ctx, command) || self.run_in_folder(ctx, command) {
            ctx.request_repaint();
            return;
        }
        let deepest = self.current().map_or(1, |file| file.recording.deepest_scope.max(1));
        let depth = self.settings.paint.colour_by.depth(deepest).min(deepest);
        match command {
            Command::Open => self.ask(ctx, Ask::File),
            Command::OpenFolder => self.ask(ctx, Ask::Folder),
            Command::Reload => {
                if let Some(path) = self.current().and_then(|file| file.recording.path.clone()) {
                    self.open(ctx, &path);
                }
            }
            Command::Close => self.close(self.current),
            Command::Quit => ctx.send_viewport_cmd(ViewportCommand::Close),
            Command::Palette => self.palette = Some(Palette::default()),
            Command::GoToStep => self.palette = Some(Palette::for_step()),
            Command::ShowKeys => self.help = Some(Help::Keys),
            Command::About => self.help = Some(Help::About),
            Command::ColourByScope => self.settings.paint.colour_by = ColourBy::scope(depth, deepest),
            Command::DeeperScope => self.settings.paint.colour_by = ColourBy::scope(depth + 1, deepest),
            Command::ShallowerScope => {
                self.settings.paint.colour_by = ColourBy::scope(depth.saturating_sub(1), deepest);
            }
            Command::ToggleStacking => {
                let is_age = self.settings.paint.stacking == Stacking::Age;
                self.settings.paint.stacking = if is_age { Stacking::Colour } else { Stacking::Age };
            }
            Command::ToggleLines => self.settings.paint.has_lines = !self.settings.paint.has_lines,
            Command::ToggleTheme => {
                let is_dark = ctx.theme() == egui::Theme::Dark;
                ctx.set_theme(if is_dark { egui::Theme::Light } else { egui::Theme::Dark });
            }
            Command::ToggleContrast => {
                self.settings.has_contrast = !self.settings.has_contrast;
                theme::install(ctx, self.settings.has_contrast);
            }
            Command::ScaleUp => ctx.set_zoom_factor((ctx.zoom_factor() + SCALE_STEP).min(SCALES.end)),
            Command::ScaleDown => ctx.set_zoom_factor((ctx.zoom_factor() - SCALE_STEP).max(SCALES.start)),
            Command::ScaleReset => ctx.set_zoom_factor(1.0),
            Command::NextFile => self.bring_to_front((self.current + 1) % self.files.len()),
            Command::PreviousFile => self.bring_to_front((self.current + self.files.len() - 1) % self.files.len()),
            Command::Compare => self.toggle_comparison(ctx),
            Command::CopyTable => self.copy_table(ctx),
            Command::SaveTable => self.ask_to_save(ctx, self.settings.side.name()),
            Command::SaveBelow => self.save_below(ctx),
            Command::SavePicture => self.save_picture(ctx),
            Command::Screenshot => self.save_window(ctx),
            command => match command.colours() {
                Some(key) => self.settings.paint.colour_by = ColourBy(key),
                None => {
                    self.leave_comparison();
                    if let Some(file) = self.files.get_mut(self.current) {
                        file.run(ctx, command, &mut self.settings);
                    }
                }
            },
        }
        ctx.request_repaint();
    }

    fn go_to_step(&mut self, ctx: &egui::Context, number: u32) {
        self.leave_comparison();
        self.messages.clear();
        if let Some(file) = self.files.get_mut(self.current) {
            file.go_to_step(ctx, number);
        }
        ctx.request_repaint();
    }

    /// Draws the window and handles input.
    pub fn app_ui(&mut self, ui: &mut Ui) {
        let ctx = ui.ctx().clone();
        if !self.is_styled {
            theme::install(&ctx, self.settings.has_contrast);
            // Zoom commands are handled like all others.
            ctx.options_mut(|options| options.zoom_with_keyboard = false);
            self.is_styled = true;
        }
        self.take_arrivals(&ctx);
        self.title_window(&ctx);
        // Overlays above the views take the keys.
        if self.palette.is_none() && self.path_field.is_none() && self.help.is_none() {
            top_bar::take_menu_key(&ctx);
            for command in keys::pressed(&ctx) {
                if self.can(command) {
                    self.run(&ctx, command);
                } else if let Some(why) = self.absence(command) {
                    self.messages = vec![why];
                }
            }
        }
        Panel::top("menus").show(ui, |ui| self.menu_bar_ui(ui));
        self.notices_ui(ui);
        if self.comparison().is_some() {
            self.comparing_ui(ui);
            return self.above_ui(ui);
        }
        self.ranks_ui(ui);
        if self.folder_ui(ui) {
            return self.above_ui(ui);
        }
        let chosen = match self.files.get_mut(self.current) {
            Some(file) => file.file_ui(ui, &mut self.settings),
            None => {
                CentralPanel::default().show(ui, |ui| self.empty_ui(ui));
                None
            }
        };
        if let Some(command) = chosen {
            self.run(&ctx, command);
        }
        self.above_ui(ui);
    }
}

/// Maximum age of a file's last change for its program to count as still running.
const FRESH: Duration = Duration::from_secs(60);

/// Whether the recording is incomplete and its file changed recently.
fn is_being_written(recording: &Recording) -> bool {
    let changed = recording.path.as_deref().and_then(|path| std::fs::metadata(path).ok()?.modified().ok());
    let is_fresh = changed.is_some_and(|time| time.elapsed().is_ok_and(|age| age < FRESH));
    recording.is_unfinished() && is_fresh
}

impl eframe::App for App {
    fn ui(&mut self, ui: &mut Ui, _frame: &mut eframe::Frame) {
        self.app_ui(ui);
        self.show_link();
        host::copy_texts(ui.ctx());
    }

    #[cfg(target_arch = "wasm32")]
    fn as_any_mut(&mut self) -> Option<&mut dyn std::any::Any> {
        Some(self)
    }

    fn save(&mut self, storage: &mut dyn eframe::Storage) {
        let files = std::mem::take(&mut self.files);
        files.iter().for_each(|file| self.keep_look(file));
        self.files = files;
        self.settings.store(storage);
    }
}
