//! Starts the recorder's threads with all signals blocked, since the program may expect its signals on other threads.
//! Also counts the arrivals of a signal, and has the file flushed before a signal ends the program.

#![cfg_attr(not(target_family = "wasm"), expect(unsafe_code, reason = "signal masks and handlers are calls of libc"))]

use std::io;
use std::thread::JoinHandle;

/// Starts a named thread that receives no signals and whose allocations count as the recorder's own.
pub(crate) fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let builder = std::thread::Builder::new().name(name.to_owned());
    without_signals(|| {
        builder.spawn(|| {
            crate::reentrancy::own_this_thread();
            work()
        })
    })
}

#[cfg(unix)]
fn without_signals<R>(start: impl FnOnce() -> R) -> R {
    // SAFETY: plain data, filled before it is used.
    let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = unsafe { std::mem::zeroed() };
    // SAFETY: both point to local variables; the previous mask is restored below.
    let is_set = unsafe {
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) == 0
    };
    let started = start();
    if is_set {
        // SAFETY: restores the previous mask.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    }
    started
}

#[cfg(unix)]
pub(crate) use counting::count_arrivals;
#[cfg(unix)]
pub(crate) use ending::flush_before_signals;

/// Does nothing, since signals end no program on this platform.
#[cfg(not(unix))]
pub(crate) fn flush_before_signals() {}

#[cfg(unix)]
mod counting {
    use std::io;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Mutex, OnceLock, PoisonError};

    /// One more than the largest signal number.
    const SIGNALS: usize = 65;
    /// Signals that cannot be handled, or whose handler must not return to the instruction that raised them.
    const REFUSED: [i32; 5] = [libc::SIGKILL, libc::SIGSTOP, libc::SIGILL, libc::SIGFPE, libc::SIGSEGV];

    static ARRIVALS: [AtomicU32; SIGNALS] = [const { AtomicU32::new(0) }; SIGNALS];
    /// The program's own handlers, called after the signal was counted.
    static FORMER: [OnceLock<libc::sigaction>; SIGNALS] = [const { OnceLock::new() }; SIGNALS];
    static INSTALLING: Mutex<()> = Mutex::new(());

    /// Returns a counter of arrivals of signal `number` since the first call for it. An existing handler still runs.
    pub(crate) fn count_arrivals(number: i32) -> io::Result<&'static AtomicU32> {
        let row = usize::try_from(number).ok().filter(|row| (1..SIGNALS).contains(row));
        let Some(row) = row.filter(|_| !REFUSED.contains(&number)) else {
            return Err(io::Error::from_raw_os_error(libc::EINVAL));
        };
        let _turn = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
        if FORMER[row].get().is_none() {
            // SAFETY: plain data, for which zeros are valid.
            let (mut former, mut own): (libc::sigaction, libc::sigaction) = unsafe { std::mem::zeroed() };
            // SAFETY: only reads the current action into a local variable.
            check(unsafe { libc::sigaction(number, std::ptr::null(), &raw mut former) })?;
            // Set before the handler is installed, since the handler reads it.
            let _ = FORMER[row].set(former);
            own.sa_sigaction = handler as *const () as usize;
            own.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
            // SAFETY: the handler performs only operations that are allowed in a signal handler: atomic operations, and
            // a call of the program's own handler.
            check(unsafe { libc::sigaction(number, &raw const own, std::ptr::null_mut()) })?;
        }
        Ok(&ARRIVALS[row])
    }

    fn check(status: i32) -> io::Result<()> {
        if status == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    extern "C" fn handler(number: i32, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
        let Some(row) = usize::try_from(number).ok().filter(|row| *row < SIGNALS) else { return };
        ARRIVALS[row].fetch_add(1, Ordering::Relaxed);
        let Some(former) = FORMER[row].get() else { return };
        match former.sa_sigaction {
            libc::SIG_DFL | libc::SIG_IGN => {}
            address if former.sa_flags & libc::SA_SIGINFO != 0 => {
                // SAFETY: the program registered this address as a handler of three arguments.
                let own: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) =
                    unsafe { std::mem::transmute(address) };
                own(number, info, context);
            }
            address => {
                // SAFETY: the program registered this address as a handler of one argument.
                let own: extern "C" fn(i32) = unsafe { std::mem::transmute(address) };
                own(number);
            }
        }
    }
}

#[cfg(unix)]
mod ending {
    use std::sync::Once;

    use crate::flush;

    /// Signals for which programs often have no handler, so that they end the program. Signals raised by an invalid
    /// instruction or access are not included, since the Rust runtime, debuggers and crash reporters have handlers for
    /// them.
    const ENDING: [libc::c_int; 5] = [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGABRT, libc::SIGTERM];

    /// From now on, flushes the file before a signal ends the program. Signals that are handled or ignored are exempt.
    pub(crate) fn flush_before_signals() {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            for number in ENDING {
                if action(number).is_some_and(|action| action == libc::SIG_DFL) {
                    // SAFETY: plain data, for which zeros are valid.
                    let mut own: libc::sigaction = unsafe { std::mem::zeroed() };
                    own.sa_sigaction = handler as *const () as usize;
                    own.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
                    // SAFETY: the handler only uses atomics, sleeps, and makes calls that a handler may make.
                    unsafe { libc::sigaction(number, &raw const own, std::ptr::null_mut()) };
                }
            }
        });
    }

    fn action(number: libc::c_int) -> Option<libc::sighandler_t> {
        // SAFETY: plain data, for which zeros are valid.
        let mut current: libc::sigaction = unsafe { std::mem::zeroed() };
        // SAFETY: only reads the current action into a local variable.
        let status = unsafe { libc::sigaction(number, std::ptr::null(), &raw mut current) };
        (status == 0).then_some(current.sa_sigaction)
    }

    extern "C" fn handler(number: libc::c_int) {
        flush::wait(flush::PATIENCE);
        // If the program has installed its own handler since then and that one has called this one, it decides how to
        // continue.
        if action(number) == Some(handler as *const () as usize) {
            // SAFETY: ends the process as it would have ended without the handler, once that has returned.
            unsafe {
                libc::signal(number, libc::SIG_DFL);
                libc::raise(number);
            }
        }
    }
}

#[cfg(not(unix))]
fn without_signals<R>(start: impl FnOnce() -> R) -> R {
    start()
}
