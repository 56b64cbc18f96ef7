//! Applies the effect of a call to the ledger and reports it to the recorder, in one step, so that events of several
//! threads are in the order of the ledger.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{MutexGuard, PoisonError};

use highwater_recorder::api::{self, NewBlock};
use highwater_recorder::{ScopeId, context, scope};

use crate::abi::{Answer, Function, OUT_OF_MEMORY, SUCCESS};
use crate::devices::{self, LEDGER, Owner};
use crate::driver::Driver;
use crate::guard;
use crate::ledger::{Allocation, Change, Ledger, Name, New, SendChange};
use crate::session;

#[derive(Clone, Copy, Debug)]
pub(crate) enum MemoryOwner {
    /// The device of the thread's context.
    Current,
    /// The device of the returned address.
    OfAddress,
    Device(i32),
    Pinned,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// Scope of the block in recordings, which is the documented name of the function.
    pub(crate) called: &'static str,
    pub(crate) whose: MemoryOwner,
    pub(crate) bytes: u64,
    /// Handle of the stream; 0 for the default stream.
    pub(crate) stream: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    pub(crate) function: Function,
    pub(crate) answer: Answer,
}

fn lock() -> MutexGuard<'static, Ledger> {
    LEDGER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `body` and catches panics, so that errors of the recorder do not reach the program.
fn quietly<T>(body: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(body)).ok()
}

fn send(change: Change) {
    match change {
        Change::Begins(allocation) => {
            let _scope = scope::enter_scope_id(allocation.scope);
            if allocation.is_pages {
                api::map(allocation.device, allocation.range());
            } else {
                api::reserve(allocation.device, allocation.range());
            }
            let Allocation { block, address, bytes, stream, .. } = allocation;
            let new = NewBlock { block, address, requested: bytes, allocated: bytes, stream, pool: allocation.pool() };
            api::alloc(allocation.device, &new);
        }
        Change::Ends(allocation) => {
            api::free_requested(allocation.device, allocation.block);
            api::free_completed(allocation.device, allocation.block);
            if allocation.is_pages {
                api::unmap(allocation.device, allocation.range());
            } else {
                api::release(allocation.device, allocation.range());
            }
        }
    }
}

fn scope_of(called: &str) -> ScopeId {
    let _scope = scope::scope(called);
    context::current().scope
}

/// The program's reference to its new memory.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Got {
    Block(Name),
    /// A handle of memory without addresses.
    Pages(u64),
}

/// Records the result of a call that requests memory. `got` returns the allocation, if the call succeeded.
pub(crate) fn asked(answered: Answered, request: Request, got: impl FnOnce() -> Got) -> Answer {
    let Answered { function, answer } = answered;
    let got = match answer {
        SUCCESS => Some(got()),
        OUT_OF_MEMORY => None,
        _ => return answer,
    };
    quietly(|| {
        session::begin_once();
        let driver = Driver::of(function);
        let of_address = match (request.whose, got) {
            (MemoryOwner::OfAddress, Some(Got::Block(Name::Address(address)))) => driver.device_of(address),
            _ => None,
        };
        let owner = match request.whose {
            MemoryOwner::Pinned => Owner::Pinned,
            MemoryOwner::Device(device) => Owner::Device(device),
            // A call that succeeds although the thread has no context is assumed to be for the first device.
            MemoryOwner::Current | MemoryOwner::OfAddress => {
                Owner::Device(of_address.or_else(|| driver.current_device()).unwrap_or(0))
            }
        };
        let device = devices::registered(owner, driver);
        let Some(got) = got else {
            let free = match owner {
                Owner::Pinned => None,
                Owner::Device(_) => device.sample(driver, true),
            };
            let _scope = scope::scope(request.called);
            let stream = (owner != Owner::Pinned).then(|| lock().streams.number(request.stream, guard::thread()));
            return api::oom(device.id(), stream, request.bytes, free.unwrap_or(0));
        };
        let (scope, context) = (scope_of(request.called), driver.current_context());
        {
            let mut ledger = lock();
            let stream = ledger.streams.number(request.stream, guard::thread());
            let new = New { device: device.id(), bytes: request.bytes, stream, scope, context };
            match got {
                Got::Block(name) => ledger.add(name, new, &mut send),
                Got::Pages(handle) => ledger.create(handle, new, &mut send),
            }
        }
        sample(driver);
    });
    answer
}

/// Frees memory by `call`. The memory is recorded as freed before the call, since another thread may allocate it as
/// soon as it is free. It is recorded as allocated again if the driver refuses.
pub(crate) fn frees(name: Name, call: impl FnOnce() -> Answered) -> Answer {
    let taken = quietly(|| lock().take(name, &mut send)).flatten();
    given_back(call(), taken, |ledger, allocation| ledger.put_back(name, allocation, &mut send))
}

/// Releases a handle of memory by `call`, like [`frees`].
pub(crate) fn releases(handle: u64, call: impl FnOnce() -> Answered) -> Answer {
    let released = quietly(|| lock().release(handle, &mut send)).flatten();
    given_back(call(), released, |ledger, released| ledger.undo_release(released, &mut send))
}

fn given_back<T>(answered: Answered, taken: Option<T>, undo: impl FnOnce(&mut Ledger, T)) -> Answer {
    if let Some(taken) = taken {
        quietly(|| {
            if answered.answer == SUCCESS {
                sample(Driver::of(answered.function));
            } else {
                undo(&mut lock(), taken);
            }
        });
    }
    answered.answer
}

/// Applies the effect of a successful call on pages to the ledger.
pub(crate) fn done(answered: Answered, change: impl FnOnce(&mut Ledger, SendChange<'_>)) -> Answer {
    if answered.answer == SUCCESS {
        quietly(|| {
            change(&mut lock(), &mut send);
            sample(Driver::of(answered.function));
        });
    }
    answered.answer
}

pub(crate) fn context_ended(context: u64) {
    quietly(|| lock().end_context(context, &mut send));
}

/// Samples the memory in use on the device of the thread's context, if the program has allocated there and a sample is
/// due.
fn sample(driver: &Driver) {
    if api::is_recording()
        && let Some(device) = driver.current_device()
        && let Some(known) = devices::seen(Owner::Device(device))
    {
        known.sample(driver, false);
    }
}
