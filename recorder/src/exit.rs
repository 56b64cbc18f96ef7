//! Runs functions when the program ends by returning from `main`, by `exit` or by `quick_exit`. Rust then drops neither
//! statics nor local variables of `main`.

#![cfg_attr(not(target_family = "wasm"), expect(unsafe_code, reason = "asks the C library to be called at the exit"))]

use std::sync::{Mutex, PoisonError};

type Work = (u32, fn());

static AT_EXIT: Mutex<Vec<Work>> = Mutex::new(Vec::new());

/// Runs `work` when this process ends, before functions registered earlier. It does not run in forked children, nor
/// when the process ends by a signal, `abort`, `_exit` or `exec`.
pub(crate) fn at_exit(work: fn()) {
    let mut all = AT_EXIT.lock().unwrap_or_else(PoisonError::into_inner);
    all.push((std::process::id(), work));
    if all.len() == 1 {
        hook();
    }
}

#[cfg(not(target_family = "wasm"))]
fn hook() {
    // SAFETY: `run` is an `extern "C"` function without arguments that never unwinds and is never unloaded.
    unsafe { libc::atexit(run) };
    #[cfg(target_os = "linux")]
    {
        unsafe extern "C" {
            fn at_quick_exit(run: extern "C" fn()) -> libc::c_int;
        }
        // SAFETY: as above.
        unsafe { at_quick_exit(run) };
    }
}

/// Does nothing, since a browser ends no program.
#[cfg(target_family = "wasm")]
fn hook() {}

#[cfg(not(target_family = "wasm"))]
extern "C" fn run() {
    // In a forked child the lock may be held by a thread that does not exist there; the functions that are skipped
    // there are its parent's.
    let Ok(all) = AT_EXIT.try_lock().map(|all| all.clone()) else { return };
    for (_, work) in all.iter().rev().filter(|(pid, _)| *pid == std::process::id()) {
        // Unwinding must not cross into the C library.
        drop(std::panic::catch_unwind(work));
    }
}
