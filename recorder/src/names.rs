//! Interned strings and scopes of the whole process, so that recording a scope means storing a number.
//!
//! Each thread caches the names that it has used, so only a name that is new to a thread needs a lock.

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use highwater_snapshots::intern::Interner;
use highwater_snapshots::tables::Scope;
use highwater_snapshots::{ScopeId, StringId};

use crate::reentrancy;

/// All names that any guard has used. Ids are valid for the life of the process. Each recording assigns its own ids.
#[derive(Debug, Default)]
pub(crate) struct Names {
    strings: Interner<String>,
    scopes: Interner<Scope>,
}

static NAMES: Mutex<Option<Names>> = Mutex::new(None);

/// Maximum number of names, and of scopes, in the process. Further names, such as those made from a counter, get no id,
/// and further scopes get that of their parent.
const MAX_NAMES: usize = 1 << 20;

/// Maximum number of names, and of scopes, in a thread's cache. Each kind is cleared when it is full.
const MAX_REMEMBERED: usize = 4096;

#[derive(Default)]
struct Remembered {
    strings: HashMap<Box<str>, StringId>,
    /// The id of each scope, by parent and then by name.
    scopes: HashMap<ScopeId, HashMap<Box<str>, ScopeId>>,
    scope_count: usize,
}

thread_local! {
    static REMEMBERED: RefCell<Remembered> = RefCell::default();
}

/// Runs `read` with the names locked. No other lock may be taken inside.
pub(crate) fn with<R>(read: impl FnOnce(&mut Names) -> R) -> R {
    let mut names: MutexGuard<'_, Option<Names>> = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    read(names.get_or_insert_default())
}

/// Runs `read` with the thread's cache. Returns `None` while the thread ends, or inside another call.
fn remembered<R>(read: impl FnOnce(&mut Remembered) -> R) -> Option<R> {
    REMEMBERED
        .try_with(|remembered| remembered.try_borrow_mut().ok().map(|mut remembered| read(&mut remembered)))
        .ok()?
}

pub(crate) fn string(text: &str) -> StringId {
    let _guard = reentrancy::enter();
    let known = remembered(|remembered| {
        if let Some(&known) = remembered.strings.get(text) {
            return known;
        }
        let id = with(|names| names.string(text));
        if remembered.strings.len() >= MAX_REMEMBERED {
            remembered.strings.clear();
        }
        remembered.strings.insert(text.into(), id);
        id
    });
    known.unwrap_or_else(|| with(|names| names.string(text)))
}

pub(crate) fn scope(parent: ScopeId, name: &str) -> ScopeId {
    let _guard = reentrancy::enter();
    let known = remembered(|remembered| {
        if let Some(&known) = remembered.scopes.get(&parent).and_then(|within| within.get(name)) {
            return known;
        }
        let id = with(|names| names.scope(parent, name));
        if remembered.scope_count >= MAX_REMEMBERED {
            remembered.scopes.clear();
            remembered.scope_count = 0;
        }
        remembered.scopes.entry(parent).or_default().insert(name.into(), id);
        remembered.scope_count += 1;
        id
    });
    known.unwrap_or_else(|| with(|names| names.scope(parent, name)))
}

impl Names {
    fn string(&mut self, text: &str) -> StringId {
        match self.strings.position(text) {
            Some(position) => StringId(position),
            None if self.strings.rows().len() >= MAX_NAMES => StringId::NONE,
            None => StringId(self.strings.intern(text.to_owned())),
        }
    }

    fn scope(&mut self, parent: ScopeId, name: &str) -> ScopeId {
        let name = self.string(name);
        let scope = Scope { parent, name };
        if !name.is_some() || self.scopes.rows().len() >= MAX_NAMES {
            return self.scopes.position(&scope).map_or(parent, ScopeId);
        }
        ScopeId(self.scopes.intern(scope))
    }

    pub(crate) fn text(&self, id: StringId) -> &str {
        id.index().and_then(|index| self.strings.rows().get(index)).map_or("", String::as_str)
    }

    pub(crate) fn scope_row(&self, id: ScopeId) -> Option<Scope> {
        self.scopes.rows().get(id.index()?).copied()
    }
}
