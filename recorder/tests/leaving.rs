//! Tests the contents of a recording when its program exits without finishing the recording, for every way to exit.

#![cfg(unix)]
#![expect(unsafe_code, reason = "leaves by _exit, which Rust has no safe call for")]
#![expect(clippy::disallowed_methods, reason = "leaves in every way that there is, also from a thread without a name")]

use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use highwater_recorder::api::{self, NewBlock};
use highwater_recorder::snapshots::format::read_file;
use highwater_recorder::snapshots::trace::DeviceFacts;
use highwater_recorder::snapshots::{StartingState, Trace};
use highwater_recorder::{DeviceId, HistoryOptions, Pool, Recording, Source, StreamId};

const CHILD: &str = "HIGHWATER_TEST_LEAVING_CHILD";
const HANDLING_CHILD: &str = "HIGHWATER_TEST_HANDLING_CHILD";
static FORMER: AtomicUsize = AtomicUsize::new(0);
const BLOCKS: u64 = 100;

struct Empty;

impl Source for Empty {
    fn facts(&self) -> DeviceFacts {
        DeviceFacts { name: "test".to_owned(), ..DeviceFacts::default() }
    }

    fn freeze(&self, read: &mut dyn FnMut(StartingState)) {
        read(StartingState::default());
    }
}

/// Ways in which a recording is completed, and those in which it is flushed.
const COMPLETED: [&str; 4] = ["exit", "exit_of_a_thread", "panic", "quick_exit"];
const FLUSHED: [&str; 6] = ["abort", "HUP", "INT", "QUIT", "ABRT", "TERM"];

unsafe extern "C" {
    #[cfg(target_os = "linux")]
    fn quick_exit(status: libc::c_int) -> !;
}

/// Sends a signal to this process, which does not survive it.
fn send(signal: &str) {
    let number = match signal {
        "HUP" => libc::SIGHUP,
        "INT" => libc::SIGINT,
        "QUIT" => libc::SIGQUIT,
        "ABRT" => libc::SIGABRT,
        "TERM" => libc::SIGTERM,
        "KILL" => libc::SIGKILL,
        other => panic!("{other}"),
    };
    // SAFETY: ends the process.
    unsafe { libc::raise(number) };
    std::thread::sleep(Duration::from_secs(60));
}

/// Not a separate test: what the children of the tests below run.
#[test]
fn the_child_records_and_leaves() {
    let Some((way, path)) = std::env::var(CHILD).ok().and_then(|text| {
        let (way, path) = text.split_once(' ')?;
        Some((way.to_owned(), path.to_owned()))
    }) else {
        return;
    };
    let source: Arc<dyn Source> = Arc::new(Empty);
    api::register(&source);
    // Without the early writes, nothing would be in the file for an hour. A program whose end is hooked does not wait.
    let options = HistoryOptions { flush_every: Duration::from_secs(3600), ..HistoryOptions::to_file(&path) };
    let recording = Recording::start(options).expect("nothing else records");
    for block in 0..BLOCKS {
        let (stream, pool) = (StreamId(0), Pool::Small);
        let address = 0x1000 * block;
        api::alloc(DeviceId(0), &NewBlock { block, address, requested: 1, allocated: 512, stream, pool });
    }
    let is_hooked = COMPLETED.contains(&way.as_str()) || FLUSHED.contains(&way.as_str());
    let has_all = || read_file(Path::new(&path)).is_ok_and(|trace| trace.blocks.len() as u64 == BLOCKS);
    while !is_hooked && !has_all() {
        std::thread::sleep(Duration::from_millis(1));
    }
    match way.as_str() {
        "exit" => std::process::exit(0),
        "exit_of_a_thread" => drop(std::thread::spawn(|| std::process::exit(0)).join()),
        "panic" => panic!("the guard is dropped"),
        "abort" => std::process::abort(),
        #[cfg(target_os = "linux")]
        // SAFETY: ends the process.
        "quick_exit" => unsafe { quick_exit(0) },
        #[cfg(not(target_os = "linux"))]
        "quick_exit" => std::process::exit(0),
        "exec" => drop(Command::new("true").exec()),
        // SAFETY: ends the process; nothing of it is used afterwards.
        "_exit" => unsafe { libc::_exit(0) },
        signal => send(signal),
    }
    drop(recording);
}

/// What is in the file of a child that left in this way, and what it said.
fn left(way: &str) -> (Trace, Output) {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let path = folder.path().join("left.snap");
    let program = std::env::current_exe().expect("the test binary");
    let mut child = Command::new(program);
    child.args(["--exact", "the_child_records_and_leaves", "--nocapture", "--test-threads=1"]);
    child.env(CHILD, format!("{way} {}", path.display())).stdin(Stdio::null());
    let heed_hangups = || {
        // SAFETY: signal is safe to call between fork and exec. Under nohup, programs ignore the signal otherwise.
        unsafe { libc::signal(libc::SIGHUP, libc::SIG_DFL) };
        Ok(())
    };
    // SAFETY: as above.
    unsafe { child.pre_exec(heed_hangups) };
    let output = child.output().expect("the test binary runs again");
    let trace = read_file(&path).unwrap_or_else(|why| panic!("{way}: {why}"));
    assert_eq!(trace.blocks.len() as u64, BLOCKS, "{way}: {}", String::from_utf8_lossy(&output.stderr));
    (trace, output)
}

#[test]
fn a_program_that_exits_or_panics_leaves_a_complete_file_with_source_lines() {
    for way in COMPLETED {
        let (trace, _) = left(way);
        assert!(!trace.trust.unfinished, "{way}");
        assert!(!trace.tables.lines.is_empty(), "{way}");
    }
}

/// Not a separate test: a program that handles a signal, after it began to record.
#[test]
fn the_child_handles_a_signal() {
    extern "C" fn chained(number: libc::c_int) {
        let former = FORMER.load(Ordering::Relaxed);
        // SAFETY: the handler that was there before, which takes a signal's number.
        unsafe { std::mem::transmute::<usize, extern "C" fn(libc::c_int)>(former)(number) };
    }
    let Some(path) = std::env::var_os(HANDLING_CHILD) else { return };
    let recording = Recording::start(HistoryOptions::to_file(&path)).expect("nothing else records");
    // SAFETY: the handler calls only the one before it.
    let former = unsafe { libc::signal(libc::SIGTERM, chained as *const () as usize) };
    assert!(former != libc::SIG_DFL && former != libc::SIG_ERR);
    FORMER.store(former, Ordering::Relaxed);
    // SAFETY: handled above.
    unsafe { libc::raise(libc::SIGTERM) };
    recording.finish().expect("the program goes on");
    std::process::exit(9);
}

#[test]
fn a_handler_of_the_program_s_own_that_calls_the_one_before_it_decides_what_a_signal_does() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let program = std::env::current_exe().expect("the test binary");
    let mut child = Command::new(program);
    child.args(["--exact", "the_child_handles_a_signal", "--nocapture", "--test-threads=1"]);
    let status = child.env(HANDLING_CHILD, folder.path().join("a.snap")).status().expect("the test binary runs again");
    assert_eq!(status.code(), Some(9), "{status}");
}

#[test]
fn a_program_that_ends_otherwise_leaves_what_was_written_with_addresses() {
    for way in FLUSHED.into_iter().chain(["exec", "_exit", "KILL"]) {
        let (trace, output) = left(way);
        let signal = match way {
            "abort" | "ABRT" => Some(libc::SIGABRT),
            "HUP" => Some(libc::SIGHUP),
            "INT" => Some(libc::SIGINT),
            "QUIT" => Some(libc::SIGQUIT),
            "TERM" => Some(libc::SIGTERM),
            "KILL" => Some(libc::SIGKILL),
            _ => None,
        };
        assert_eq!(output.status.signal(), signal, "{way}: as without a recording");
        assert!(trace.trust.unfinished, "{way}");
        assert!(trace.tables.lines.is_empty() && !trace.tables.frames.is_empty(), "{way}");
    }
}
