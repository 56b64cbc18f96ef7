//! A set of changes to a training step: of code, of recomputed modules, of allocator settings.

use super::change::Change;

/// A set of changes to a training step. The default is to change nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Setup {
    /// The changes, apart from the following.
    pub changes: Vec<Change>,
    /// The paths of the recomputed modules; `None` for those that are recomputed already.
    pub recomputed: Option<Vec<String>>,
    /// Further settings of the allocator.
    pub settings: Option<String>,
}

impl Setup {
    /// Returns the number of changes, each recomputed module counted as one.
    pub fn size(&self) -> usize {
        self.changes.len() + self.recomputed.as_ref().map_or(0, Vec::len) + usize::from(self.settings.is_some())
    }
}
