//! Recordings that are configured by environment variables instead of code.
//!
//! | variable | does |
//! |---|---|
//! | `HIGHWATER_RECORD=path` | writes the run to a growing file, one per process if `path` is a folder or ends in `/` |
//! | `HIGHWATER_OOM_SNAPSHOT=dir` | writes the last events to a new file there when a device runs out of memory |
//! | `HIGHWATER_OOM_DUMPS=4` | maximum number of those files |
//! | `HIGHWATER_LEVEL=stacks` | or `events` (no stacks), or `state` (only the live blocks at the end) |
//! | `HIGHWATER_RING=1000000` | keeps only this many most recent events, and writes them at the end |
//! | `HIGHWATER_SMALLEST=1KiB` | leaves out smaller blocks |
//! | `HIGHWATER_STEPS=10..13` | records only training steps 10, 11 and 12 |
//! | `HIGHWATER_ROTATE=1GiB,16GiB` | writes files of 1 GiB one after another, and keeps the newest 16 GiB |
//! | `HIGHWATER_SYMBOLS=never` | leaves stacks as addresses, for `highwater symbolize` |
//! | `HIGHWATER_SWITCH=file` | records while that file exists |
//! | `HIGHWATER_SIGNAL=USR1` | starts recording at this signal, and stops at the next; ignored with `HIGHWATER_SWITCH`
//! |
//!
//! A recording started by the program itself takes precedence. The environment's recording ends where the program's
//! begins, which is reported on standard error, and continues afterwards in another file, `run.0002.snap`. If both name
//! the same file, the program's recording is written to it, and the environment's is renamed. Meanwhile, the program's
//! recording makes the dumps.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use highwater_snapshots::units::{parse_bytes, parse_range};

use crate::error::{Error, Result};
use crate::hub::{self, Request};
use crate::level::Level;
use crate::naming::{self, Rank};
use crate::options::{HistoryOptions, Rotation, Sink, Symbols};
use crate::recording::{self, Recording};
use crate::switch::{Switch, Trigger};
use crate::warn::warn;
use crate::{exit, header, reentrancy, signals};

/// Default ring size for `HIGHWATER_OOM_SNAPSHOT` without `HIGHWATER_RECORD`.
const RING_EVENTS: usize = 1_000_000;

/// The variables that only change the options of a recording.
const REFINING: [&str; 9] = [
    "HIGHWATER_OOM_DUMPS",
    "HIGHWATER_LEVEL",
    "HIGHWATER_RING",
    "HIGHWATER_SMALLEST",
    "HIGHWATER_STEPS",
    "HIGHWATER_ROTATE",
    "HIGHWATER_SYMBOLS",
    "HIGHWATER_SWITCH",
    "HIGHWATER_SIGNAL",
];

static STARTED: Once = Once::new();
static RUNNING: Mutex<Option<Running>> = Mutex::new(None);

enum Running {
    /// A recording, and the options with which it continues after a recording that the program itself starts.
    Recording(Recording, Box<HistoryOptions>),
    Switch(Switch),
}

/// Starts the recording requested by environment variables, unless it was started already. Called by
/// [`register`](crate::api::register) and [`Recording::start`]. A program whose only allocator is
/// [`RecordedHeap`](crate::RecordedHeap) must call it at the start of `main`.
pub fn start() {
    STARTED.call_once(|| {
        let _own = reentrancy::own_memory();
        match requested(&variable_of_process).and_then(begin) {
            Ok(None) => {}
            Ok(Some(running)) => {
                *lock() = Some(running);
                hub::lock().call_after_own(go_on);
                exit::at_exit(finish);
            }
            Err(error) => report(&error),
        }
    });
}

fn lock() -> MutexGuard<'static, Option<Running>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns an environment variable; `None` if it is unset or empty. Invalid Unicode is converted lossily.
fn variable_of_process(name: &str) -> Option<String> {
    let value = std::env::var_os(name)?;
    (!value.is_empty()).then(|| value.to_string_lossy().into_owned())
}

#[derive(Debug, PartialEq, Eq)]
struct Requested {
    options: HistoryOptions,
    trigger: Option<Trigger>,
}

fn requested(variable: &dyn Fn(&str) -> Option<String>) -> Result<Option<Requested>> {
    let dump_on_oom = variable("HIGHWATER_OOM_SNAPSHOT").map(PathBuf::from);
    let ring = parsed(variable, "HIGHWATER_RING", "a number of events", |text| text.parse().ok())?;
    let options = match variable("HIGHWATER_RECORD") {
        Some(path) => {
            let path = file_of_process(Path::new(&path));
            HistoryOptions { ring_events: ring, ..HistoryOptions::to_file(path) }
        }
        None if dump_on_oom.is_some() => HistoryOptions::in_memory().ring(ring.unwrap_or(RING_EVENTS)),
        None => {
            let alone = REFINING.into_iter().find(|name| variable(name).is_some());
            let why = |name| {
                let text = "has no effect alone: set HIGHWATER_RECORD=<path> or HIGHWATER_OOM_SNAPSHOT=<folder> too";
                Error::Options(format!("{name} {text}"))
            };
            return alone.map_or(Ok(None), |name| Err(why(name)));
        }
    };
    let level = parsed(variable, "HIGHWATER_LEVEL", "stacks, events or state", |text| match text {
        "stacks" => Some(Level::Stacks),
        "events" => Some(Level::Events),
        "state" => Some(Level::State),
        _ => None,
    })?;
    let symbols = parsed(variable, "HIGHWATER_SYMBOLS", "end or never", |text| match text {
        "end" => Some(Symbols::AtEnd),
        "never" => Some(Symbols::Never),
        _ => None,
    })?;
    let size = |text: &str| parse_bytes(text).ok();
    let smallest_bytes = parsed(variable, "HIGHWATER_SMALLEST", "a size, such as 1KiB", size)?;
    let rotation = parsed(variable, "HIGHWATER_ROTATE", "sizes of a file and in total, such as 1GiB,16GiB", |text| {
        let (file, all) = text.split_once(',').map_or((text, None), |(file, all)| (file, Some(all)));
        let disk_bytes = all.map(size);
        Some(Rotation { file_bytes: size(file)?, disk_bytes: if all.is_some() { Some(disk_bytes??) } else { None } })
    })?;
    let steps =
        parsed(variable, "HIGHWATER_STEPS", "the first step and the step after the last, such as 10..13", parse_range)?;
    let max_oom_dumps = parsed(variable, "HIGHWATER_OOM_DUMPS", "a number of files", |text| text.parse().ok())?;
    let file = variable("HIGHWATER_SWITCH").map(|path| Trigger::File(path.into()));
    let signal = parsed(variable, "HIGHWATER_SIGNAL", "USR1, USR2 or a signal's number", signal)?;
    let options = HistoryOptions {
        level: level.unwrap_or(options.level),
        symbols: symbols.unwrap_or_default(),
        smallest_bytes: smallest_bytes.unwrap_or(0),
        max_oom_dumps: max_oom_dumps.unwrap_or(options.max_oom_dumps),
        rotation,
        steps,
        dump_on_oom,
        ..options
    };
    Ok(Some(Requested { options, trigger: file.or(signal.map(Trigger::Signal)) }))
}

fn parsed<T>(
    variable: &dyn Fn(&str) -> Option<String>,
    name: &str,
    wanted: &str,
    parse: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>> {
    let Some(text) = variable(name) else { return Ok(None) };
    match parse(text.trim()) {
        Some(value) => Ok(Some(value)),
        None => Err(Error::Options(format!("{name}={text}: expected {wanted}"))),
    }
}

fn signal(text: &str) -> Option<i32> {
    match text.strip_prefix("SIG").unwrap_or(text) {
        #[cfg(unix)]
        "USR1" => Some(libc::SIGUSR1),
        #[cfg(unix)]
        "USR2" => Some(libc::SIGUSR2),
        number => number.parse().ok(),
    }
}

/// Returns the file of this process if `path` is a folder, otherwise `path`.
fn file_of_process(path: &Path) -> PathBuf {
    let is_folder = path.is_dir() || path.as_os_str().to_string_lossy().ends_with('/');
    if !is_folder {
        return path.to_owned();
    }
    // If the folder cannot be created, starting the recording fails with the reason.
    drop(std::fs::create_dir_all(path));
    naming::in_folder(path, &header::host_name(), Rank::of_process())
}

fn begin(wish: Option<Requested>) -> Result<Option<Running>> {
    let Some(Requested { options, trigger }) = wish else { return Ok(None) };
    if let Some(trigger) = trigger {
        return Switch::watch(options, trigger).map(Running::Switch).map(Some);
    }
    let started = match Recording::begin(options.clone(), Request::Outside) {
        // Another process inherited the variable and claimed the file first.
        Err(Error::InUse { path }) => {
            let sink = Sink::File(naming::of_process(&path));
            let options = HistoryOptions { sink, per_rank: false, ..options };
            Recording::begin(options.clone(), Request::Outside).map(|recording| (recording, options))
        }
        started => started.map(|recording| (recording, options)),
    };
    started.map(|(recording, options)| Some(Running::Recording(recording, Box::new(options))))
}

/// Continues after a recording that the program started, in the next file (`run.0002.snap` after `run.snap`).
fn go_on() {
    let mut running = lock();
    let Some(Running::Recording(recording, options)) = running.as_mut() else { return };
    if hub::lock().session().is_some() {
        return;
    }
    let sink = match options.sink.path().filter(|_| options.rotation.is_none()).map(recording::next_free) {
        Some(path) => Sink::File(path),
        None => options.sink.clone(),
    };
    match Recording::begin(HistoryOptions { sink, ..HistoryOptions::clone(options) }, Request::Outside) {
        Ok(next) => {
            let former = std::mem::replace(recording, next);
            // The program does not wait until the former recording is complete, but its exit does.
            drop(signals::spawn("highwater-file", move || drop(former)));
        }
        Err(error) => report(&error),
    }
}

/// Completes the recording requested by environment variables. Called when the program returns from `main` or calls
/// `exit`. A program that ends otherwise leaves a file with addresses in place of source lines, which lacks at most the
/// events of the last [`flush_every`](HistoryOptions::flush_every) and some hundredths of a second, or with a ring all
/// events.
pub fn finish() {
    let running = lock().take();
    match running {
        None => {}
        Some(Running::Switch(switch)) => drop(switch),
        Some(Running::Recording(recording, _)) => match recording.finish() {
            // A forked child has nothing to complete.
            Ok(_) | Err(Error::OfParent) => {}
            Err(error) => report(&error),
        },
    }
}

fn report(error: &Error) {
    warn(format!("the recording requested by environment variables failed: {error}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish_of(set: &[(&str, &str)]) -> Result<Option<Requested>> {
        requested(&|name| set.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn a_variable_that_needs_another_names_it_when_it_is_alone() {
        assert_eq!(wish_of(&[]).ok(), Some(None));
        for name in REFINING {
            let why = wish_of(&[(name, "1")]).expect_err(name).to_string();
            assert!(why.contains(name) && why.contains("HIGHWATER_RECORD") && why.contains("OOM_SNAPSHOT"), "{why}");
        }
    }

    #[test]
    fn every_variable_sets_its_option() {
        let wish = wish_of(&[
            ("HIGHWATER_RECORD", "run.snap"),
            ("HIGHWATER_LEVEL", "events"),
            ("HIGHWATER_SMALLEST", "4KiB"),
            ("HIGHWATER_STEPS", "10..13"),
            ("HIGHWATER_ROTATE", "1MiB,16MiB"),
            ("HIGHWATER_SYMBOLS", "never"),
            ("HIGHWATER_OOM_SNAPSHOT", "dumps"),
            ("HIGHWATER_OOM_DUMPS", "2"),
            ("HIGHWATER_SWITCH", "record.me"),
        ]);
        let options = HistoryOptions {
            level: Level::Events,
            smallest_bytes: 4096,
            steps: Some(10..13),
            rotation: Some(Rotation { file_bytes: 1 << 20, disk_bytes: Some(16 << 20) }),
            symbols: Symbols::Never,
            dump_on_oom: Some("dumps".into()),
            max_oom_dumps: 2,
            ..HistoryOptions::to_file("run.snap")
        };
        let expected = Requested { options, trigger: Some(Trigger::File("record.me".into())) };
        assert_eq!(wish.expect("all are well formed"), Some(expected));
        let ring = wish_of(&[("HIGHWATER_OOM_SNAPSHOT", "dumps"), ("HIGHWATER_RING", "5")]);
        assert_eq!(ring.ok().flatten().and_then(|wish| wish.options.ring_events), Some(5));
    }

    #[test]
    fn a_value_that_makes_no_sense_is_refused_by_name() {
        for (name, value) in [
            ("HIGHWATER_LEVEL", "loud"),
            ("HIGHWATER_STEPS", "13..10"),
            ("HIGHWATER_STEPS", "7"),
            ("HIGHWATER_SMALLEST", "1 furlong"),
            ("HIGHWATER_ROTATE", "1MiB,much"),
            ("HIGHWATER_RING", "-1"),
            ("HIGHWATER_SIGNAL", "KILLJOY"),
        ] {
            let refused = wish_of(&[("HIGHWATER_RECORD", "run.snap"), (name, value)]);
            let why = refused.expect_err(value).to_string();
            assert!(why.contains(name) && why.contains("expected"), "{why}");
        }
    }
}
