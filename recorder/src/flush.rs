//! Waits until all recorded events are in the file. Neither locks nor allocates, so that a signal handler can call it.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::order::{self, SequenceNumber};

/// Maximum time for which an ending process waits. A longer wait is pointless, since an interrupted thread may hold a
/// lock that the collector needs.
pub(crate) const PATIENCE: Duration = Duration::from_millis(250);

const LOOK_EVERY: Duration = Duration::from_micros(50);

/// Id of the process whose collector writes to a file; 0 if there is none.
static WRITER: AtomicU32 = AtomicU32::new(0);
/// Sequence number of the first message that may not be in the file yet.
static FIRST_UNWRITTEN: AtomicU32 = AtomicU32::new(0);
/// Whether a thread is waiting until its messages are written.
static IS_WANTED: AtomicBool = AtomicBool::new(false);

/// Begins a recording to a file, with the message `first`.
pub(crate) fn begin(first: SequenceNumber) {
    set_written(first);
    WRITER.store(std::process::id(), Ordering::Release);
}

pub(crate) fn end() {
    WRITER.store(0, Ordering::Release);
}

/// Returns whether a thread has asked for pending messages to be written since the last call.
pub(crate) fn is_wanted() -> bool {
    IS_WANTED.swap(false, Ordering::Relaxed)
}

/// Reports that all messages before `first` are in the file.
pub(crate) fn set_written(first: SequenceNumber) {
    FIRST_UNWRITTEN.store(first.0, Ordering::Release);
}

/// Waits until everything recorded so far is in the file, if this process writes one.
pub(crate) fn wait(at_most: Duration) {
    if WRITER.load(Ordering::Acquire) == 0 {
        return;
    }
    let (target, began) = (order::next(), Instant::now());
    let is_behind = || {
        let writer = WRITER.load(Ordering::Acquire);
        // In a forked child the collector does not exist.
        writer != 0
            && target.behind(SequenceNumber(FIRST_UNWRITTEN.load(Ordering::Acquire))) > 0
            && writer == std::process::id()
    };
    while is_behind() && began.elapsed() < at_most {
        IS_WANTED.store(true, Ordering::Relaxed);
        std::thread::sleep(LOOK_EVERY);
    }
}
