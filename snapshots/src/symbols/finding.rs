//! Which file a binary's symbols were read from, or why none.

use std::path::PathBuf;

/// The file that symbols are read from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// Where it is: the binary itself, a copy of it, or a debug file made for it.
    pub path: PathBuf,
    /// Whether it knows files and lines, not only the names of functions.
    pub has_lines: bool,
    /// Whether its build id is the recorded one. A binary without a build id is taken for the one that ran if the file
    /// at its path has none either: it may have been rebuilt since.
    pub is_certain: bool,
}

/// Why there is no file for a binary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// Nothing is where it was when it ran, nor in any folder that was searched.
    NotThere,
    /// What is there now has another build id.
    Rebuilt,
    /// What is there cannot be read as a binary.
    Unreadable,
}

/// No file, and what was tried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Why, in short.
    pub cause: Cause,
    /// What was tried, and what came of it.
    pub what: String,
}
