//! Selects the two open files to compare, and opens and closes the comparison.

use std::sync::Arc;

use eframe::egui::{self, Ui};

use super::App;
use crate::gui::surface::{DiffSheet, Paper, save_view};
use crate::gui::views::diff::{DiffAction, DiffView, Files};
use crate::gui::window::dialog::{Ask, Task};
use crate::gui::window::tabs::{Tab, distinct_names};
use crate::{Command, Recording};

#[derive(Debug)]
pub(super) struct Comparing {
    /// The indices of A and B among the open files.
    pub(super) rows: [usize; 2],
    pub(super) view: DiffView,
    /// Whether the comparison is shown instead of a file.
    pub(super) is_in_front: bool,
}

impl App {
    /// The comparison; `None` if none is shown.
    pub fn comparison(&self) -> Option<&DiffView> {
        self.comparing.as_ref().filter(|comparing| comparing.is_in_front).map(|comparing| &comparing.view)
    }

    /// The mutable comparison; `None` if none is shown.
    pub fn comparison_mut(&mut self) -> Option<&mut DiffView> {
        self.comparing.as_mut().filter(|comparing| comparing.is_in_front).map(|comparing| &mut comparing.view)
    }

    fn recordings(&self, rows: [usize; 2]) -> Option<[Arc<Recording>; 2]> {
        let of = |row: usize| Some(Arc::clone(&self.files.get(row)?.recording));
        Some([of(rows[0])?, of(rows[1])?])
    }

    /// Compares the files in `rows`. Keeps the settings of the previous comparison, unless only one of the two
    /// comparisons is of a file with itself.
    pub(super) fn compare(&mut self, ctx: &egui::Context, rows: [usize; 2]) {
        let Some(recordings) = self.recordings(rows) else { return };
        let recordings = recordings.each_ref();
        let former = self.comparing.take();
        let was_one = former.as_ref().is_some_and(|former| former.rows[0] == former.rows[1]);
        let kept = former.filter(|_| was_one == (rows[0] == rows[1]));
        let selections = rows.map(|row| &self.files[row].selection);
        let mut view = match &kept {
            Some(kept) => DiffView::new(recordings, selections, kept.view.choices.clone()),
            None => DiffView::usual(recordings, selections),
        };
        // The search applies to both sides.
        let text = kept.as_ref().map_or(self.files[rows[0]].search.text(), |kept| kept.view.search_text());
        view.search_for(ctx, recordings, text);
        self.comparing = Some(Comparing { rows, view, is_in_front: true });
    }

    /// Closes the comparison if one is shown. Otherwise, shows the last comparison of the current file, or compares the
    /// file, as A, with the next file.
    pub(super) fn toggle_comparison(&mut self, ctx: &egui::Context) {
        let current = self.current;
        match &mut self.comparing {
            Some(comparing) if comparing.is_in_front => comparing.is_in_front = false,
            Some(comparing) if comparing.rows.contains(&current) => self.show_comparison(),
            _ => {
                let next = (current + 1) % self.files.len().max(1);
                self.compare(ctx, [current, next]);
            }
        }
    }

    pub(super) fn is_compared(&self, row: usize) -> bool {
        self.comparing.as_ref().is_some_and(|comparing| comparing.rows.contains(&row))
    }

    /// Shows the existing comparison, and makes A the current file.
    pub(super) fn show_comparison(&mut self) {
        if let Some(comparing) = &mut self.comparing {
            comparing.is_in_front = true;
            self.current = comparing.rows[0];
        }
    }

    /// Shows the current file instead of the comparison.
    pub(super) fn leave_comparison(&mut self) {
        if let Some(comparing) = &mut self.comparing {
            comparing.is_in_front = false;
        }
    }

    /// Handles the opening of the file in `row`. The file becomes B if it was opened for a comparison.
    pub(super) fn compare_opened(&mut self, ctx: &egui::Context, row: usize) {
        let wants = std::mem::take(&mut self.compares_next);
        match &self.comparing {
            Some(comparing) if wants => {
                let a = comparing.rows[0];
                self.current = a;
                self.compare(ctx, [a, row]);
            }
            _ => self.leave_comparison(),
        }
    }

    /// Handles the closing of the file in `row`: later rows move up.
    pub(super) fn compare_closed(&mut self, row: usize) {
        match &mut self.comparing {
            Some(comparing) if comparing.rows.contains(&row) => self.comparing = None,
            Some(comparing) => {
                comparing.rows.iter_mut().filter(|other| **other > row).for_each(|other| *other -= 1);
            }
            None => {}
        }
    }

    /// Returns the title of the comparison; `None` if no comparison is shown.
    pub(super) fn comparison_name(&self) -> Option<String> {
        self.comparison()?;
        self.comparison_tab(&self.tabs()).map(|tab| tab.name)
    }

    pub(super) fn comparison_tab(&self, tabs: &[Tab]) -> Option<Tab> {
        let [a, b] = self.comparing.as_ref()?.rows;
        let names = distinct_names(tabs);
        let name = if a == b {
            format!("{} with itself", names.get(a)?)
        } else {
            format!("{} : {}", names.get(a)?, names.get(b)?)
        };
        Some(Tab { name, path: None })
    }

    /// Executes a command of the displayed comparison. Returns whether the command was executed.
    pub(super) fn run_comparing(&mut self, ctx: &egui::Context, command: Command) -> bool {
        let Some(mut comparing) = self.comparing.take_if(|comparing| comparing.is_in_front) else { return false };
        let recordings = self.recordings(comparing.rows);
        let mut is_closed = false;
        let is_done = match (command, recordings) {
            (Command::Close, _) => {
                is_closed = true;
                true
            }
            (Command::CopyTable | Command::SaveTable, _) => {
                match comparing.view.csv() {
                    Ok(csv) if command == Command::CopyTable => ctx.copy_text(csv),
                    Ok(csv) => {
                        self.ask(ctx, Ask::Save(Task::table("difference", move |out| out.write_all(csv.as_bytes()))));
                    }
                    Err(why) => self.messages.push(why),
                }
                true
            }
            (Command::SavePicture, Some(recordings)) => {
                self.save_comparison(ctx, recordings, &comparing.view);
                true
            }
            (command, Some(recordings)) => {
                comparing.view.run(ctx, command, recordings.each_ref(), &mut self.settings.paint)
            }
            (_, None) => false,
        };
        if !is_closed {
            self.comparing = Some(comparing);
        }
        is_done
    }

    /// Saves the comparison as a picture of the window's size.
    fn save_comparison(&mut self, ctx: &egui::Context, recordings: [Arc<Recording>; 2], view: &DiffView) {
        let mut sheet = DiffSheet::new(recordings, view.selections(), view.choices.clone(), self.settings.paint);
        sheet.search_for(view.search_text());
        let paper = Paper::fitting(ctx.content_rect().size(), ctx.pixels_per_point(), ctx.theme());
        let write = move |path: &std::path::Path| {
            let title = sheet.title();
            let written = save_view(path, paper, &title, |ui| sheet.sheet_ui(ui));
            written.map(|_| ()).map_err(|why| why.to_string())
        };
        self.ask(ctx, Ask::Save(Task::picture("difference", write)));
    }

    pub(super) fn comparing_ui(&mut self, ui: &mut Ui) {
        let Some(mut comparing) = self.comparing.take() else { return };
        let Some(recordings) = self.recordings(comparing.rows) else { return };
        let files = Files { names: distinct_names(&self.tabs()), rows: comparing.rows };
        let action = comparing.view.diff_ui(ui, recordings.each_ref(), &files, &mut self.settings.paint);
        let rows = comparing.rows;
        self.comparing = Some(comparing);
        match action {
            None => {}
            Some(DiffAction::Take { side, row }) => {
                let mut rows = rows;
                rows[side] = row;
                self.current = rows[0];
                self.compare(ui.ctx(), rows);
            }
            Some(DiffAction::Swap) => self.swap_sides(ui.ctx()),
            Some(DiffAction::Open) => {
                self.compares_next = true;
                self.ask(ui.ctx(), Ask::File);
            }
            Some(DiffAction::Close) => self.comparing = None,
        }
    }

    /// Swaps A and B, with their moments.
    fn swap_sides(&mut self, ctx: &egui::Context) {
        let Some(comparing) = &mut self.comparing else { return };
        comparing.view.choices.at.reverse();
        let [a, b] = comparing.rows;
        self.current = b;
        self.compare(ctx, [b, a]);
    }
}
