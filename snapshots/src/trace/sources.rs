//! The text of source files, stored in a recording so that it can be shown where the files are unavailable.

use serde::{Deserialize, Serialize};

use super::Trace;

/// The text of a source file at the time of the recording.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceText {
    /// The path, as in stack frames.
    pub path: String,
    /// The complete text of the file.
    pub text: String,
}

impl Trace {
    /// The text of the source file at `path`, the first if there are several; `None` if it is not in the recording.
    pub fn source(&self, path: &str) -> Option<&str> {
        self.sources.iter().find(|source| source.path == path).map(|source| source.text.as_str())
    }
}
