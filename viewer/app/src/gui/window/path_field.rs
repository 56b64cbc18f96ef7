//! A text field for a path, for systems without file dialogs.

use std::path::{Path, PathBuf};

use eframe::egui::text::{CCursor, CCursorRange};
use eframe::egui::text_edit::TextEditState;
use eframe::egui::{self, Id, Key, Label, Modal, Modifiers, RichText, Role, TextEdit, Ui, WidgetInfo};
use highwater_snapshots::natural;

use crate::gui::filter::completions::put_cursor;
use crate::gui::widgets::{Shades, theme};
use crate::gui::window::dialog::Ask;
use crate::gui::window::palette::Entered;

const MAX_OFFERS: usize = 12;

#[derive(Debug)]
pub(crate) struct PathField {
    ask: Ask,
    text: String,
    is_focused: bool,
    /// The possible completions, if there are several.
    offers: Vec<String>,
}

impl PathField {
    /// Creates a field for the path that `ask` requests. For a file to write, the field starts with the suggested name.
    pub(crate) fn new(ask: Ask) -> Self {
        let folder = std::env::current_dir().unwrap_or_default();
        let text = match &ask {
            Ask::Save(task) => folder.join(&task.name).display().to_string(),
            Ask::File | Ask::Folder => String::new(),
        };
        Self { ask, text, is_focused: false, offers: Vec::new() }
    }

    pub(crate) fn into_ask(self) -> Ask {
        self.ask
    }

    pub(crate) fn path_field_ui(&mut self, ui: &Ui) -> Entered<PathBuf> {
        let mut entered = Entered::None;
        let modal = Modal::new(Id::unique("path field")).show(ui.ctx(), |ui| {
            ui.set_width(theme::TOOLTIP_WIDTH);
            ui.strong(self.ask.title());
            ui.weak("This system has no file dialog (desktop portal or zenity). Enter a path; Tab completes it.");
            let hint = if matches!(self.ask, Ask::Folder) { "/path/to/folder" } else { "/path/to/file" };
            let hint = theme::placeholder(ui, hint);
            let id = Id::unique("path field").with("text");
            self.complete(ui, id);
            let field = TextEdit::singleline(&mut self.text).id(id).hint_text(hint).desired_width(f32::INFINITY);
            // Tab completes the path.
            let field = ui.add(field.lock_focus(true));
            if field.changed() {
                self.offers.clear();
            }
            field.widget_info(|| WidgetInfo::labeled(Role::TextInput, true, "Path"));
            if !std::mem::replace(&mut self.is_focused, true) {
                field.request_focus();
            }
            // The field puts its cursor at the end when it gets the focus.
            if field.gained_focus() {
                self.select_name(ui, id);
            }
            let path = absolute(&self.text);
            let problem = self.problem(&path);
            let replaces = matches!(self.ask, Ask::Save(_)) && path.is_file();
            let (text, colour) = match (problem.as_deref(), replaces) {
                (Some(problem), _) => (problem, Shades::in_ui(ui).warning),
                (None, true) => ("This file exists and will be replaced.", Shades::in_ui(ui).faint),
                (None, false) => ("", Shades::in_ui(ui).faint),
            };
            let text = RichText::new(if self.text.is_empty() { "" } else { text }).color(colour);
            ui.add(Label::new(text).wrap());
            self.offers_ui(ui);
            let has_entered = ui.input(|input| input.key_pressed(Key::Enter));
            ui.horizontal(|ui| {
                let name = match (&self.ask, replaces) {
                    (Ask::Save(_), true) => "Replace",
                    (Ask::Save(_), false) => "Save",
                    (Ask::File | Ask::Folder, _) => "Open",
                };
                let button = ui.add_enabled(problem.is_none(), egui::Button::new(name));
                if button.clicked() || has_entered && problem.is_none() {
                    entered = Entered::Value(path.clone());
                }
                if has_entered && problem.is_some() {
                    // Enter leaves the field, but the path is still to be corrected.
                    ui.memory_mut(|memory| memory.request_focus(id));
                }
                if ui.button("Cancel").clicked() {
                    entered = Entered::Cancelled;
                }
            });
        });
        if modal.should_close() && matches!(entered, Entered::None) { Entered::Cancelled } else { entered }
    }

    /// Completes the path when Tab is pressed, and moves the cursor to its end.
    fn complete(&mut self, ui: &Ui, field: Id) {
        let is_asked = ui.memory(|memory| memory.has_focus(field))
            && ui.input_mut(|input| input.consume_key(Modifiers::NONE, Key::Tab));
        if !is_asked {
            return;
        }
        let completion = complete(self.text.trim(), absolute, matches!(self.ask, Ask::Folder));
        self.text = completion.text;
        self.offers = if completion.names.len() > 1 { completion.names } else { Vec::new() };
        put_cursor(ui, field, &self.text, self.text.len());
    }

    fn offers_ui(&self, ui: &mut Ui) {
        if self.offers.is_empty() {
            return;
        }
        let mut names = self.offers.iter().take(MAX_OFFERS).cloned().collect::<Vec<_>>().join("   ");
        if self.offers.len() > MAX_OFFERS {
            names += &format!("   and {} more", self.offers.len() - MAX_OFFERS);
        }
        ui.add(Label::new(RichText::new(names).weak().size(12.0)).wrap());
    }

    /// Selects the file name, so that typing replaces it, and resets the cursor of an earlier field.
    fn select_name(&self, ui: &Ui, field: Id) {
        let end = self.text.chars().count();
        let name = self.text.rsplit(['/', '\\']).next().unwrap_or_default();
        let start = end - name.chars().count();
        let mut state = TextEditState::default();
        state.cursor.set_char_range(Some(CCursorRange::two(CCursor::new(start), CCursor::new(end))));
        state.store(ui.ctx(), field);
    }

    fn problem(&self, path: &Path) -> Option<String> {
        if self.text.trim().is_empty() {
            return Some("Enter a path.".to_owned());
        }
        let shown = path.display();
        match self.ask {
            Ask::File if !path.exists() => Some(format!("cannot open {shown}: no such file; check the path")),
            Ask::Folder if !path.exists() => Some(format!("cannot open {shown}: no such folder; check the path")),
            Ask::Folder if !path.is_dir() => Some(format!("cannot open {shown}: not a folder; use Open… for a file")),
            Ask::Save(_) if path.is_dir() => Some(format!("cannot save to {shown}: it is a folder; add a file name")),
            Ask::Save(_) if !path.parent().is_some_and(Path::is_dir) => {
                let folder = path.parent().unwrap_or(path).display();
                Some(format!("cannot save to {shown}: no folder {folder}; create it first"))
            }
            _ => None,
        }
    }
}

/// Converts the entered text to an absolute path, replacing `~` by the home folder.
fn absolute(text: &str) -> PathBuf {
    let text = text.trim();
    let home = std::env::home_dir().filter(|_| text == "~" || text.starts_with("~/"));
    let path = match home {
        Some(home) => home.join(text.trim_start_matches('~').trim_start_matches('/')),
        None => PathBuf::from(text),
    };
    std::path::absolute(&path).unwrap_or(path)
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Completion {
    /// The path, extended by the common prefix of all candidates.
    pub(super) text: String,
    /// The names of the candidates. Folders have a trailing slash. Empty without candidates.
    pub(super) names: Vec<String>,
}

/// Completes the last part of `text`; `absolute` resolves its folder. With `only_folders`, only folders are offered.
/// Hidden files are offered if the part starts with a dot.
pub(super) fn complete(text: &str, absolute: impl Fn(&str) -> PathBuf, only_folders: bool) -> Completion {
    let (folder, start) = text.split_at(text.rfind(std::path::is_separator).map_or(0, |at| at + 1));
    let mut names = names_in(&absolute(if folder.is_empty() { "." } else { folder }), start, only_folders);
    names.sort_by(|a, b| natural::compare(a, b));
    let common = match names.as_slice() {
        [first, others @ ..] => others.iter().fold(first.as_str(), |common, name| in_common(common, name)),
        [] => start,
    };
    Completion { text: format!("{folder}{common}"), names }
}

fn names_in(folder: &Path, start: &str, only_folders: bool) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let name = |entry: std::fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let is_offered = name.starts_with(start) && (!name.starts_with('.') || start.starts_with('.'));
        let is_folder = is_offered && entry.path().is_dir();
        let slash = if is_folder { "/" } else { "" };
        (is_offered && (is_folder || !only_folders)).then(|| format!("{name}{slash}"))
    };
    entries.filter_map(name).collect()
}

fn in_common<'a>(one: &'a str, other: &str) -> &'a str {
    let same = one.chars().zip(other.chars()).take_while(|(a, b)| a == b);
    &one[..same.map(|(sign, _)| sign.len_utf8()).sum()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_completed_as_far_as_all_candidates_agree() {
        let folder = std::env::temp_dir().join(format!("highwater-completion-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("runs/été")).unwrap();
        for name in ["rank10.snap", "rank2.snap", ".hidden", "runs/été2.snap"] {
            std::fs::write(folder.join(name), "").unwrap();
        }
        let completed = |text: &str, only_folders| complete(text, |part| folder.join(part), only_folders);
        let is = |text: &str, names: &[&str]| Completion {
            text: text.to_owned(),
            names: names.iter().map(|name| (*name).to_owned()).collect(),
        };
        assert_eq!(completed("ra", false), is("rank", &["rank2.snap", "rank10.snap"]));
        assert_eq!(completed("rank1", false), is("rank10.snap", &["rank10.snap"]));
        assert_eq!(completed("r", true), is("runs/", &["runs/"]));
        assert_eq!(completed("runs/", false), is("runs/été", &["été/", "été2.snap"]));
        assert_eq!(completed(".", false), is(".hidden", &[".hidden"]));
        assert_eq!(completed("nothing", false), is("nothing", &[]));
        assert_eq!(completed("missing/a", false), is("missing/a", &[]));
        std::fs::remove_dir_all(folder).unwrap();
    }
}
