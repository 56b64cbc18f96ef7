//! The file from which a binary's symbols were read, or the reason that no file was found.

use std::path::PathBuf;

/// The file from which symbols are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The path: the binary itself, a copy of it, or a debug file for it.
    pub path: PathBuf,
    /// Whether the file contains source files and line numbers in addition to names of functions.
    pub has_lines: bool,
    /// Whether the file's build id is the recorded one. A binary without a build id is assumed to be the recorded one
    /// if the file at its path has no build id either and has not changed since.
    pub is_certain: bool,
}

/// The reason no symbol file was found for a binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The file is neither at its recorded path nor in any searched folder.
    NotThere,
    /// The file has another build id, or no build id and was changed since the recording.
    Rebuilt,
    /// The file cannot be read as a binary.
    Unreadable,
}

/// No symbol file was found. Contains the reason and the paths that were tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The reason, as a kind.
    pub cause: Cause,
    /// The attempts and their results, as text.
    pub what: String,
}
