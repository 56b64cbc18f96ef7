//! Reads and writes files: recordings, folders of ranks, and whatever is saved. The only module besides the app's own
//! dialogs and settings that touches files.

use std::path::Path;

pub mod failure;
pub mod destination;
pub mod preview;
pub mod fleet;
pub mod loader;
pub mod follow;
pub mod discard;

/// Whether `file` is `-`, which stands for standard input.
pub fn is_stdin(file: &Path) -> bool {
    file.as_os_str() == "-"
}
