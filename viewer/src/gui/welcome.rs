//! Welcome: what the window shows while nothing is open: how to begin, recent files, and what went wrong.

use std::path::{Path, PathBuf};

use eframe::egui::{Align, FontId, Layout, ProgressBar, RichText, Ui};

use super::keys;
use super::theme::Shades;
use crate::command::Command;
use crate::loader::Loading;

/// What the user chose on the page.
pub enum Wish {
    /// Ask for a file.
    Ask,
    /// Open this file.
    Open(PathBuf),
}

/// Shows the page.
pub fn welcome_ui(ui: &mut Ui, recent: &[PathBuf]) -> Option<Wish> {
    let mut wish = None;
    ui.with_layout(Layout::top_down(Align::Center), |ui| {
        ui.add_space((ui.available_height() * 0.22).max(20.0));
        ui.label(RichText::new("Highwater").font(FontId::proportional(38.0)).strong());
        ui.label(RichText::new("finds out where GPU memory goes").size(16.0).weak());
        ui.add_space(22.0);
        let open = ui.button(RichText::new("Open a recording…").size(16.0)).on_hover_text(Command::Open.tooltip());
        if open.clicked() {
            wish = Some(Wish::Ask);
        }
        let key = keys::shown(Command::Open.keys()[0]);
        ui.add_space(4.0);
        ui.label(RichText::new(format!("{key}, or drop a file here")).weak());
        ui.add_space(26.0);
        if recent.is_empty() {
            ui.label("No recording yet? Make one on the command line:");
            ui.add_space(4.0);
            ui.label(RichText::new("highwater record vit-l-16 --device meta --out step.snap").monospace());
        } else {
            ui.label(RichText::new("Recent").weak());
            for path in recent {
                let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
                if ui.link(RichText::new(name).size(14.5)).on_hover_text(path.display().to_string()).clicked() {
                    wish = Some(Wish::Open(path.clone()));
                }
            }
        }
    });
    wish
}

/// Shows a file on its way in; gives whether the user calls it off.
pub fn loading_ui(ui: &mut Ui, loading: &Loading) -> bool {
    let (stage, share) = loading.progress();
    ui.horizontal(|ui| {
        ui.spinner();
        ui.label(format!("{stage}: {}", file_name(loading.path())));
        ui.add(ProgressBar::new(share).desired_width(180.0));
        ui.button("Cancel").clicked()
    })
    .inner
}

/// Shows why a file could not be opened; gives whether the user has read it.
pub fn failure_ui(ui: &mut Ui, path: &Path, why: &str) -> bool {
    let shades = Shades::in_ui(ui);
    ui.horizontal_wrapped(|ui| {
        ui.label(RichText::new(format!("Cannot open {}:", file_name(path))).color(shades.warning).strong());
        ui.label(why);
        ui.button("Dismiss").clicked()
    })
    .inner
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}
