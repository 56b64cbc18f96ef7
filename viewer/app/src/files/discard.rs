//! Drops large values on a background thread, so that the window does not wait. In browsers, `discard_web.rs` replaces
//! this file.
#![cfg_attr(
    all(target_os = "linux", target_env = "gnu"),
    expect(unsafe_code, reason = "asks the C library for memory")
)]

use std::sync::Weak;
use std::time::{Duration, Instant};

/// Maximum time to wait until other threads have dropped the value. Drawing a picture takes less time.
const LONGEST: Duration = Duration::from_secs(30);

/// Time after which memory is returned to the system again. Freeing the largest recording takes less time.
const AFTERWARDS: Duration = Duration::from_secs(1);

/// Drops `thing` on a separate thread, waits there until no reference to the target of `owner` remains, and returns the
/// memory to the operating system.
pub(crate) fn discard<T: Send + 'static, H: Send + Sync + 'static>(thing: T, owner: Weak<H>) {
    let work = move || {
        drop(thing);
        let begun = Instant::now();
        while owner.strong_count() > 0 && begun.elapsed() < LONGEST {
            std::thread::sleep(Duration::from_millis(20));
        }
        // The last owner may still be freeing memory, so the second call returns memory that the first could not.
        give_back();
        std::thread::sleep(AFTERWARDS);
        give_back();
    };
    // If no thread can be started, the value is dropped with the closure.
    let _ = std::thread::Builder::new().name("highwater-discard".to_owned()).spawn(work);
}

/// Makes the C library return unused memory to the operating system. Otherwise, the process keeps 300 to 400 MiB after
/// closing a recording of 10 million events for the second time, because the library's threshold grows.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn give_back() {
    // SAFETY: takes no pointer, and may be called at any time from any thread.
    unsafe { libc::malloc_trim(0) };
}

/// Does nothing, since other systems return memory automatically.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn give_back() {}
