//! Tests that a child forked during a recording records nothing and leaves the parent's file unchanged.

#![cfg(unix)]
#![expect(unsafe_code, reason = "forks, which Rust has no safe call for")]

use std::sync::Arc;

use highwater_recorder::api::{self, NewBlock};
use highwater_recorder::snapshots::StartingState;
use highwater_recorder::snapshots::format::read_file;
use highwater_recorder::snapshots::trace::DeviceFacts;
use highwater_recorder::{DeviceId, Error, HistoryOptions, Level, Pool, Recording, Source, StreamId};

struct Empty;

impl Source for Empty {
    fn facts(&self) -> DeviceFacts {
        DeviceFacts::default()
    }

    fn freeze(&self, read: &mut dyn FnMut(StartingState)) {
        read(StartingState::default());
    }
}

fn alloc(block: u64) {
    let (stream, pool) = (StreamId(0), Pool::Small);
    let address = 0x1000 * block;
    api::alloc(DeviceId(0), &NewBlock { block, address, requested: block, allocated: 512, stream, pool });
}

/// What the child finds, as the status that it ends with.
fn child(recording: Recording) -> i32 {
    if api::is_recording() {
        return 1;
    }
    alloc(400);
    match recording.finish() {
        Err(Error::OfParent) => 0,
        _ => 2,
    }
}

#[test]
fn a_forked_child_neither_records_nor_touches_its_parent_s_recording() {
    let source: Arc<dyn Source> = Arc::new(Empty);
    api::register(&source);
    let folder = tempfile::tempdir().expect("a folder for the test");
    let path = folder.path().join("parent.snap");
    let options = HistoryOptions::to_file(&path).level(Level::Events);
    let recording = Recording::start(options).expect("nothing else records");
    alloc(100);
    // SAFETY: the child uses nothing that another thread could hold, and ends without returning.
    let forked = unsafe { libc::fork() };
    assert!(forked >= 0, "the system has room for a process");
    if forked == 0 {
        let status = child(recording);
        // SAFETY: ends the process, and runs nothing of the parent's.
        unsafe { libc::_exit(status) };
    }
    let mut status = 0;
    // SAFETY: our own child, and our own place for its status.
    unsafe { libc::waitpid(forked, &raw mut status, 0) };
    assert_eq!(status, 0, "the child's status");
    alloc(200);
    recording.finish().expect("the disk has room");
    assert_eq!(read_file(&path).expect("a whole file").blocks.requested, [100, 200]);
}
