//! What the app needs from the page around it.

use std::path::{Path, PathBuf};

use eframe::egui::{self, OutputCommand};
use wasm_bindgen::prelude::wasm_bindgen;

#[wasm_bindgen]
extern "C" {
    /// Reads the file, and opens it.
    #[wasm_bindgen(js_namespace = highwater)]
    fn open_file(file: &web_sys::File);

    /// Copies the text where the browser has no clipboard.
    #[wasm_bindgen(js_namespace = highwater)]
    fn copy(text: &str);

    /// Whether the page is in an editor that opens lines of source code.
    #[wasm_bindgen(js_namespace = highwater, js_name = has_editor)]
    fn is_in_editor() -> bool;

    /// Opens the line in that editor.
    #[wasm_bindgen(js_namespace = highwater, js_name = open_line)]
    fn open_in_editor(file: &str, line: u32);

    /// Follows the recording at this address of the page's server.
    #[wasm_bindgen(js_namespace = highwater)]
    fn follow_served(path: &str);

    /// Follows it no more.
    #[wasm_bindgen(js_namespace = highwater)]
    fn leave_served(path: &str);

    /// Replaces the fragment of the page's address.
    #[wasm_bindgen(js_namespace = highwater)]
    fn show_fragment(text: &str);
}

/// No paths: the page reads the files dropped since the last frame, which then arrive.
pub(super) fn dropped_paths(ctx: &egui::Context) -> Vec<PathBuf> {
    let dropped = ctx.input(|input| input.raw.dropped_files.clone());
    dropped.iter().filter_map(|file| file.web_file()).for_each(open_file);
    Vec::new()
}

/// Whether an editor around the app opens lines of source code.
pub(super) fn has_editor() -> bool {
    is_in_editor()
}

/// Opens the line in the editor, if there is one.
pub(super) fn open_line(file: &str, line: u32) {
    open_in_editor(file, line);
}

/// Follows a recording of the page's server, whose bytes then arrive.
pub(super) fn open_served(path: &Path) {
    follow_served(&path.to_string_lossy());
}

/// Follows it no more.
pub(super) fn stop_served(path: &Path) {
    leave_served(&path.to_string_lossy());
}

/// Shows what is looked at in the page's address.
pub(super) fn show_link(text: &str) {
    show_fragment(text);
}

/// Copies the texts that this frame copies, where the browser offers no clipboard.
pub(super) fn copy_texts(ctx: &egui::Context) {
    if web_sys::window().is_some_and(|window| window.is_secure_context()) {
        return;
    }
    ctx.output_mut(|output| {
        output.commands.retain(|command| match command {
            OutputCommand::CopyText(text) => {
                copy(text);
                false
            }
            _ => true,
        });
    });
}
