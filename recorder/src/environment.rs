//! Environment: recordings that a program need not ask for. `HIGHWATER_RECORD=path` records the whole run to a growing
//! file; `HIGHWATER_OOM_SNAPSHOT=dir` keeps the last events and writes them out when a device runs out of memory.

#![expect(unsafe_code, reason = "a program that ends shall leave a complete file, and Rust drops no statics")]

use std::path::PathBuf;
use std::sync::{Mutex, Once, PoisonError};

use crate::options::HistoryOptions;
use crate::recording::Recording;

/// Events that `HIGHWATER_OOM_SNAPSHOT` keeps.
const RING_EVENTS: usize = 1_000_000;

static STARTED: Once = Once::new();
static RECORDING: Mutex<Option<Recording>> = Mutex::new(None);

/// Starts what the environment asks for, at the first allocator of the process.
pub(crate) fn start_once() {
    STARTED.call_once(|| {
        let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let dump_on_oom = variable("HIGHWATER_OOM_SNAPSHOT");
        let options = match (variable("HIGHWATER_RECORD"), dump_on_oom.is_some()) {
            (Some(path), _) => HistoryOptions::to_file(path),
            (None, true) => HistoryOptions::in_memory().ring(RING_EVENTS),
            (None, false) => return,
        };
        match Recording::start(HistoryOptions { dump_on_oom, ..options }) {
            Ok(recording) => {
                *RECORDING.lock().unwrap_or_else(PoisonError::into_inner) = Some(recording);
                finish_at_exit();
            }
            Err(error) => warn(&error),
        }
    });
}

extern "C" fn at_exit() {
    // Unwinding may not cross into the C library.
    drop(std::panic::catch_unwind(finish));
}

fn finish_at_exit() {
    // SAFETY: `at_exit` is an `extern "C"` function without arguments that never unwinds, and lives as long as the program.
    unsafe { libc::atexit(at_exit) };
}

/// Completes what the environment asked for; called when the program ends. A program that is killed leaves a file
/// that is valid up to its last fraction of a second, with addresses in place of source lines.
pub fn finish() {
    let recording = RECORDING.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(recording) = recording
        && let Err(error) = recording.finish()
    {
        warn(&error);
    }
}

#[expect(clippy::print_stderr, reason = "nobody called us, so nobody could be given the error")]
fn warn(error: &crate::Error) {
    eprintln!("highwater: not recording as the environment asks: {error}");
}
