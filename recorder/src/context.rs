//! Context: what the running thread is doing: scope, op and category, as its guards said; and its stack.

use std::cell::Cell;

use highwater_snapshots::{Category, OpId, ScopeId, StackId};

use crate::stack;

/// What an allocation made now would be recorded with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// The module path.
    pub scope: ScopeId,
    /// The operation, or the operation whose backward runs.
    pub op: OpId,
    /// What allocations are for.
    pub category: Category,
}

impl Context {
    /// Nothing is known.
    pub const NOTHING: Self = Self { scope: ScopeId::NONE, op: OpId::NONE, category: Category::Unknown };
}

thread_local! {
    static CURRENT: Cell<Context> = const { Cell::new(Context::NOTHING) };
}

/// The running thread's context; nothing while the thread ends.
#[inline]
pub fn current() -> Context {
    CURRENT.try_with(Cell::get).unwrap_or(Context::NOTHING)
}

/// Replaces the running thread's context and gives the former one.
#[inline]
pub(crate) fn replace(context: Context) -> Context {
    CURRENT.try_with(|current| current.replace(context)).unwrap_or(Context::NOTHING)
}

/// The running thread's stack, as the position of its node in the process-wide depot.
#[inline]
pub(crate) fn stack() -> StackId {
    stack::capture().index().map_or(StackId::NONE, StackId::from_index)
}
