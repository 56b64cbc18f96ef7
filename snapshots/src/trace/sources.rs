//! The text of source files, stored in a recording so that it can be shown where the files are not available.

use std::sync::Arc;

use hashbrown::HashSet;
use serde::{Deserialize, Serialize};

use super::Trace;

/// The text of a source file, as it was when the recording was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceText {
    /// The path, as in stack frames.
    pub path: String,
    /// The text.
    pub text: String,
}

impl Trace {
    /// Adds the source files' texts of another recording, except for files that already have one.
    pub fn merge_sources(&mut self, sources: &Arc<Vec<SourceText>>) {
        if self.sources.is_empty() {
            self.sources = Arc::clone(sources);
            return;
        }
        let known: HashSet<&str> = self.sources.iter().map(|source| source.path.as_str()).collect();
        let new: Vec<_> = sources.iter().filter(|source| !known.contains(source.path.as_str())).cloned().collect();
        drop(known);
        if !new.is_empty() {
            Arc::make_mut(&mut self.sources).extend(new);
        }
    }

    /// The text of the source file at `path`, the first if there are several; `None` if it is not in the recording.
    pub fn source(&self, path: &str) -> Option<&str> {
        self.sources.iter().find(|source| source.path == path).map(|source| source.text.as_str())
    }
}
