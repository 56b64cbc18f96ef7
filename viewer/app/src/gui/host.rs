//! Services that the app needs from the desktop. In browsers, `host_web.rs` replaces this file.

use std::path::{Path, PathBuf};

use eframe::egui;

/// The paths of the files dropped since the last frame.
pub(super) fn dropped_paths(ctx: &egui::Context) -> Vec<PathBuf> {
    ctx.input(|input| input.raw.dropped_files.iter().map(|file| file.path().to_owned()).collect())
}

/// Returns false: a window is not part of an editor that can open source files.
pub(super) fn has_editor() -> bool {
    false
}

/// Does nothing, since there is no editor.
pub(super) fn open_line(_file: &str, _line: u32) {}

/// Does nothing, since a window has no URL.
pub(super) fn show_link(_text: &str) {}

/// Does nothing, since a window has no server.
pub(super) fn open_served(_path: &Path) {}

/// Does nothing, since a window has no server.
pub(super) fn stop_served(_path: &Path) {}

/// Does nothing, since windows use the system's clipboard.
pub(super) fn copy_texts(_ctx: &egui::Context) {}
