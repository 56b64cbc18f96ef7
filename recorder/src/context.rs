//! What the current thread is doing: scope, op and category, as set by guards, and its call stack.

use std::cell::Cell;

use highwater_snapshots::{Category, OpId, ScopeId, StackId};

use crate::stack;

/// The context that an allocation made now is recorded with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// Module path.
    pub scope: ScopeId,
    /// Current operation, or the operation whose backward runs.
    pub op: OpId,
    /// Category of allocations.
    pub category: Category,
}

impl Context {
    /// The empty context.
    pub const NOTHING: Self = Self { scope: ScopeId::NONE, op: OpId::NONE, category: Category::Unknown };
}

thread_local! {
    static CURRENT: Cell<Context> = const { Cell::new(Context::NOTHING) };
}

/// Returns the current thread's context; [`Context::NOTHING`] while the thread ends.
#[inline]
pub fn current() -> Context {
    CURRENT.try_with(Cell::get).unwrap_or(Context::NOTHING)
}

/// Replaces the current thread's context and returns the previous one.
#[inline]
pub(crate) fn replace(context: Context) -> Context {
    CURRENT.try_with(|current| current.replace(context)).unwrap_or(Context::NOTHING)
}

/// Captures the current thread's stack, as the index of its node in the process-wide depot.
#[inline]
pub(crate) fn stack() -> StackId {
    stack::capture().index().map_or(StackId::NONE, StackId::from_index)
}
