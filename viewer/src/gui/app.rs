//! App: the window: open files, what is being read, and commands carried out.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use eframe::egui::{self, CentralPanel, ColorImage, Panel, RichText, Ui, ViewportCommand};
use highwater_snapshots::Trace;

use super::colouring::ColourBy;
use super::keys;
use super::open_file::OpenFile;
use super::palette::{Choice, Palette};
use super::settings::Settings;
use super::timeline::Stacking;
use super::welcome::Welcome;
use super::{failure, theme, top_bar, welcome};
use crate::args::is_stdin;
use crate::command::Command;
use crate::discard::discard;
use crate::example::Running;
use crate::loader::{Loading, Outcome};
use crate::record;
use crate::session::Recording;

/// By how much one command changes the size of everything, and how far.
const SCALE_STEP: f32 = 0.1;
const SCALES: std::ops::Range<f32> = 0.5..3.0;

/// The app's state. Everything can be driven without a window: [`Self::app_ui`] draws into any `Ui`, [`Self::run`]
/// carries out any command.
#[derive(Debug, Default)]
pub struct App {
    files: Vec<OpenFile>,
    current: usize,
    loading: Vec<Loading>,
    failures: Vec<(PathBuf, String)>,
    settings: Settings,
    palette: Option<Palette>,
    dialog: Option<Receiver<Option<PathBuf>>>,
    welcome: Welcome,
    example: Option<Running>,
    is_styled: bool,
}

impl App {
    /// An app with nothing open.
    pub fn new(settings: Settings) -> Self {
        Self { settings, ..Self::default() }
    }

    /// What is remembered for the next start.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The recording in front.
    pub fn current(&self) -> Option<&OpenFile> {
        self.files.get(self.current)
    }

    /// The recording in front, to be changed.
    pub fn current_mut(&mut self) -> Option<&mut OpenFile> {
        self.files.get_mut(self.current)
    }

    /// Whether a file is being read.
    pub fn is_loading(&self) -> bool {
        !self.loading.is_empty()
    }

    /// Starts to read `path`, unless it is being read already, and shows what is open of it meanwhile. `-` is standard
    /// input.
    pub fn open(&mut self, ctx: &egui::Context, path: &Path) {
        // The list of recent files outlives the folder that we were started in.
        let absolute = if is_stdin(path) { Ok(path.to_owned()) } else { std::path::absolute(path) };
        let path = &absolute.unwrap_or_else(|_| path.to_owned());
        if let Some(row) = self.row_of(path) {
            self.current = row;
        }
        if self.loading.iter().all(|loading| loading.path() != path) {
            let wake = ctx.clone();
            self.loading.push(Loading::start(path.to_owned(), move || {
                wake.request_repaint();
            }));
        }
    }

    /// Shows a recording that is in memory.
    pub fn open_trace(&mut self, name: &str, trace: Trace) {
        self.show(Recording::new(name, None, trace));
    }

    /// Shows a recording in front, or, where one of the same file is open, in its place and as it was looked at.
    fn show(&mut self, recording: Recording) {
        match recording.path.as_deref().and_then(|path| self.row_of(path)) {
            Some(row) => self.files[row].replace(recording),
            None => {
                self.files.push(OpenFile::new(recording));
                self.current = self.files.len() - 1;
            }
        }
    }

    fn row_of(&self, path: &Path) -> Option<usize> {
        self.files.iter().position(|file| file.recording.path.as_deref() == Some(path))
    }

    /// Whether `command` can be carried out now.
    pub fn can(&self, command: Command) -> bool {
        match command {
            Command::NextFile | Command::PreviousFile => self.files.len() > 1,
            command => !command.needs_recording() || self.current().is_some_and(|file| file.can(command)),
        }
    }

    /// Carries out `command`.
    pub fn run(&mut self, ctx: &egui::Context, command: Command) {
        if !self.can(command) {
            return;
        }
        let deepest = self.current().map_or(1, |file| file.recording.deepest_scope.max(1));
        let depth = if let ColourBy::Scope(depth) = self.settings.colour_by { depth } else { 1 };
        match command {
            Command::Open => self.ask_for_file(ctx),
            Command::Reload => {
                if let Some(path) = self.current().and_then(|file| file.recording.path.clone()) {
                    self.open(ctx, &path);
                }
            }
            Command::Close => {
                // Millions of rows are given back elsewhere: the window goes on.
                let file = self.files.remove(self.current);
                let held = Arc::downgrade(&file.recording);
                discard(file, held);
                self.current = self.current.min(self.files.len().saturating_sub(1));
            }
            Command::Quit => ctx.send_viewport_cmd(ViewportCommand::Close),
            Command::Palette => self.palette = Some(Palette::default()),
            Command::ColourByCategory => self.settings.colour_by = ColourBy::Category,
            Command::ColourByScope => self.settings.colour_by = ColourBy::Scope(depth.min(deepest)),
            Command::ColourByOp => self.settings.colour_by = ColourBy::Op,
            Command::ColourByCallSite => self.settings.colour_by = ColourBy::CallSite,
            Command::ColourByLifetime => self.settings.colour_by = ColourBy::Lifetime,
            Command::ColourByStream => self.settings.colour_by = ColourBy::Stream,
            Command::DeeperScope => {
                self.settings.colour_by = ColourBy::Scope((depth + 1).min(deepest));
            }
            Command::ShallowerScope => {
                self.settings.colour_by = ColourBy::Scope(depth.saturating_sub(1).max(1));
            }
            Command::ToggleStacking => {
                let is_age = self.settings.stacking == Stacking::Age;
                self.settings.stacking = if is_age { Stacking::Colour } else { Stacking::Age };
            }
            Command::ToggleLines => self.settings.has_lines = !self.settings.has_lines,
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
            Command::NextFile => self.current = (self.current + 1) % self.files.len(),
            Command::PreviousFile => self.current = (self.current + self.files.len() - 1) % self.files.len(),
            Command::CopyTable => {
                if let Some(file) = self.current_mut() {
                    let csv = file.table_csv();
                    ctx.copy_text(csv);
                }
            }
            Command::Screenshot => {
                let name = self.current().map_or("highwater", |file| file.recording.name.as_str());
                let stem = Path::new(name).file_stem().map_or(name.into(), |stem| stem.to_string_lossy());
                let name = format!("{stem}.png");
                ctx.request_screenshot(move |picture| save_picture(name, picture));
            }
            command => {
                if let Some(file) = self.files.get_mut(self.current) {
                    file.run(ctx, command, &mut self.settings);
                }
            }
        }
        ctx.request_repaint();
    }

    /// Draws the window and follows the user.
    pub fn app_ui(&mut self, ui: &mut Ui) {
        let ctx = ui.ctx().clone();
        if !self.is_styled {
            theme::install(&ctx, self.settings.has_contrast);
            // Larger and smaller are commands like all others.
            ctx.options_mut(|options| options.zoom_with_keyboard = false);
            self.is_styled = true;
        }
        self.take_news(&ctx);
        if self.palette.is_none() {
            for command in keys::pressed(&ctx) {
                self.run(&ctx, command);
            }
        }
        Panel::top("menus").show(ui, |ui| self.menu_bar_ui(ui));
        self.notices_ui(ui);
        let chosen = match self.files.get_mut(self.current) {
            Some(file) => file.file_ui(ui, &mut self.settings),
            None => {
                CentralPanel::default().show(ui, |ui| self.welcome_ui(ui));
                None
            }
        };
        if let Some(command) = chosen {
            self.run(&ctx, command);
        }
        self.palette_ui(ui);
        drop_hint_ui(ui);
    }

    /// Takes in what other threads and the system have brought: recordings, chosen and dropped files, pictures.
    fn take_news(&mut self, ctx: &egui::Context) {
        let (mut ready, mut failed) = (Vec::new(), Vec::new());
        self.loading.retain(|loading| match loading.poll() {
            Outcome::Pending => true,
            Outcome::Cancelled => false,
            Outcome::Ready(recording) => {
                ready.push(*recording);
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
            self.show(recording);
        }
        for (path, why) in failed {
            self.failures.retain(|(known, _)| *known != path);
            self.failures.push((path, why));
        }
        if let Some(recorded) = self.example.as_ref().and_then(Running::poll) {
            match (recorded, self.example.take()) {
                (Ok(path), _) => self.open(ctx, &path),
                (Err(why), Some(example)) => self.failures.push((example.file().to_owned(), why)),
                (Err(_), None) => {}
            }
        }
        if let Some(Ok(path)) = self.dialog.as_ref().map(Receiver::try_recv) {
            self.dialog = None;
            if let Some(path) = path {
                self.open(ctx, &path);
            }
        }
        let dropped: Vec<PathBuf> =
            ctx.input(|input| input.raw.dropped_files.iter().map(|file| file.path().to_owned()).collect());
        for path in dropped {
            self.open(ctx, &path);
        }
    }

    fn menu_bar_ui(&mut self, ui: &mut Ui) {
        let mut chosen = None;
        egui::MenuBar::new().ui(ui, |ui| {
            chosen = top_bar::menus_ui(ui, |command| self.can(command));
            if self.files.len() > 1 {
                ui.separator();
                for (row, file) in self.files.iter().enumerate() {
                    if ui.selectable_label(row == self.current, &file.recording.name).clicked() {
                        self.current = row;
                    }
                }
            }
        });
        if let Some(command) = chosen {
            let ctx = ui.ctx().clone();
            self.run(&ctx, command);
        }
    }

    /// What is being read, and what could not be.
    fn notices_ui(&mut self, ui: &mut Ui) {
        if self.loading.is_empty() && self.failures.is_empty() {
            return;
        }
        Panel::top("notices").show(ui, |ui| {
            // Dropping it calls it off, and leaves the file free to be opened again at once.
            self.loading.retain(|loading| !welcome::loading_ui(ui, loading));
            let mut again = None;
            self.failures.retain(|(path, why)| {
                let answer = failure::failure_ui(ui, path, why, !is_stdin(path));
                if answer == Some(failure::Answer::Retry) {
                    again = Some(path.clone());
                }
                answer != Some(failure::Answer::Dismiss)
            });
            if let Some(path) = again {
                self.open(&ui.ctx().clone(), &path);
            }
        });
    }

    fn welcome_ui(&mut self, ui: &mut Ui) {
        let ctx = ui.ctx().clone();
        let running = self.example.as_ref();
        match self.welcome.welcome_ui(ui, &self.settings.recent, record::EXAMPLES, running) {
            Some(welcome::Wish::Ask) => self.run(&ctx, Command::Open),
            Some(welcome::Wish::Open(path)) => self.open(&ctx, &path),
            Some(welcome::Wish::Forget(path)) => self.settings.forget(&path),
            Some(welcome::Wish::Record(example)) => {
                self.example = Some(Running::start(example, None, record::example, move || ctx.request_repaint()));
            }
            None => {}
        }
    }

    fn palette_ui(&mut self, ui: &Ui) {
        let Some(mut palette) = self.palette.take() else {
            return;
        };
        match palette.palette_ui(ui, |command| self.can(command)) {
            Choice::None => self.palette = Some(palette),
            Choice::Closed => {}
            Choice::Run(command) => self.run(ui.ctx(), command),
        }
    }

    /// Opens the system's dialog on a thread of its own, so that the window goes on.
    fn ask_for_file(&mut self, ctx: &egui::Context) {
        if self.dialog.is_some() {
            return;
        }
        let (sender, receiver) = channel();
        let wake = ctx.clone();
        let ask = move || {
            let dialog = rfd::FileDialog::new().set_title("Open a recording");
            let endings = ["snap", "pickle", "pkl", "json", "html", "gz"];
            let dialog = dialog.add_filter("Recordings", &endings).add_filter("All files", &["*"]);
            // The window may be gone by now.
            let _ = sender.send(dialog.pick_file());
            wake.request_repaint();
        };
        match std::thread::Builder::new().name("highwater-dialog".to_owned()).spawn(ask) {
            Ok(_) => self.dialog = Some(receiver),
            Err(why) => self.failures.push((PathBuf::from("a file"), format!("cannot show the dialog: {why}"))),
        }
    }
}

/// Asks where to write a picture of the window, and writes it, on a thread of its own.
fn save_picture(name: String, picture: Arc<ColorImage>) {
    let save = move || {
        let dialog = rfd::FileDialog::new().set_title("Save a picture").set_file_name(name);
        if let Some(path) = dialog.add_filter("PNG", &["png"]).save_file()
            && let Err(why) = write_png(&path, &picture)
        {
            let text = format!("Cannot write {}: {why}", path.display());
            rfd::MessageDialog::new().set_title("Highwater").set_description(text).show();
        }
    };
    // Without a thread there is no dialog and no picture, which the user sees.
    let _ = std::thread::Builder::new().name("highwater-picture".to_owned()).spawn(save);
}

fn write_png(path: &Path, picture: &ColorImage) -> anyhow::Result<()> {
    let file = std::io::BufWriter::new(std::fs::File::create(path)?);
    let mut encoder = png::Encoder::new(file, picture.size[0] as u32, picture.size[1] as u32);
    encoder.set_color(png::ColorType::Rgba);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.write_header()?.write_image_data(picture.as_raw())?;
    Ok(())
}

/// Says that a file held over the window can be dropped.
fn drop_hint_ui(ui: &Ui) {
    if ui.input(|input| input.raw.hovered_files.is_empty()) {
        return;
    }
    egui::Area::new(egui::Id::unique("drop")).anchor(egui::Align2::CENTER_CENTER, [0.0, 0.0]).show(ui.ctx(), |ui| {
        egui::Frame::popup(ui.style())
            .inner_margin(24)
            .show(ui, |ui| ui.label(RichText::new("Drop to open").size(22.0)));
    });
}

impl eframe::App for App {
    fn ui(&mut self, ui: &mut Ui, _frame: &mut eframe::Frame) {
        self.app_ui(ui);
    }

    fn save(&mut self, storage: &mut dyn eframe::Storage) {
        eframe::set_value(storage, eframe::APP_KEY, &self.settings);
    }
}
