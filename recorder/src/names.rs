//! Names: strings and scopes of the whole process, interned, so that a scope is a number while it matters.

use std::sync::{Mutex, MutexGuard, PoisonError};

use highwater_snapshots::intern::Interner;
use highwater_snapshots::tables::Scope;
use highwater_snapshots::{ScopeId, StringId};

/// Every name that any guard has used so far. Ids hold for the life of the process; a recording numbers its own anew.
#[derive(Debug, Default)]
pub(crate) struct Names {
    strings: Interner<String>,
    scopes: Interner<Scope>,
}

static NAMES: Mutex<Option<Names>> = Mutex::new(None);

/// Runs `read` with the names locked. A leaf: nothing else is locked meanwhile.
pub(crate) fn with<R>(read: impl FnOnce(&mut Names) -> R) -> R {
    let mut names: MutexGuard<'_, Option<Names>> = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    read(names.get_or_insert_default())
}

impl Names {
    /// The id of `text`.
    pub(crate) fn string(&mut self, text: &str) -> StringId {
        match self.strings.position(text) {
            Some(position) => StringId(position),
            None => StringId(self.strings.intern(text.to_owned())),
        }
    }

    /// The id of the scope `name` within `parent`.
    pub(crate) fn scope(&mut self, parent: ScopeId, name: &str) -> ScopeId {
        let name = self.string(name);
        ScopeId(self.scopes.intern(Scope { parent, name }))
    }

    /// The text of `id`.
    pub(crate) fn text(&self, id: StringId) -> &str {
        id.index().and_then(|index| self.strings.rows().get(index)).map_or("", String::as_str)
    }

    /// The row of `id`.
    pub(crate) fn scope_row(&self, id: ScopeId) -> Option<Scope> {
        self.scopes.rows().get(id.index()?).copied()
    }
}
