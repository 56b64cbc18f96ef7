//! Stack capture on Linux on x86-64 and AArch64, by the verified walk, or by the C unwinder if the walk is not certain.

#![expect(unsafe_code, reason = "entry points that see their caller's registers")]

mod rule;
#[cfg(target_arch = "x86_64")]
mod cfi;
#[cfg(target_arch = "x86_64")]
mod rules;
mod machine;
mod walk;
mod unwinder;
mod thread;

use std::sync::atomic::{AtomicBool, Ordering};

use self::machine::Registers;
use self::thread::Thread;
use self::unwinder::Trace;
use self::walk::Walk;
use super::depot::{self, StackKey};
use super::losses;
use crate::reentrancy;

/// Whether the walk must not be used, because the program disabled it or the first walk disagreed with the unwinder.
static PORTABLE: AtomicBool = AtomicBool::new(false);
static CHECKED: AtomicBool = AtomicBool::new(false);

/// Captures the current stack, starting with this function's caller. See [`crate::stack`] for costs and limits.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub extern "C" fn capture() -> StackKey {
    core::arch::naked_asm!("mov rdi, [rsp]", "lea rsi, [rsp + 8]", "mov rdx, rbp", "jmp {walk}", walk = sym capture_from)
}

/// Captures the current stack, starting with this function's caller. See [`crate::stack`] for costs and limits.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
pub extern "C" fn capture() -> StackKey {
    core::arch::naked_asm!("mov x0, x30", "mov x1, sp", "mov x2, x29", "b {walk}", walk = sym capture_from)
}

/// Captures the current stack with the platform's unwinder (some 4 µs at depth 40), for tests and benchmarks.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
pub extern "C" fn capture_portable() -> StackKey {
    core::arch::naked_asm!("mov rdi, [rsp]", "jmp {unwind}", unwind = sym unwind_from)
}

/// Captures the current stack with the platform's unwinder (some 4 µs at depth 40), for tests and benchmarks.
#[cfg(target_arch = "aarch64")]
#[unsafe(naked)]
pub extern "C" fn capture_portable() -> StackKey {
    core::arch::naked_asm!("mov x0, x30", "b {unwind}", unwind = sym unwind_from)
}

extern "C" fn capture_from(counter: u64, stack: u64, base: u64) -> StackKey {
    let from = Registers { counter, stack, base };
    let Some(_guard) = reentrancy::enter() else {
        return refused();
    };
    let thread = thread::current();
    if thread.is_null() {
        return first_capture(from);
    }
    // SAFETY: the current thread's state; `_guard` ensures that nothing else on this thread uses it.
    capture_on(unsafe { &mut *thread }, from)
}

extern "C" fn unwind_from(counter: u64) -> StackKey {
    let Some(_guard) = reentrancy::enter() else {
        return refused();
    };
    let mut thread = thread::current();
    if thread.is_null() {
        thread = thread::make();
    }
    // SAFETY: the current thread's state, if it has one; `_guard` ensures that nothing else on this thread uses it.
    match unsafe { thread.as_mut() } {
        Some(thread) => unwind(thread, counter),
        None => refused(),
    }
}

#[inline(always)]
fn capture_on(thread: &mut Thread, from: Registers) -> StackKey {
    if thread.stack.contains(&from.stack) && !PORTABLE.load(Ordering::Relaxed) {
        match thread.record.walk(from, thread.stack.end, &mut thread.front) {
            Walk::Found(key) => return key,
            Walk::Cut(key) => {
                losses::count_cut();
                return key;
            }
            Walk::Foreign => {}
        }
    }
    losses::count_portable();
    unwind(thread, from.counter)
}

#[cold]
#[inline(never)]
fn unwind(thread: &mut Thread, counter: u64) -> StackKey {
    let trace = Trace::take(machine::address_of(counter));
    if trace.cut {
        losses::count_cut();
    }
    if trace.frames().is_empty() { refused() } else { thread.front.key_of(trace.frames()) }
}

#[cold]
#[inline(never)]
fn refused() -> StackKey {
    losses::count_refused();
    StackKey::NONE
}

/// Performs the first capture of a thread; the first of the process also compares the walk with the unwinder.
#[cold]
#[inline(never)]
fn first_capture(from: Registers) -> StackKey {
    let thread = thread::make();
    // SAFETY: as in `capture_from`, whose `ReentrancyGuard` is still active; null if the thread is ending.
    let Some(thread) = (unsafe { thread.as_mut() }) else {
        return refused();
    };
    if CHECKED.swap(true, Ordering::Relaxed) {
        return capture_on(thread, from);
    }
    if std::env::var_os("HIGHWATER_STACKS").is_some_and(|wish| wish == "portable") {
        PORTABLE.store(true, Ordering::Relaxed);
    }
    let walked = capture_on(thread, from);
    let sure = unwind(thread, from.counter);
    let (walked_frames, sure_frames) = (depot::frames(walked), depot::frames(sure));
    match sure_frames.strip_prefix(walked_frames.as_slice()) {
        Some(missed) if (0..=machine::OUTERMOST_MISSED).contains(&missed.len()) => walked,
        _ => {
            PORTABLE.store(true, Ordering::Relaxed);
            sure
        }
    }
}
