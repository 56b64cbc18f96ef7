//! Stack capture on all other platforms, with the `backtrace` crate, in some microseconds per stack.

use std::cell::RefCell;

use super::depot::{Front, StackKey};
use super::{MAX_FRAMES, losses};
use crate::reentrancy;

thread_local! {
    static FRONT: RefCell<Front> = RefCell::new(Front::new());
}

/// Captures the current stack, starting with this function's caller. See [`crate::stack`] for costs and limits.
#[inline(never)]
pub extern "C" fn capture() -> StackKey {
    stack_from(capture as extern "C" fn() -> StackKey as usize)
}

/// Same as [`capture`], since this platform has only one implementation.
#[inline(never)]
pub extern "C" fn capture_portable() -> StackKey {
    stack_from(capture_portable as extern "C" fn() -> StackKey as usize)
}

/// Captures the current stack outside the function that starts at `own`.
fn stack_from(own: usize) -> StackKey {
    let Some(_guard) = reentrancy::enter() else {
        losses::count_refused();
        return StackKey::NONE;
    };
    losses::count_portable();
    let mut frames = [0; MAX_FRAMES];
    let (mut len, mut outside, mut cut) = (0, false, false);
    backtrace::trace(|frame| {
        let address = frame.ip() as u64;
        if !outside {
            outside = frame.symbol_address() as usize == own;
        } else if len == MAX_FRAMES {
            cut = true;
        } else if address != 0 {
            frames[len] = address;
            len += 1;
        }
        !cut
    });
    if cut {
        losses::count_cut();
    }
    FRONT.try_with(|front| front.borrow_mut().key_of(&frames[..len])).unwrap_or_else(|_| {
        losses::count_refused();
        StackKey::NONE
    })
}
