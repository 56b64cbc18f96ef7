//! Tests that events of allocators that are not registered are counted and reported as missing.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use highwater_recorder::api::{self, NewBlock};
use highwater_recorder::snapshots::format::read_file;
use highwater_recorder::snapshots::trace::DeviceFacts;
use highwater_recorder::snapshots::{StartingState, Trace};
use highwater_recorder::{DeviceId, Finished, HistoryOptions, Level, Pool, Recording, Sink, Source, StreamId};

/// The recorder is one for the process: tests that record take turns.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Device(DeviceId);

impl Source for Device {
    fn facts(&self) -> DeviceFacts {
        DeviceFacts { device: self.0, name: "test".to_owned(), ..DeviceFacts::default() }
    }

    fn freeze(&self, read: &mut dyn FnMut(StartingState)) {
        read(StartingState { device: self.0, ..StartingState::default() });
    }
}

fn registered(device: u16) -> Arc<dyn Source> {
    let source: Arc<dyn Source> = Arc::new(Device(DeviceId(device)));
    api::register(&source);
    source
}

fn block(block: u64) -> NewBlock {
    let (stream, pool) = (StreamId(0), Pool::Small);
    NewBlock { block, address: 0x1000 * block, requested: block, allocated: 512, stream, pool }
}

/// An allocation and its free: three events.
fn use_block(device: u16, number: u64) {
    api::alloc(DeviceId(device), &block(number));
    api::free(DeviceId(device), number);
}

/// The notes of a recording, and those of its file, which are no problems.
fn check(finished: Finished, missing: u64) -> Vec<String> {
    let from_file = read_file(&finished.file.expect("it has a file")).expect("it is whole");
    let trace = finished.trace.expect("it is also in memory");
    assert_eq!((finished.counts.events_unregistered, finished.counts.events_lost), (missing, 0));
    for trace in [&trace, &from_file] {
        assert_eq!((trace.header.unregistered_events(), trace.trust.events_lost), (missing, 0));
        assert_eq!((trace.is_complete(), trace.problems.len()), (missing == 0, 0));
    }
    let notes = |trace: &Trace| trace.header.notes().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(notes(&trace), notes(&from_file));
    notes(&trace)
}

fn start(folder: &tempfile::TempDir) -> Recording {
    let options = HistoryOptions { sink: Sink::Both(folder.path().join("run.snap")), ..HistoryOptions::in_memory() };
    Recording::start(options.level(Level::Events)).expect("nothing else records")
}

#[test]
fn events_of_an_allocator_that_was_never_registered_or_was_dropped_are_counted() {
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a folder for the test");
    let _kept = registered(0);
    drop(registered(1));
    let recording = start(&folder);
    for number in 0..10 {
        use_block(0, number);
        use_block(1, number);
        api::alloc_at(DeviceId(2), &block(number));
        api::free_at(DeviceId(2), 0x1000 * number);
    }
    let notes = check(recording.finish().expect("the disk has room"), 60);
    let why = "not recorded: no allocator was registered for it at that time; call api::register before it allocates, \
               and keep the registered Arc alive";
    assert_eq!(notes, [format!("30 events of device 1 {why}"), format!("30 events of device 2 {why}")]);
}

#[test]
fn events_before_an_allocator_is_registered_are_counted_and_those_after_it_recorded() {
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a folder for the test");
    let recording = start(&folder);
    use_block(3, 1);
    let _kept = registered(3);
    use_block(3, 2);
    let finished = recording.finish().expect("the disk has room");
    assert_eq!(finished.trace.as_ref().map(|trace| trace.blocks.requested.clone()), Some(vec![2]));
    assert_eq!(check(finished, 3).len(), 1);
}

#[test]
fn a_registered_allocator_that_works_while_the_recording_begins_loses_nothing() {
    let _turn = turn();
    /// Frees a block while its state is read, which the state lacks already.
    struct Busy;
    impl Source for Busy {
        fn facts(&self) -> DeviceFacts {
            DeviceFacts { device: DeviceId(4), ..DeviceFacts::default() }
        }
        fn freeze(&self, read: &mut dyn FnMut(StartingState)) {
            use_block(4, 1);
            read(StartingState { device: DeviceId(4), ..StartingState::default() });
        }
    }
    let source: Arc<dyn Source> = Arc::new(Busy);
    api::register(&source);
    let folder = tempfile::tempdir().expect("a folder for the test");
    let recording = start(&folder);
    use_block(4, 2);
    api::free_at(DeviceId(5), 0x1000);
    assert_eq!(check(recording.finish().expect("the disk has room"), 0), Vec::<String>::new());
}
