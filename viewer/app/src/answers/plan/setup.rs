//! A set of changes to a training step: of code, of recomputed modules, of allocator settings.

use super::change::Change;

/// A set of changes to a training step. The default is to change nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Setup {
    /// The changes, other than those below.
    pub changes: Vec<Change>,
    /// The paths of the modules to recompute; `None` for those that the program already recomputes.
    pub recomputed: Option<Vec<String>>,
    /// Allocator settings to add.
    pub settings: Option<String>,
}

impl Setup {
    /// Returns the number of changes, counting each recomputed module as one.
    pub fn size(&self) -> usize {
        self.changes.len() + self.recomputed.as_ref().map_or(0, Vec::len) + usize::from(self.settings.is_some())
    }
}
