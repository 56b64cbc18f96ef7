//! Guards that set the current scope, op and category of a thread, and the phase and step of the whole program.

use std::marker::PhantomData;

use highwater_snapshots::{Category, OpId, Phase, ScopeId, StackId};

use crate::context::{self, Context, Entered};
use crate::level::{self, Level};
use crate::progress::{Change, Ending, EnteredPhase};
use crate::{hub, names, recording};

/// Restores the thread's previous context when dropped. Cannot be sent to another thread. Guards may be dropped in any
/// order, and the context is that of the last entered guard that still exists.
#[must_use = "the guard ends when it is dropped"]
#[derive(Debug)]
pub struct ContextGuard {
    entered: Entered,
    stays_on_its_thread: PhantomData<*const ()>,
}

impl ContextGuard {
    fn enter(change: impl FnOnce(&mut Context)) -> Self {
        let mut context = context::current();
        change(&mut context);
        Self { entered: context::enter(context), stays_on_its_thread: PhantomData }
    }
}

impl Drop for ContextGuard {
    fn drop(&mut self) {
        context::leave(self.entered);
    }
}

/// Enters a module. Allocations until the guard is dropped carry the path of all entered scopes, joined by dots.
pub fn scope(name: &str) -> ContextGuard {
    ContextGuard::enter(|context| context.scope = names::scope(context.scope, name))
}

/// Enters a scope by its id until the guard is dropped, for backward, which runs outside the calls of the modules.
pub fn enter_scope_id(scope: ScopeId) -> ContextGuard {
    ContextGuard::enter(|context| context.scope = scope)
}

/// Begins a forward operation, which lasts until the guard is dropped. It has no id if nothing is recorded.
pub fn op(name: &'static str) -> ContextGuard {
    ContextGuard::enter(|context| {
        context.op = OpId::NONE;
        if level::records_events() {
            let stack = if level::current() == Level::Stacks { context::stack() } else { StackId::NONE };
            context.op = hub::begin_op(hub::name(name), stack);
        }
    })
}

/// Makes `op` the current operation of this thread until the guard is dropped, for its backward or its recomputation.
pub fn resume_op(op: OpId) -> ContextGuard {
    ContextGuard::enter(|context| context.op = op)
}

/// Returns the current operation of this thread; [`OpId::NONE`] if there is none, or if it has no id.
pub fn current_op() -> OpId {
    context::current().op
}

/// Returns the current scope of this thread.
pub fn current_scope() -> ScopeId {
    context::current().scope
}

/// Sets the category of allocations on this thread until the guard is dropped.
pub fn category(category: Category) -> ContextGuard {
    ContextGuard::enter(|context| context.category = category)
}

/// Enters a phase of the step, for the whole program, until the guard is dropped. Meanwhile, [`phase_of_call`],
/// [`forward`], [`operation`] and [`allocation`] have no effect.
pub fn phase(phase: Phase) -> PhaseGuard {
    enter(phase, Ending::AtOnce)
}

/// Enters the phase of a call by an engine, such as an optimizer's step, until the guard is dropped. Returns `None`
/// inside another phase guard. The phase extends beyond the guard until the next phase begins or [memory is
/// allocated](allocation), so that frees right after a call belong to its phase.
pub fn phase_of_call(phase: Phase) -> Option<PhaseGuard> {
    // The lock must be released before the phase is entered.
    let is_marked = hub::lock().is_in_marked_phase();
    (!is_marked).then(|| enter(phase, Ending::Lingering))
}

fn enter(phase: Phase, ending: Ending) -> PhaseGuard {
    let entered = recording::advance(|progress| progress.enter(phase));
    PhaseGuard { phase, entered, ending }
}

/// Reports, from an engine, that forward is running. Ignored inside a phase guard. If the program does not number its
/// [steps](step), they are counted. The first begins with the first forward, and the next when forward or an
/// [`operation`] runs after phase optimizer or [`optimizer_ran`].
#[inline]
pub fn forward() {
    if hub::awaits_forward() {
        recording::advance(|progress| ((), progress.forward()));
    }
}

/// Reports, from an engine, that an operation runs on inputs that require no gradient. After phase optimizer or
/// [`optimizer_ran`], it begins the next of the counted steps. Ignored inside a phase guard.
#[inline]
pub fn operation() {
    if hub::awaits_operation() {
        recording::advance(|progress| ((), progress.operate()));
    }
}

/// Reports, from an engine, that memory is about to be allocated, which ends the phase of a [call](phase_of_call) that
/// has returned. Must not be called under an allocator's lock.
#[inline]
pub fn allocation() {
    if hub::awaits_allocation() {
        recording::advance(|progress| ((), progress.allocate()));
    }
}

/// Reports, from an engine, that parameters are updated outside phase optimizer, such as within backward.
pub fn optimizer_ran() {
    recording::advance(|progress| (progress.optimize(), Change::default()));
}

/// Ends its phase when dropped. Guards may be dropped in any order, and the phase is that of the last entered guard
/// that still exists.
#[must_use = "the phase ends when the guard is dropped"]
#[derive(Debug)]
pub struct PhaseGuard {
    phase: Phase,
    entered: EnteredPhase,
    ending: Ending,
}

impl Drop for PhaseGuard {
    fn drop(&mut self) {
        recording::advance(|progress| ((), progress.leave(self.phase, self.entered, self.ending)));
    }
}

/// Begins training step `number`, counted from 0, in phase `other`. Recordings of selected steps begin and end here.
/// From now on, the program numbers its steps, and they are not counted until [`leave_steps`] is called.
pub fn step(number: u32) {
    recording::advance(|progress| ((), progress.number(Some(number))));
}

/// Marks the end of training, after which events belong to no step, and to phase `setup` again.
pub fn leave_steps() {
    recording::advance(|progress| ((), progress.number(None)));
}
