//! Tests that the memory to open a small file stays below a limit, whichever bytes are cut or changed.

#![expect(unsafe_code, reason = "is an allocator")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::fs;
use std::io::Write as _;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use flate2::Compression;
use flate2::write::GzEncoder;
use highwater_pytorch::open::open_bytes;

/// No small file may take more; none takes a tenth of it.
const MAX_BYTES: usize = 16 << 20;

/// Larger fixtures are left to the fuzzer.
const SMALL: usize = 4 << 10;

/// Counts bytes that are allocated, and the most that were at once.
struct Counted;

static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: memory comes from the system's allocator and goes back to it unchanged.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let live = LIVE.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(live, Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTED: Counted = Counted;

/// Opens `bytes`; the bytes that it took at most, beside those that were there before.
fn taken(bytes: &[u8]) -> usize {
    let before = LIVE.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let _ = open_bytes(bytes, &mut |_| ControlFlow::Continue(()));
    PEAK.load(Ordering::Relaxed).saturating_sub(before)
}

/// The small recordings of `testdata`, of every format.
fn small_files() -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folders = ["testdata", "testdata/tools", "../testdata/v1"];
    let entries = folders.iter().flat_map(|name| fs::read_dir(folder.join(name)).unwrap());
    let mut files = Vec::new();
    for path in entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let bytes = fs::read(&path).unwrap();
        let kinds = ["pickle", "json", "gz", "html", "snap", "prof", "sqlite", "csv", "log"];
        let is_recording = kinds.iter().any(|kind| name.ends_with(kind));
        if is_recording && (bytes.len() <= SMALL || name.ends_with("html")) {
            files.push((name, bytes));
        }
    }
    files.sort();
    files
}

/// Tests that count take turns.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn a_long_string_in_a_compressed_pickle_is_refused_with_its_place_and_takes_little_memory() {
    let _turn = turn();
    let length = 80_usize << 20;
    // A dict, and then a key of this length.
    let start = [&b"\x80\x04}\x8d"[..], &(length as u64).to_le_bytes()].concat();
    let mut out = GzEncoder::new(Vec::new(), Compression::fast());
    out.write_all(&start).unwrap();
    (0..80).for_each(|_| out.write_all(&vec![b'a'; 1 << 20]).unwrap());
    let bytes = out.finish().unwrap();
    let found = taken(&bytes);
    assert!(found <= MAX_BYTES, "{found} bytes");
    let why = open_bytes(&bytes, &mut |_| ControlFlow::Continue(())).err().map(|why| why.to_string());
    let why = why.expect("it is no snapshot");
    assert!(why.contains("a string of 80 MiB; no name in a snapshot is longer than 64 MiB"), "{why}");
    assert!(why.contains("damaged at byte 3"), "{why}");
}

#[test]
fn json_of_something_else_takes_little_memory_however_long_it_is() {
    let _turn = turn();
    let event = r#"{"ph": "X", "name": "aten::mm", "ts": 1, "args": {"a": [[], {}, "text"]}},"#;
    let events = event.repeat((16 << 20) / event.len());
    for text in [format!(r#"{{"events": [{events} 1]}}"#), format!(r#"{{"segments": [{{"address": [{events} 1]}}]}}"#)]
    {
        let found = taken(text.as_bytes());
        assert!(found <= MAX_BYTES, "{found} bytes");
    }
}

#[test]
fn a_profile_of_nothing_takes_little_memory_however_long_it_is() {
    let _turn = turn();
    let types = b"\x0a\x04\x08\x01\x10\x02\x0a\x04\x08\x03\x10\x04";
    let strings = b"\x32\x00\x32\x0ballocations\x32\x05count\x32\x05space\x32\x05bytes";
    // A sample of one buffer, and empty rows of the other tables.
    for field in [&b"\x12\x04\x12\x02\x01\x01"[..], b"\x22\x00", b"\x2a\x00", b"\x32\x00"] {
        let bytes = [&types[..], strings, &field.repeat(8 << 20)].concat();
        let found = taken(&bytes);
        assert!(found <= MAX_BYTES, "field {field:?}: {found} bytes");
    }
}

#[test]
fn small_files_that_are_cut_or_changed_take_little_memory() {
    let _turn = turn();
    let files = small_files();
    for kind in ["pickle", "json.gz", "html", "snap", "prof", "csv", "log"] {
        assert!(files.iter().any(|(name, _)| name.ends_with(kind)), "there is a small file of kind {kind}");
    }
    let mut most = (0, String::new());
    for (name, bytes) in &files {
        let mut check = |bytes: &[u8], what: &str, at: usize| {
            let found = taken(bytes);
            assert!(found <= MAX_BYTES, "{name} {what} {at} takes {found} bytes");
            most = most.clone().max((found, format!("{name} {what} {at}")));
        };
        // Not every byte of each: there are many files, and they are alike.
        let step = 1 + bytes.len() / 60;
        for length in (0..=bytes.len()).step_by(step) {
            check(&bytes[..length], "cut at", length);
        }
        let mut changed = bytes.clone();
        for at in (0..bytes.len()).step_by(step) {
            for change in [1 << (at % 8), 0xff] {
                changed[at] ^= change;
                check(&changed, "changed at", at);
                changed[at] ^= change;
            }
        }
    }
    assert!(most.0 > 0, "the allocator counts");
}
