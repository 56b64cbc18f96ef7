//! Guards that say what the thread is doing: scope, op, category; and for the whole program: phase and step.

use std::marker::PhantomData;

use highwater_snapshots::{Category, OpId, Phase, ScopeId, StackId};

use crate::context::{self, Context};
use crate::level::{self, Level};
use crate::progress::{Change, Ending};
use crate::{hub, names, recording};

/// Restores the thread's former context when dropped. Stays on its thread.
#[must_use = "the guard ends when it is dropped"]
#[derive(Debug)]
pub struct ContextGuard {
    former: Context,
    stays_on_its_thread: PhantomData<*const ()>,
}

impl ContextGuard {
    fn enter(change: impl FnOnce(&mut Context)) -> Self {
        let mut context = context::current();
        change(&mut context);
        Self { former: context::replace(context), stays_on_its_thread: PhantomData }
    }
}

impl Drop for ContextGuard {
    fn drop(&mut self) {
        context::replace(self.former);
    }
}

/// Enters a module: allocations until the guard drops carry the path of all entered scopes, joined by dots.
pub fn scope(name: &str) -> ContextGuard {
    ContextGuard::enter(|context| context.scope = names::scope(context.scope, name))
}

/// Enters a scope by its id: for backward, which runs outside the modules' calls.
pub fn scope_again(scope: ScopeId) -> ContextGuard {
    ContextGuard::enter(|context| context.scope = scope)
}

/// Begins a new forward operation and numbers it; read the number with [`current_op`]. Not numbered while nothing
/// is recorded.
pub fn op(name: &'static str) -> ContextGuard {
    ContextGuard::enter(|context| {
        context.op = OpId::NONE;
        if level::records_events() {
            let stack = if level::current() == Level::Stacks { context::stack() } else { StackId::NONE };
            context.op = hub::begin_op(hub::name(name), stack);
        }
    })
}

/// Continues operation `op`: its backward, or its recomputation.
pub fn op_again(op: OpId) -> ContextGuard {
    ContextGuard::enter(|context| context.op = op)
}

/// The operation that runs on this thread; none while nothing is recorded.
pub fn current_op() -> OpId {
    context::current().op
}

/// The scope that the thread is in.
pub fn current_scope() -> ScopeId {
    context::current().scope
}

/// Says what allocations on this thread are for.
pub fn category(category: Category) -> ContextGuard {
    ContextGuard::enter(|context| context.category = category)
}

/// Enters a phase of the step, for the whole program, until the guard drops. What an engine reports by
/// [`phase_of_call`] or [`forward`] changes nothing meanwhile.
pub fn phase(phase: Phase) -> PhaseGuard {
    enter(phase, Ending::AtOnce)
}

/// For engines: enters the phase of a call, such as an optimizer's step, until the guard drops; none if the program is in
/// a phase that it marked. The phase lasts beyond the guard until the next begins, or [memory is allocated](allocation):
/// what a program frees right after a call belongs to it.
pub fn phase_of_call(phase: Phase) -> Option<PhaseGuard> {
    // The lock is free again before the phase is entered.
    let is_marked = hub::lock().is_in_marked_phase();
    (!is_marked).then(|| enter(phase, Ending::Lingering))
}

fn enter(phase: Phase, ending: Ending) -> PhaseGuard {
    let former = recording::advance(|progress| progress.enter(phase));
    PhaseGuard { phase, former, ending }
}

/// For engines: reports that forward runs, unless the program has marked a phase. Where the program does not number its
/// [steps](step), they are counted: the first begins with the first forward, the next where forward runs again after
/// phase optimizer or [`optimizer_ran`].
#[inline]
pub fn forward() {
    if hub::awaits_forward() {
        recording::advance(|progress| ((), progress.forward()));
    }
}

/// For engines: reports that memory is about to be allocated, which ends the phase of a [call](phase_of_call) that has
/// returned. Not under an allocator's lock.
#[inline]
pub fn allocation() {
    if hub::awaits_allocation() {
        recording::advance(|progress| ((), progress.allocate()));
    }
}

/// For engines: reports that parameters change outside of phase optimizer, such as within backward.
pub fn optimizer_ran() {
    recording::advance(|progress| (progress.optimize(), Change::default()));
}

/// Returns to the former phase when dropped.
#[must_use = "the phase ends when the guard is dropped"]
#[derive(Debug)]
pub struct PhaseGuard {
    phase: Phase,
    former: Option<Phase>,
    ending: Ending,
}

impl Drop for PhaseGuard {
    fn drop(&mut self) {
        recording::advance(|progress| ((), progress.leave(self.phase, self.former, self.ending)));
    }
}

/// Begins training step `number`, from 0, in phase `other`. Recordings of chosen steps begin and end here. From now on
/// the program numbers its steps: they are not counted, until it [leaves them](leave_steps).
pub fn step(number: u32) {
    recording::advance(|progress| ((), progress.number(Some(number))));
}

/// Says that training is over: what follows belongs to no step, and to phase `setup` again.
pub fn leave_steps() {
    recording::advance(|progress| ((), progress.number(None)));
}
