//! The recording that `highwater run` requests with environment variables.
#![expect(unsafe_code, reason = "ends the recording with the program")]

use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write as _};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Mutex, Once, PoisonError};

use highwater_recorder::naming::{self, Rank};
use highwater_recorder::{Error, HistoryOptions, Level, Recording};

use crate::guard;

/// Path of the file to write, or of a folder, in which the file is named after this program. Without this variable, the
/// recorder's own variables apply, as in any program that contains the recorder. `highwater run` passes them on to the
/// program.
const FILE: &str = "HIGHWATER_RUN_FILE";
/// Level of detail: `stacks`, `events` or `state`.
const LEVEL: &str = "HIGHWATER_RUN_LEVEL";
/// Maximum number of events to keep.
const RING: &str = "HIGHWATER_RUN_RING";
/// Minimum block size in bytes; smaller blocks are left out.
const SMALLEST: &str = "HIGHWATER_RUN_SMALLEST";
/// Folder in which the processes of a run claim the names of their files.
const CLAIMS: &str = "HIGHWATER_RUN_CLAIMS";

/// No framework in this process records its own memory.
const NO_FRAMEWORK: u8 = 0;
/// A framework records its own memory, and the driver's calls are not recorded.
const LEFT_TO_FRAMEWORK: u8 = 1;
/// A framework records its own memory, and the driver's calls are recorded to a file with another name.
const BESIDE_FRAMEWORK: u8 = 2;

static FRAMEWORK: AtomicU8 = AtomicU8::new(NO_FRAMEWORK);
static BEGUN: Once = Once::new();
static RECORDING: Mutex<Option<Recording>> = Mutex::new(None);

fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}

fn number(name: &str) -> Option<u64> {
    variable(name)?.to_str()?.parse().ok()
}

/// Returns whether [`FILE`] requested the recording, rather than the recorder's own variables.
pub(crate) fn is_asked_for() -> bool {
    variable(FILE).is_some()
}

/// Called by a framework in this process whose recorder records its memory by block. Calls of the driver are then not
/// recorded, or with `records_driver` are recorded to a separate file. Has no effect once calls have been recorded.
// SAFETY: no other library defines this name.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn highwater_inject_leave_to_framework(records_driver: std::ffi::c_int) {
    FRAMEWORK.store(if records_driver == 0 { LEFT_TO_FRAMEWORK } else { BESIDE_FRAMEWORK }, Ordering::Relaxed);
}

/// Begins the recording, at the first call that allocates memory or fails for lack of it.
pub(crate) fn begin_once() {
    BEGUN.call_once(|| {
        if FRAMEWORK.load(Ordering::Relaxed) == LEFT_TO_FRAMEWORK {
            return;
        }
        guard::register_fork_handlers();
        let Some(file) = variable(FILE).map(PathBuf::from) else { return };
        match begin(&file) {
            Ok(recording) => {
                *RECORDING.lock().unwrap_or_else(PoisonError::into_inner) = Some(recording);
                // SAFETY: an `extern "C"` function without arguments that never unwinds and is never unloaded.
                unsafe { libc::atexit(at_exit) };
            }
            Err(error) => warn(&format!("cannot record this process: {error}")),
        }
    });
}

fn begin(file: &Path) -> Result<Recording, Error> {
    let claims = variable(CLAIMS).map(PathBuf::from);
    let mut named = if file.is_dir() { file.join(own_name()) } else { file.to_owned() };
    if FRAMEWORK.load(Ordering::Relaxed) == BESIDE_FRAMEWORK {
        named.set_extension("driver.snap");
    }
    let path = claim(&named, claims.as_deref(), Rank::of_process());
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
    Recording::start_alone(options)
}

/// Returns the name of a recording after the command that started this program, such as `python.snap`.
fn own_name() -> OsString {
    let word = std::env::args_os().next().unwrap_or_default();
    let mut name = Path::new(&word).file_name().unwrap_or("program".as_ref()).to_owned();
    name.push(".snap");
    name
}

/// Returns the path of the file for this process: `run.snap` for the first process of a run, `run.rank3.snap` for a
/// rank, `run.pid123.snap` for other processes and without a `claims` folder, `run.pid123.2.snap` for a process that
/// has executed another program. The claim contains the path, for the process that started the run.
fn claim(file: &Path, claims: Option<&Path>, rank: Rank) -> PathBuf {
    let first = naming::for_rank(file, rank);
    let take = |path: &Path| {
        let claim = claims.zip(path.file_name()).map(|(claims, name)| claims.join(name)).ok_or(ErrorKind::NotFound)?;
        let mut claim = OpenOptions::new().write(true).create_new(true).open(claim)?;
        claim.write_all(path.as_os_str().as_bytes())
    };
    if take(&first).is_ok() {
        return first;
    }
    let (mut other, mut number) = (naming::of_process(file), 1);
    // No other process has this name, so that the file is written whether or not it can be claimed.
    while take(&other).is_err_and(|why| why.kind() == ErrorKind::AlreadyExists) {
        number += 1;
        other = naming::of_process_again(file, number);
    }
    other
}

extern "C" fn at_exit() {
    // Unwinding must not cross into the C library.
    drop(std::panic::catch_unwind(finish));
}

fn finish() {
    if guard::is_off() {
        return;
    }
    // Frees while the recording is being completed are not recorded.
    let _call = guard::Call::enter();
    let recording = RECORDING.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(Err(error)) = recording.map(Recording::finish) {
        warn(&format!("the recording of this process is not complete: {error}"));
    }
}

#[expect(clippy::print_stderr, reason = "no caller could receive the error in a preloaded library")]
fn warn(text: &str) {
    eprintln!("highwater: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_process_takes_the_name_and_others_take_names_beside_it() {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let claims = Some(folder.path());
        let file = Path::new("/recordings/run.snap");
        let own = format!("/recordings/run.pid{}.snap", std::process::id());
        let again = format!("/recordings/run.pid{}.2.snap", std::process::id());
        let third = Rank { rank: Some(3), world_size: Some(8) };
        for (rank, expected) in [
            (Rank::default(), "/recordings/run.snap"),
            (Rank::default(), &own),
            (Rank::default(), &again),
            (third, "/recordings/run.rank3.snap"),
        ] {
            assert_eq!(claim(file, claims, rank), Path::new(expected));
            let name = Path::new(expected).file_name().expect("a name");
            assert_eq!(std::fs::read_to_string(folder.path().join(name)).ok().as_deref(), Some(expected));
        }
        let gone = folder.path().join("gone");
        assert_eq!(claim(file, Some(&gone), Rank::default()), Path::new(&own), "without claims, names that none has");
        assert_eq!(claim(file, None, third), Path::new(&own));
    }
}
