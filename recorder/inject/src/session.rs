//! Session: the recording that `highwater run` asked for by variables of the environment.
#![expect(unsafe_code, reason = "ends the recording with the program, and keeps signals from the recorder's thread")]

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once, PoisonError};
use std::time::{Duration, SystemTime};

use highwater_recorder::naming::{self, Rank};
use highwater_recorder::{Error, HistoryOptions, Level, Recording};

use crate::guard;

/// The file to write. Without it, the recorder's own variables hold, as for any program that has the recorder in it:
/// `highwater run` leaves those to the program.
const FILE: &str = "HIGHWATER_RUN_FILE";
/// `stacks`, `events` or `state`.
const LEVEL: &str = "HIGHWATER_RUN_LEVEL";
/// How many events are kept at most.
const RING: &str = "HIGHWATER_RUN_RING";
/// Smaller blocks are left out: bytes.
const SMALLEST: &str = "HIGHWATER_RUN_SMALLEST";
/// When the run began, in microseconds of Unix time: files from before are replaced.
const STARTED: &str = "HIGHWATER_RUN_STARTED";

static BEGUN: Once = Once::new();
static RECORDING: Mutex<Option<Recording>> = Mutex::new(None);

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

fn number(name: &str) -> Option<u64> {
    variable(name)?.to_str()?.parse().ok()
}

/// Whether the recording was asked for by [`FILE`], and not by the recorder's own variables.
pub(crate) fn is_asked_for() -> bool {
    variable(FILE).is_some()
}

/// Begins the recording, at the first call that obtains or frees memory.
pub(crate) fn begin_once() {
    BEGUN.call_once(|| {
        guard::be_told_of_forks();
        let Some(file) = variable(FILE).map(PathBuf::from) else { return };
        match begin(&file) {
            Ok(recording) => {
                *RECORDING.lock().unwrap_or_else(PoisonError::into_inner) = Some(recording);
                // SAFETY: an `extern "C"` function without arguments that never unwinds, in a library that stays.
                unsafe { libc::atexit(at_exit) };
            }
            Err(error) => warn(&format!("cannot record this process: {error}")),
        }
    });
}

fn begin(file: &Path) -> Result<Recording, Error> {
    let since = SystemTime::UNIX_EPOCH + Duration::from_micros(number(STARTED).unwrap_or(0));
    let path =
        claim(file, since, Rank::of_process()).map_err(|source| Error::Write { source, path: file.to_owned() })?;
    let level = match variable(LEVEL).as_deref().and_then(|level| level.to_str()) {
        Some("state") => Level::State,
        Some("events") => Level::Events,
        _ => Level::Stacks,
    };
    let options = HistoryOptions {
        ring_events: number(RING).map(|events| usize::try_from(events).unwrap_or(usize::MAX)),
        smallest_bytes: number(SMALLEST).unwrap_or(0),
        per_rank: false,
        ..HistoryOptions::to_file(path).level(level)
    };
    without_signals(|| Recording::start(options))
}

/// The file that this process writes: `file` for the first of a run, `file.rank3` where ranks are told, `file.pid123`
/// for others. What an earlier run left under the name of a rank is replaced.
fn claim(file: &Path, since: SystemTime, rank: Rank) -> io::Result<PathBuf> {
    let is_mine = |path: &Path| match OpenOptions::new().write(true).create_new(true).open(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error),
    };
    let first = naming::for_rank(file, rank);
    let written = std::fs::metadata(&first).and_then(|facts| facts.modified());
    if is_mine(&first)? || written.is_ok_and(|written| written < since) {
        return Ok(first);
    }
    Ok(naming::of_process(file))
}

/// Has threads that `body` starts take none of the program's signals.
fn without_signals<T>(body: impl FnOnce() -> T) -> T {
    // SAFETY: plain data, filled before it is used.
    let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = unsafe { std::mem::zeroed() };
    // SAFETY: our own places; the former mask comes back right after.
    unsafe {
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
    }
    let value = body();
    // SAFETY: the mask that was there before.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut()) };
    value
}

extern "C" fn at_exit() {
    // Unwinding may not cross into the C library.
    drop(std::panic::catch_unwind(finish));
}

fn finish() {
    if guard::is_off() {
        return;
    }
    // Freed while the recording is completed: of no interest any more.
    let _call = guard::Call::enter();
    let recording = RECORDING.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(Err(error)) = recording.map(Recording::finish) {
        warn(&format!("the recording of this process is not complete: {error}"));
    }
}

#[expect(clippy::print_stderr, reason = "nobody called us, so nobody could be given the error")]
fn warn(text: &str) {
    eprintln!("highwater: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_process_takes_the_name_and_others_take_names_beside_it() {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let file = folder.path().join("run.snap");
        let since = SystemTime::now() - Duration::from_secs(60);
        let name = |path: PathBuf| path.file_name().map(|name| name.to_string_lossy().into_owned());
        let third = Rank { rank: Some(3), world_size: Some(8) };
        let mut claimed = Vec::new();
        for rank in [Rank::default(), Rank::default(), third, third] {
            claimed.extend(claim(&file, since, rank).ok().and_then(name));
        }
        let own = format!("run.pid{}.snap", std::process::id());
        assert_eq!(claimed, ["run.snap", &own, "run.rank3.snap", &own]);
        let later = SystemTime::now() + Duration::from_secs(60);
        assert_eq!(claim(&file, later, third).ok().and_then(name).as_deref(), Some("run.rank3.snap"));
        assert!(claim(&folder.path().join("missing/run.snap"), since, Rank::default()).is_err());
    }
}
