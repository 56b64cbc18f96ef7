//! Guards that say what the thread is doing: scope, op, category; and for the whole program: phase and step.

use std::marker::PhantomData;

use highwater_snapshots::{Category, OpId, Phase, ScopeId, StackId};

use crate::context::{self, Context};
use crate::level::{self, Level};
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

/// Enters a phase of the step, for the whole program, until the guard drops.
pub fn phase(phase: Phase) -> PhaseGuard {
    let former = hub::lock().set_phase(phase);
    hub::sample();
    PhaseGuard { former }
}

/// Returns to the former phase when dropped.
#[must_use = "the phase ends when the guard is dropped"]
#[derive(Debug)]
pub struct PhaseGuard {
    former: Phase,
}

impl Drop for PhaseGuard {
    fn drop(&mut self) {
        hub::lock().set_phase(self.former);
        hub::sample();
    }
}

/// Begins training step `number`, from 0, in phase `other`. Recordings of chosen steps begin and end here.
pub fn step(number: u32) {
    recording::enter_step(Some(number));
}

/// Says that training is over: what follows belongs to no step, and to phase `setup` again.
pub fn leave_steps() {
    recording::enter_step(None);
}
