//! Signals: the recorder's threads take none of the program's, which may wait for them elsewhere.

#![expect(unsafe_code, reason = "changes the thread's signal mask while another thread is started")]

use std::io;
use std::thread::JoinHandle;

/// Starts a thread with this name, which takes no signals and whose memory is the recorder's own.
pub(crate) fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let builder = std::thread::Builder::new().name(name.to_owned());
    without_signals(|| {
        builder.spawn(|| {
            crate::busy::own_this_thread();
            work()
        })
    })
}

#[cfg(unix)]
fn without_signals<R>(start: impl FnOnce() -> R) -> R {
    // SAFETY: plain data, filled before it is used.
    let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = unsafe { std::mem::zeroed() };
    // SAFETY: our own places; the former mask comes back right after.
    let is_set = unsafe {
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) == 0
    };
    let started = start();
    if is_set {
        // SAFETY: the mask that was there before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    }
    started
}

#[cfg(not(unix))]
fn without_signals<R>(start: impl FnOnce() -> R) -> R {
    start()
}
