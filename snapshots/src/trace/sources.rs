//! The text of source files, which a recording may have, so that it is shown where the files are not available.

use std::sync::Arc;

use hashbrown::HashSet;
use serde::{Deserialize, Serialize};

use super::Trace;

/// The text of a source file, as it was when the recording was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceText {
    /// Its path, as in the frames of stacks.
    pub path: String,
    /// Its text.
    pub text: String,
}

impl Trace {
    /// Adds the texts of source files that another recording has, but for those of files that are known.
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

    /// The text of the source file at `path`, the first if there are several; `None` if the recording does not have it.
    pub fn source(&self, path: &str) -> Option<&str> {
        self.sources.iter().find(|source| source.path == path).map(|source| source.text.as_str())
    }
}
