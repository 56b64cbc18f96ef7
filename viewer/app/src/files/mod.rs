//! Reads and writes files: recordings, folders of ranks, and saved tables and pictures. Apart from the app's dialogs
//! and settings, this is the only module that accesses files.

use std::path::Path;

pub mod failure;
pub mod destination;
#[cfg(not(target_family = "wasm"))]
pub mod output;
#[cfg(target_family = "wasm")]
#[path = "output_web.rs"]
pub mod output;
pub mod preview;
pub mod growing;
pub mod fleet;
#[cfg(not(target_family = "wasm"))]
pub mod computed_cache;
pub mod loader;
pub mod follow;
#[cfg(not(target_family = "wasm"))]
pub mod discard;
#[cfg(target_family = "wasm")]
#[path = "discard_web.rs"]
pub mod discard;

/// Whether files and folders can be opened by path. In browsers, dialogs, drag and drop and servers provide files.
pub const HAS_PATHS: bool = !cfg!(target_family = "wasm");

/// Whether `file` is `-`, which stands for standard input.
pub fn is_stdin(file: &Path) -> bool {
    file.as_os_str() == "-"
}

/// The name of `file` without its folders. The whole path if it has no name, such as `..`.
pub fn file_name(file: &Path) -> String {
    file.file_name().unwrap_or(file.as_os_str()).to_string_lossy().into_owned()
}

/// Returns the name of the recording in `file`, which is the file name, or `standard input` for `-`.
pub fn recording_name(file: &Path) -> String {
    if is_stdin(file) { "standard input".to_owned() } else { file_name(file) }
}
