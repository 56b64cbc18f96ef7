//! The frame around the current recording: menus, tabs, ranks, notices, the command palette and the start screen.

use std::sync::Arc;

use eframe::egui::{self, Align2, Area, Button, Frame, Id, Panel, RichText, Ui, ViewportCommand, vec2};

use super::App;
use crate::example::Running;
use crate::files::{HAS_PATHS, file_name, is_stdin};
use crate::gui::open_file::OpenFile;
use crate::gui::views::rank_strip::{CellPlace, ShownCell};
use crate::gui::widgets::{keys, theme};
use crate::gui::window::dialog::Chosen;
use crate::gui::window::palette::{Choice, Entered};
use crate::gui::window::preview::preview_ui;
use crate::gui::window::tabs::{Tab, TabAction, tabs_ui};
use crate::gui::window::top_bar::Picked;
use crate::gui::window::{failure, top_bar, welcome};
use crate::{Command, Recording};

impl App {
    pub(super) fn menu_bar_ui(&mut self, ui: &mut Ui) {
        let (mut chosen, mut opened, mut action) = (None, None, None);
        egui::MenuBar::new().ui(ui, |ui| {
            // Names of menus and of tabs are on one line.
            ui.set_min_height(theme::MENU_HEIGHT);
            match top_bar::menus_ui(ui, &self.settings.recent, |command| self.can(command)) {
                Some(Picked::Command(command)) => chosen = Some(command),
                Some(Picked::File(path)) => opened = Some(path),
                None => {}
            }
            if !self.files.is_empty() {
                ui.separator();
                let mut tabs = self.tabs();
                if tabs.len() > 1 {
                    let key = keys::first(Command::Compare);
                    let button = ui.add(Button::new("Compare").shortcut_text(key));
                    if button.on_hover_text(Command::Compare.tooltip()).clicked() {
                        chosen = Some(Command::Compare);
                    }
                    ui.separator();
                }
                let front = match (self.comparison(), self.folder()) {
                    (Some(_), _) => tabs.len(),
                    // The folder has no tab.
                    (None, Some(_)) => usize::MAX,
                    (None, None) => self.current,
                };
                tabs.extend(self.comparison_tab(&tabs));
                action = tabs_ui(ui, &tabs, front);
            }
        });
        match action {
            Some(TabAction::Show(row)) if row < self.files.len() => self.bring_to_front(row),
            Some(TabAction::Close(row)) if row < self.files.len() => self.close(row),
            // The tab after all files is the comparison's.
            Some(TabAction::Show(_)) => self.show_comparison(),
            Some(TabAction::Close(_)) => self.comparing = None,
            None => {}
        }
        let ctx = ui.ctx().clone();
        if let Some(command) = chosen {
            self.run(&ctx, command);
        }
        if let Some(path) = opened {
            self.open(&ctx, &path);
        }
    }

    /// Sets the window's title to the name of the comparison, folder or file that is shown.
    pub(super) fn title_window(&mut self, ctx: &egui::Context) {
        let name = match (self.comparison_name(), self.folder(), self.current()) {
            (Some(name), ..) => name,
            (None, Some(folder), _) => folder.fleet().name.clone(),
            (None, None, Some(file)) => file.recording.name.clone(),
            (None, None, None) => String::new(),
        };
        let title = if name.is_empty() { "Highwater".to_owned() } else { format!("{name} – Highwater") };
        if title != self.title {
            ctx.send_viewport_cmd(ViewportCommand::Title(title.clone()));
            self.title = title;
        }
    }

    /// Shows files being read, unreadable files, and messages above the lower edge, where they move no other content.
    pub(super) fn notices_ui(&mut self, ui: &mut Ui) {
        let is_recording = self.example.is_some() && !self.files.is_empty();
        if self.loading.is_empty() && self.failures.is_empty() && self.messages.is_empty() && !is_recording {
            return;
        }
        let width = (ui.ctx().content_rect().width() - 40.0).min(theme::HELP_WIDTH);
        let area = Area::new(Id::unique("notices")).anchor(Align2::CENTER_BOTTOM, vec2(0.0, -theme::NOTICES_ABOVE));
        let frame = Frame::popup(ui.style()).inner_margin(10);
        area.show(&ui.ctx().clone(), |ui| frame.show(ui, |ui| self.notices(ui, width)));
    }

    fn notices(&mut self, ui: &mut Ui, width: f32) {
        let is_recording = self.example.is_some() && !self.files.is_empty();
        ui.set_max_width(width);
        // Dropping it cancels reading, and lets the file be opened again at once.
        self.loading.retain(|loading| !welcome::loading_ui(ui, loading));
        if let Some(example) = self.example.as_ref().filter(|_| is_recording) {
            welcome::recording_ui(ui, example);
        }
        self.messages.retain(|words| {
            let row = ui.horizontal_wrapped(|ui| {
                ui.label(words);
                ui.button("Dismiss").clicked()
            });
            !row.inner
        });
        let mut again = None;
        self.failures.retain(|(path, why)| {
            let answer = failure::failure_ui(ui, path, why, HAS_PATHS && !is_stdin(path));
            if answer == Some(failure::Answer::Retry) {
                again = Some(path.clone());
            }
            answer != Some(failure::Answer::Dismiss)
        });
        if let Some(path) = again {
            self.open(&ui.ctx().clone(), &path);
        }
    }

    /// Shows the content while no recording is open: a preview of the file being read, or the start page.
    pub(super) fn empty_ui(&mut self, ui: &mut Ui) {
        let early = self.loading.iter().find_map(|loading| Some((loading.path(), loading.preview()?)));
        match early {
            Some((path, preview)) => {
                preview_ui(ui, &file_name(path), &preview);
            }
            None if self.is_loading() => {}
            None => self.welcome_ui(ui),
        }
    }

    /// Shows the strip of all files and devices, if there are several.
    pub(super) fn ranks_ui(&mut self, ui: &mut Ui) {
        if self.folder_ranks_ui(ui) {
            return;
        }
        let Some(file) = self.files.get(self.current) else { return };
        let (metric, device) = (file.selection.metric, file.selection.device);
        let recordings: Vec<&Arc<Recording>> = self.files.iter().map(|file| &file.recording).collect();
        if recordings.iter().map(|recording| recording.devices.len()).sum::<usize>() < 2 {
            return;
        }
        let in_front = Some(CellPlace { file: self.current, device });
        let ranks = &mut self.ranks;
        let chosen = Panel::top("ranks")
            .show(ui, |ui| ranks.ranks_ui(ui, ShownCell::Files(&recordings), metric, in_front))
            .inner;
        if let Some(CellPlace { file, device }) = chosen {
            self.current = file;
            if let Some(file) = self.files.get_mut(file) {
                file.choose_device(device);
            }
        }
    }

    fn welcome_ui(&mut self, ui: &mut Ui) {
        let ctx = ui.ctx().clone();
        let running = self.example.as_ref();
        match self.welcome.welcome_ui(ui, &self.settings.recent, self.examples.list, running) {
            Some(welcome::WelcomeAction::Ask) => self.run(&ctx, Command::Open),
            Some(welcome::WelcomeAction::Open(path)) => self.open(&ctx, &path),
            Some(welcome::WelcomeAction::Forget(path)) => self.settings.forget(&path),
            Some(welcome::WelcomeAction::Record(example)) => {
                self.example = Some(Running::start(example, None, self.examples.record, move || ctx.request_repaint()));
            }
            None => {}
        }
    }

    pub(super) fn tabs(&self) -> Vec<Tab> {
        let tab = |file: &OpenFile| Tab { name: file.recording.name.clone(), path: file.recording.path.clone() };
        self.files.iter().map(tab).collect()
    }

    /// Shows the overlays: palette, help, path field, and the hint for dropped files.
    pub(super) fn above_ui(&mut self, ui: &Ui) {
        self.palette_ui(ui);
        self.help = self.help.filter(|help| help.help_ui(ui));
        self.path_field_ui(ui);
        drop_hint_ui(ui);
    }

    fn path_field_ui(&mut self, ui: &Ui) {
        let Some(mut field) = self.path_field.take() else { return };
        match field.path_field_ui(ui) {
            Entered::None => self.path_field = Some(field),
            Entered::Cancelled => self.take_answer(ui.ctx(), field.into_ask(), Chosen::Cancelled),
            Entered::Value(path) => self.take_answer(ui.ctx(), field.into_ask(), Chosen::Path(path)),
        }
    }

    fn palette_ui(&mut self, ui: &Ui) {
        let Some(mut palette) = self.palette.take() else { return };
        match palette.palette_ui(ui, |command| self.can(command)) {
            Entered::None => self.palette = Some(palette),
            Entered::Cancelled => {}
            Entered::Value(Choice::Run(command)) => self.run(ui.ctx(), command),
            Entered::Value(Choice::Step(number)) => self.go_to_step(ui.ctx(), number),
        }
    }
}

fn drop_hint_ui(ui: &Ui) {
    if ui.input(|input| input.raw.hovered_files.is_empty()) {
        return;
    }
    Area::new(Id::unique("drop")).anchor(Align2::CENTER_CENTER, [0.0, 0.0]).show(ui.ctx(), |ui| {
        Frame::popup(ui.style()).inner_margin(24).show(ui, |ui| ui.label(RichText::new("Drop to open").size(22.0)));
    });
}
