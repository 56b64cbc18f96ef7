//! The file that a binary's symbols were read from, or the reason why there is none.

use std::path::PathBuf;

/// The file that symbols are read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The path: the binary itself, a copy of it, or a debug file for it.
    pub path: PathBuf,
    /// Whether it contains source files and line numbers, not only names of functions.
    pub has_lines: bool,
    /// Whether its build id is the recorded one. A binary without a build id is assumed to be the one that ran if the
    /// file at its path has none either and has not changed since.
    pub is_certain: bool,
}

/// The reason why no symbol file was found for a binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The file is neither at its recorded path nor in any searched folder.
    NotThere,
    /// The file has another build id, or has none and was changed since the recording.
    Rebuilt,
    /// The file cannot be read as a binary.
    Unreadable,
}

/// No symbol file was found: the reason, and the places that were tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// The reason, as a kind.
    pub cause: Cause,
    /// The attempts and their results, as text.
    pub what: String,
}
