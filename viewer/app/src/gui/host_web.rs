//! Services that the web page provides to the app.

use std::path::{Path, PathBuf};

use eframe::egui::{self, OutputCommand};
use wasm_bindgen::prelude::wasm_bindgen;

#[wasm_bindgen]
extern "C" {
    /// Reads the file and opens it in the app.
    #[wasm_bindgen(js_namespace = highwater)]
    fn open_file(file: &web_sys::File);

    /// Copies the text if the browser provides no clipboard.
    #[wasm_bindgen(js_namespace = highwater)]
    fn copy(text: &str);

    /// Whether the page is in an editor that opens lines of source code.
    #[wasm_bindgen(js_namespace = highwater, js_name = has_editor)]
    fn is_in_editor() -> bool;

    #[wasm_bindgen(js_namespace = highwater, js_name = open_line)]
    fn open_in_editor(file: &str, line: u32);

    /// Starts following the recording at this path on the page's server.
    #[wasm_bindgen(js_namespace = highwater)]
    fn follow_served(path: &str);

    #[wasm_bindgen(js_namespace = highwater)]
    fn leave_served(path: &str);

    #[wasm_bindgen(js_namespace = highwater)]
    fn show_fragment(text: &str);
}

/// Passes dropped files to the page, which reads them and passes their contents to the app. Returns no paths.
pub(super) fn dropped_paths(ctx: &egui::Context) -> Vec<PathBuf> {
    let dropped = ctx.input(|input| input.raw.dropped_files.clone());
    dropped.iter().filter_map(|file| file.web_file()).for_each(open_file);
    Vec::new()
}

pub(super) fn has_editor() -> bool {
    is_in_editor()
}

pub(super) fn open_line(file: &str, line: u32) {
    open_in_editor(file, line);
}

/// Starts following a recording on the page's server, which from now on sends its bytes.
pub(super) fn open_served(path: &Path) {
    follow_served(&path.to_string_lossy());
}

pub(super) fn stop_served(path: &Path) {
    leave_served(&path.to_string_lossy());
}

pub(super) fn show_link(text: &str) {
    show_fragment(text);
}

/// Copies the texts that were copied in this frame, if the browser provides no clipboard.
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
