//! Maps scopes to the selected modules that contain them.

use highwater_snapshots::scope_pattern::ScopePattern;
use highwater_snapshots::{ScopeId, Trace};

/// A set of modules, none inside another, and the scopes in each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// The modules, in table order.
    pub modules: Vec<ScopeId>,
    /// For each scope, the index of the module that contains the scope, or [`Self::NONE`].
    module_of: Vec<u32>,
}

impl Members {
    const NONE: u32 = u32::MAX;

    /// The modules of `trace` for which `is_chosen` is true, except those within another one.
    pub fn of(trace: &Trace, is_chosen: impl Fn(ScopeId) -> bool) -> Self {
        let scopes = &trace.tables.scopes;
        let mut members = Self { modules: Vec::new(), module_of: Vec::with_capacity(scopes.len()) };
        for (row, scope) in scopes.iter().enumerate() {
            let id = ScopeId::from_index(row);
            // Rows of parents precede those of their children.
            let around = scope.parent.index().and_then(|parent| members.module_of.get(parent)).copied();
            let module = match around.filter(|module| *module != Self::NONE) {
                Some(module) => module,
                None if is_chosen(id) => {
                    members.modules.push(id);
                    members.modules.len() as u32 - 1
                }
                None => Self::NONE,
            };
            members.module_of.push(module);
        }
        members
    }

    /// The modules of `trace` whose paths match one of `patterns`.
    pub fn matching(trace: &Trace, patterns: &[ScopePattern]) -> Self {
        Self::of(trace, |scope| {
            let path = trace.tables.scope_path(scope);
            patterns.iter().any(|pattern| pattern.matches(&path))
        })
    }

    /// Returns the index of the module that contains `scope`; `None` if there is none.
    pub fn module(&self, scope: ScopeId) -> Option<usize> {
        let module = scope.index().and_then(|row| self.module_of.get(row)).copied();
        module.filter(|module| *module != Self::NONE).map(|module| module as usize)
    }
}

/// Returns the paths of all modules with allocations in `trace`, and of the modules that contain them, in table order.
pub fn modules(trace: &Trace) -> Vec<(ScopeId, String)> {
    let mut is_used = vec![false; trace.tables.scopes.len()];
    for scope in &trace.blocks.scope {
        let mut next = *scope;
        while let Some(row) = next.index().filter(|row| is_used.get(*row) == Some(&false)) {
            is_used[row] = true;
            next = trace.tables.scopes[row].parent;
        }
    }
    let used = is_used.into_iter().enumerate().filter(|(_, is_used)| *is_used);
    used.map(|(row, _)| ScopeId::from_index(row)).map(|scope| (scope, trace.tables.scope_path(scope))).collect()
}
