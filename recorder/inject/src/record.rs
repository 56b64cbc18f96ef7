//! Record: what a call did is entered into the ledger and told to the recorder, in one step, so that events of several
//! threads come in the order of the ledger.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{MutexGuard, PoisonError};

use highwater_recorder::api::{self, NewBlock};
use highwater_recorder::{ScopeId, context, scope};

use crate::abi::{Answer, Function, OUT_OF_MEMORY, SUCCESS};
use crate::devices::{self, LEDGER, Owner};
use crate::driver::Driver;
use crate::guard;
use crate::ledger::{Change, Held, Ledger, Name, New, Released};
use crate::session;

/// Whose memory a call asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Whose {
    /// The device's of the thread's context.
    Current,
    /// The device's that the address turns out to be of.
    OfAddress,
    /// The device's of this number.
    Device(i32),
    /// The host's.
    Pinned,
}

/// A call that asks for memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// What stands in recordings as the scope of the block: the function, as its documentation calls it.
    pub(crate) called: &'static str,
    pub(crate) whose: Whose,
    pub(crate) bytes: u64,
    /// The stream's handle; 0 for the default stream.
    pub(crate) stream: u64,
}

/// A call of the driver, answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answered {
    /// The driver's function.
    pub(crate) function: Function,
    pub(crate) answer: Answer,
}

fn lock() -> MutexGuard<'static, Ledger> {
    LEDGER.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whatever goes wrong in the recorder stays there.
fn quietly<T>(body: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(body)).ok()
}

fn tell(change: Change) {
    match change {
        Change::Begins(held) => {
            let _scope = scope::scope_again(held.scope);
            if held.is_pages {
                api::map(held.device, held.range());
            } else {
                api::reserve(held.device, held.range());
            }
            let alloc = held.alloc();
            let new = NewBlock {
                block: alloc.block,
                address: alloc.address,
                requested: alloc.requested,
                allocated: alloc.allocated,
                stream: alloc.stream,
                pool: alloc.pool,
            };
            api::alloc(held.device, &new);
        }
        Change::Ends(held) => {
            api::free_requested(held.device, held.block);
            api::free_completed(held.device, held.block);
            if held.is_pages { api::unmap(held.device, held.range()) } else { api::release(held.device, held.range()) }
        }
    }
}

fn scope_of(called: &str) -> ScopeId {
    let _scope = scope::scope(called);
    context::current().scope
}

/// What the program knows its new memory by.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Got {
    /// Memory with an address, or an array.
    Block(Name),
    /// The handle of memory without addresses.
    Pages(u64),
}

/// The driver answered a call that asks for memory; `got` tells what the program got, if it got any.
pub(crate) fn asked(answered: Answered, request: Request, got: impl FnOnce() -> Got) {
    let Answered { function, answer } = answered;
    let got = match answer {
        SUCCESS => Some(got()),
        OUT_OF_MEMORY => None,
        _ => return,
    };
    quietly(|| {
        session::begin_once();
        let driver = Driver::of(function);
        let of_address = match (request.whose, got) {
            (Whose::OfAddress, Some(Got::Block(Name::Address(address)))) => driver.device_of(address),
            _ => None,
        };
        let owner = match request.whose {
            Whose::Pinned => Owner::Pinned,
            Whose::Device(device) => Owner::Device(device),
            // A call that succeeds without a context of the thread's own is of the first device's, as far as we know.
            Whose::Current | Whose::OfAddress => {
                Owner::Device(of_address.or_else(|| driver.current_device()).unwrap_or(0))
            }
        };
        let device = devices::known(owner, driver);
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
                Got::Block(name) => ledger.add(name, new, &mut tell),
                Got::Pages(handle) => ledger.create(handle, new, &mut tell),
            }
        }
        sample(driver);
    });
}

/// Memory is about to go back to the driver; what it was, to undo that if the driver refuses.
pub(crate) fn gives_back(name: Name) -> Option<Held> {
    quietly(|| lock().take(name, &mut tell))?
}

/// The driver answered a call that gives memory back.
pub(crate) fn gave_back(answered: Answered, name: Name, taken: Option<Held>) {
    let Some(held) = taken else { return };
    quietly(|| {
        if answered.answer == SUCCESS {
            sample(Driver::of(answered.function));
        } else {
            lock().put_back(name, held, &mut tell);
        }
    });
}

/// A handle of memory is about to be given back.
pub(crate) fn releases(handle: u64) -> Option<Released> {
    quietly(|| lock().release(handle, &mut tell))?
}

/// The driver answered that.
pub(crate) fn released(answered: Answered, released: Option<Released>) {
    let Some(released) = released else { return };
    quietly(|| {
        if answered.answer == SUCCESS {
            sample(Driver::of(answered.function));
        } else {
            lock().undo_release(released, &mut tell);
        }
    });
}

/// The driver did something to pages or contexts.
pub(crate) fn done(answered: Answered, change: impl FnOnce(&mut Ledger)) {
    if answered.answer == SUCCESS {
        quietly(|| {
            change(&mut lock());
            sample(Driver::of(answered.function));
        });
    }
}

/// Memory was put behind addresses, taken away from there, or went with its context.
pub(crate) fn mapped(answered: Answered, address: u64, bytes: u64, handle: u64) {
    done(answered, |ledger| ledger.map(address, bytes, handle, &mut tell));
}

/// Memory was taken away from behind addresses.
pub(crate) fn unmapped(answered: Answered, address: u64, bytes: u64) {
    done(answered, |ledger| ledger.unmap(address, bytes, &mut tell));
}

/// A context is gone.
pub(crate) fn context_ended(context: u64) {
    quietly(|| lock().end_context(context, &mut tell));
}

/// Samples what is in use on the device of the thread's context, if memory of it was seen and it is time to.
fn sample(driver: &Driver) {
    if api::is_recording()
        && let Some(device) = driver.current_device()
        && let Some(known) = devices::seen(Owner::Device(device))
    {
        known.sample(driver, false);
    }
}
