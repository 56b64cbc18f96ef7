//! Drops large values on a background thread, so that the window does not wait.
#![cfg_attr(
    all(target_os = "linux", target_env = "gnu"),
    expect(unsafe_code, reason = "asks the C library for memory")
)]

use std::sync::Weak;
use std::time::{Duration, Instant};

/// How long other threads may hold what was let go: a picture that is being drawn ends sooner.
const LONGEST: Duration = Duration::from_secs(30);

/// Giving back the largest recording takes less.
const AFTERWARDS: Duration = Duration::from_secs(1);

/// Drops `thing` on a thread of its own, waits there until nobody holds what `held` names any more, and lets the
/// memory go back to the system.
pub fn discard<T: Send + 'static, H: Send + Sync + 'static>(thing: T, held: Weak<H>) {
    let work = move || {
        drop(thing);
        let begun = Instant::now();
        while held.strong_count() > 0 && begun.elapsed() < LONGEST {
            std::thread::sleep(Duration::from_millis(20));
        }
        // Whoever let go last may still be at it: the second call finds what the first comes too early for.
        give_back();
        std::thread::sleep(AFTERWARDS);
        give_back();
    };
    // Without a thread the thing is dropped with the closure, here and now.
    let _ = std::thread::Builder::new().name("highwater-discard".to_owned()).spawn(work);
}

/// Lets the C library return what it keeps for later. Measured with a recording of 10 million events: without this, 300
/// to 400 MiB stay with the process from the second closing on, since its threshold for memory of its own grows.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn give_back() {
    // SAFETY: takes no pointer, and may be called at any time from any thread.
    unsafe { libc::malloc_trim(0) };
}

/// Other systems return memory by themselves.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn give_back() {}
