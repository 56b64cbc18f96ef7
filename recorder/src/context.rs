//! The current thread's context (scope, operation and category, as set by guards) and its call stack.

use std::cell::{Cell, RefCell};

use highwater_snapshots::{Category, OpId, ScopeId, StackId};

use crate::reentrancy;
use crate::stack;

/// The context recorded with an allocation made now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// Current scope, a path of module names.
    pub scope: ScopeId,
    /// Current operation, or the operation whose backward or recomputation is running.
    pub op: OpId,
    /// Category of allocations.
    pub category: Category,
}

impl Context {
    /// A context without scope, operation and category.
    pub const NOTHING: Self = Self { scope: ScopeId::NONE, op: OpId::NONE, category: Category::Unknown };
}

thread_local! {
    static CURRENT: Cell<Context> = const { Cell::new(Context::NOTHING) };
    /// Number of entered contexts that were not left, and of those in `LEFT_EARLY`.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
    /// Contexts that were left before contexts entered within them, each with the context to which it returns.
    static LEFT_EARLY: RefCell<Vec<Entered>> = const { RefCell::new(Vec::new()) };
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Entered {
    depth: u32,
    former: Context,
}

/// Returns the current thread's context, or [`Context::NOTHING`] while the thread ends.
#[inline]
pub fn current() -> Context {
    CURRENT.try_with(Cell::get).unwrap_or(Context::NOTHING)
}

#[inline]
pub(crate) fn enter(context: Context) -> Entered {
    let former = CURRENT.try_with(|current| current.replace(context)).unwrap_or(Context::NOTHING);
    let depth = DEPTH.try_with(|depth| depth.replace(depth.get().wrapping_add(1))).unwrap_or(0);
    Entered { depth: depth.wrapping_add(1), former }
}

/// Leaves a context. If contexts were entered within it and not left, the innermost of them stays current. When all of
/// them are left, the thread returns to the context that was current before.
#[inline]
pub(crate) fn leave(entered: Entered) {
    if DEPTH.try_with(Cell::get).is_ok_and(|depth| depth == entered.depth) {
        return_to(entered);
    } else {
        let _own = reentrancy::own_memory();
        // Fails only while the thread ends.
        let _ = LEFT_EARLY.try_with(|left| left.borrow_mut().push(entered));
    }
}

/// Returns to the context outside of `entered`, which must be the innermost. Skips surrounding contexts that were left
/// earlier.
#[inline]
fn return_to(mut entered: Entered) {
    let _ = LEFT_EARLY.try_with(|left| {
        let mut left = left.borrow_mut();
        while let Some(at) = left.iter().position(|outer| outer.depth.wrapping_add(1) == entered.depth) {
            entered = left.swap_remove(at);
        }
    });
    let _ = CURRENT.try_with(|current| current.set(entered.former));
    let _ = DEPTH.try_with(|depth| depth.set(entered.depth.wrapping_sub(1)));
}

/// Captures the current thread's stack, as the index of its node in the process-wide depot.
#[inline]
pub(crate) fn stack() -> StackId {
    stack::capture().index().map_or(StackId::NONE, StackId::from_index)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn category() -> Category {
        current().category
    }

    #[test]
    fn contexts_that_are_left_in_any_order_return_to_the_one_outside_of_all() {
        let of = |category| Context { category, ..Context::NOTHING };
        let all = [Category::Parameter, Category::Buffer, Category::Gradient, Category::Input];
        for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 0, 3, 2], [2, 1, 0, 3], [0, 3, 1, 2]] {
            let entered = all.map(|category| enter(of(category)));
            let mut is_left = [false; 4];
            for index in order {
                leave(entered[index]);
                is_left[index] = true;
                let innermost = (0..4).rev().find(|index| !is_left[*index]);
                assert_eq!(category(), innermost.map_or(Category::Unknown, |index| all[index]), "{order:?}");
            }
            let again = enter(of(Category::Workspace));
            leave(again);
            assert_eq!(current(), Context::NOTHING, "{order:?}");
        }
    }
}
