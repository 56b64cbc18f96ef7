//! Discard: gives large things back on a thread of its own, so that the window does not wait for it.

use std::sync::Weak;
use std::time::{Duration, Instant};

/// How long other threads may hold what was let go: a picture that is being drawn ends sooner.
const LONGEST: Duration = Duration::from_secs(30);

/// Drops `thing` on a thread of its own, waits there until nobody holds what `held` names any more, and lets the
/// memory go back to the system.
pub fn discard<T: Send + 'static, H: Send + Sync + 'static>(thing: T, held: Weak<H>) {
    let work = move || {
        drop(thing);
        let begun = Instant::now();
        while held.strong_count() > 0 && begun.elapsed() < LONGEST {
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    // Without a thread the thing is dropped with the closure, here and now.
    let _ = std::thread::Builder::new().name("highwater-discard".to_owned()).spawn(work);
}
