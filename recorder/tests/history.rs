//! Tests of recordings of other allocators, through the allocator-neutral functions only.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use highwater_analysis::frames::user_line;
use highwater_analysis::{Metric, Series};
use highwater_notation::text_from_trace;
use highwater_recorder::api::{self, NewBlock};
use highwater_recorder::snapshots::event::{Alloc, Range};
use highwater_recorder::snapshots::format::read_file;
use highwater_recorder::snapshots::text::event_text;
use highwater_recorder::snapshots::trace::{DeviceFacts, LEFT_OUT};
use highwater_recorder::snapshots::{EventId, StartingBlock, StartingState, Trace};
use highwater_recorder::{
    Category, DeviceId, Error, HistoryOptions, Level, OpId, Phase, Pool, Recording, ScopeId, Sink, Source, StackId,
    StacksOn, StreamId, record_memory_history, scope,
};

/// The recorder is one for the process: tests that record take turns.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    scope::leave_steps();
    turn
}

/// Hands out addresses from a counter; every block is a segment's worth of its own.
struct Foreign {
    device: DeviceId,
    next: AtomicU64,
    live: Mutex<Vec<NewBlock>>,
}

impl Foreign {
    fn registered(device: u16) -> Arc<Self> {
        let device = DeviceId(device);
        let allocator = Arc::new(Self { device, next: AtomicU64::new(0), live: Mutex::new(Vec::new()) });
        let source: Arc<dyn Source> = allocator.clone();
        api::register(&source);
        allocator
    }

    fn alloc(&self, bytes: u64) -> u64 {
        let mut live = self.live.lock().expect("no test panics while it holds this");
        let block = self.next.fetch_add(1, Ordering::Relaxed);
        let block = NewBlock {
            block,
            address: 0x1000 * (block + 1),
            requested: bytes,
            allocated: bytes.next_multiple_of(512),
            stream: StreamId(0),
            pool: Pool::Small,
        };
        live.push(block);
        api::alloc(self.device, &block);
        block.block
    }

    fn free(&self, block: u64) {
        let mut live = self.live.lock().expect("no test panics while it holds this");
        live.retain(|known| known.block != block);
        api::free_requested(self.device, block);
        api::free_completed(self.device, block);
    }
}

impl Source for Foreign {
    fn facts(&self) -> DeviceFacts {
        DeviceFacts { device: self.device, name: "foreign".to_owned(), ..DeviceFacts::default() }
    }

    fn freeze(&self, read: &mut dyn FnMut(StartingState)) {
        let live = self.live.lock().expect("no test panics while it holds this");
        let block = |known: &NewBlock| StartingBlock {
            alloc: Alloc {
                block: known.block,
                address: known.address,
                requested: known.requested,
                allocated: known.allocated,
                stream: known.stream,
                pool: known.pool,
                category: Category::Parameter,
                op: OpId::NONE,
                scope: ScopeId::NONE,
            },
            stack: StackId::NONE,
            free_requested: false,
        };
        read(StartingState { device: self.device, blocks: live.iter().map(block).collect(), ..Default::default() });
    }
}

fn trace_of(options: HistoryOptions, body: impl FnOnce()) -> Trace {
    let recording = Recording::start(options).expect("nothing else records");
    body();
    recording.finish().expect("memory takes everything").trace.expect("wanted in memory")
}

fn in_memory() -> HistoryOptions {
    HistoryOptions::in_memory().level(Level::Events)
}

#[test]
fn a_recording_that_begins_in_the_middle_counts_what_was_there() {
    let _turn = turn();
    let allocator = Foreign::registered(0);
    let weights = allocator.alloc(1000);
    let trace = trace_of(in_memory(), || {
        let _scope = scope::scope("net");
        let _inner = scope::scope("fc");
        let _op = scope::op("linear");
        let _category = scope::category(Category::Activation);
        let activation = allocator.alloc(300);
        allocator.free(activation);
    });
    allocator.free(weights);
    assert_eq!(
        text_from_trace(&trace),
        "baseline b0 1000/1024 parameter small\n\
         alloc b1 300/512 activation #linear @net.fc small\n\
         free_requested b1\n\
         free_completed b1\n"
    );
    assert_eq!(Series::build(&trace, DeviceId(0)).peak(&trace, Metric::Requested).0, 1300);
}

#[test]
fn steps_phases_marks_tags_and_failed_requests_stand_in_order() {
    let _turn = turn();
    let allocator = Foreign::registered(0);
    let trace = trace_of(in_memory(), || {
        scope::step(4);
        let block = {
            let _phase = scope::phase(Phase::Forward);
            allocator.alloc(512)
        };
        api::tag(DeviceId(0), block, Category::Gradient);
        api::mark("half way");
        api::reserve(DeviceId(0), Range { address: 0, bytes: 1 << 21, stream: StreamId(0), pool: Pool::Small });
        api::device_used(DeviceId(0), 1 << 30);
        api::oom(DeviceId(0), None, 1 << 40, 77);
    });
    let events: Vec<String> = trace.events.ids().map(|id| event_text(&trace, id)).collect();
    assert_eq!(
        events,
        [
            "step 4",
            "phase forward",
            "alloc b0 512/512 gradient small",
            "phase other",
            "tag b0 gradient",
            "mark half way",
            "segment_alloc 0x0 2097152 small",
            "device_used 1073741824",
            "oom 1099511627776 free=77",
        ]
    );
}

#[test]
fn a_full_ring_keeps_the_newest_counts_the_loss_and_still_adds_up() {
    let _turn = turn();
    let allocator = Foreign::registered(0);
    let recording = Recording::start(in_memory().ring(10)).expect("nothing else records");
    scope::step(0);
    let kept: Vec<u64> = (0..100).map(|size| allocator.alloc(100 + size)).collect();
    for &block in &kept[..40] {
        allocator.free(block);
    }
    let finished = recording.finish().expect("memory takes everything");
    let trace = finished.trace.expect("wanted in memory");
    assert_eq!(finished.counts.events, 181);
    assert_eq!((trace.trust.events_lost, finished.counts.events_lost), (171, 171));
    let series = Series::build(&trace, DeviceId(0));
    let live: u64 = (40..100).map(|size| 100 + size).sum();
    assert_eq!(series.end(&trace).requested, live, "blocks from before the ring's first event are still there");
    assert_eq!(trace.spans.steps(), [0], "the ring remembers the step that it is in");
    assert_eq!(trace.trust.unmatched_frees, 0);
}

#[test]
fn uses_are_recorded_where_they_are_asked_for_and_nowhere_else() {
    let _turn = turn();
    let allocator = Foreign::registered(0);
    let weights = allocator.alloc(1000);
    let small = allocator.alloc(10);
    let body = || {
        let first = allocator.alloc(300);
        for block in [weights, small, first, weights] {
            api::used(allocator.device, block);
        }
        allocator.free(first);
    };
    let asked = HistoryOptions { smallest_bytes: 100, ..in_memory() }.uses(true);
    let trace = trace_of(asked.clone(), body);
    assert_eq!(
        text_from_trace(&trace),
        "baseline b0 1000/1024 parameter small\n\
         alloc b1 300/512 unknown small\n\
         used b0\n\
         used b1\n\
         used b0\n\
         free_requested b1\n\
         free_completed b1\n"
    );
    assert_eq!(trace.blocks.last_use, [EventId(3), EventId(2)]);
    assert!(trace.trust.is_complete());
    let ring = trace_of(asked.clone().ring(3), body);
    assert_eq!((ring.blocks.last_use.as_slice(), ring.trust.events_lost), (&[EventId(0), EventId::NONE][..], 3));
    let folder = tempfile::tempdir().expect("a folder for the test");
    let path = folder.path().join("uses.snap");
    let to_file = Recording::start(HistoryOptions { sink: Sink::File(path.clone()), ..asked.clone() });
    let to_file = to_file.expect("nothing else records");
    body();
    to_file.finish().expect("the disk has room");
    let read = read_file(&path).expect("the recording opens");
    assert_eq!(text_from_trace(&read), text_from_trace(&trace));
    for without in [in_memory(), asked.clone().level(Level::State)] {
        assert!(!trace_of(without, body).records_uses());
        assert!(!api::records_uses());
    }
    let with_stacks = HistoryOptions { stacks_on: StacksOn::AllocsAndFrees, ..asked }.level(Level::Stacks);
    let trace = trace_of(with_stacks, body);
    let stack = trace.events.stack[trace.blocks.last_use[0].0 as usize];
    assert!(trace.tables.stack_text(stack).join("\n").contains("uses_are_recorded_where"), "{stack:?}");
    allocator.free(weights);
    allocator.free(small);
}

#[test]
fn small_blocks_are_left_out_with_their_frees_and_counted() {
    let _turn = turn();
    let allocator = Foreign::registered(0);
    let old = allocator.alloc(10);
    let options = HistoryOptions { smallest_bytes: 100, ..in_memory() };
    let recording = Recording::start(options).expect("nothing else records");
    let (small, large) = (allocator.alloc(99), allocator.alloc(100));
    for block in [old, small, large] {
        allocator.free(block);
    }
    let finished = recording.finish().expect("memory takes everything");
    let trace = finished.trace.expect("wanted in memory");
    assert_eq!(
        (trace.blocks.requested.as_slice(), finished.counts.small_blocks),
        (&[100][..], 2),
        "one was there before"
    );
    let events = "2 blocks were left out, each smaller than 100 B, as requested: totals do not include them";
    assert_eq!(trace.header.notes().collect::<Vec<_>>(), [events]);
    assert!(trace.header.facts.contains(&(LEFT_OUT.to_owned(), "2".to_owned())));
    assert_eq!(trace.trust.unmatched_frees, 0);
}

#[test]
fn chosen_steps_are_recorded_and_no_others() {
    let _turn = turn();
    let allocator = Foreign::registered(0);
    let trace = trace_of(in_memory().only_steps(2..4), || {
        for step in 0..6 {
            scope::step(step);
            allocator.alloc(u64::from(step) + 1);
        }
    });
    assert_eq!(trace.spans.steps(), [2, 3]);
    assert_eq!(trace.blocks.requested, [1, 2, 3, 4], "two from before, as baseline, and those of two steps");
    assert!(trace.blocks.get(highwater_recorder::snapshots::BlockId(1)).is_baseline());
}

#[test]
fn a_file_and_a_memory_recording_of_the_same_events_are_equal() {
    let _turn = turn();
    let allocator = Foreign::registered(0);
    allocator.alloc(4096);
    let folder = tempfile::tempdir().expect("a folder for the test");
    let path = folder.path().join("both.snap");
    let options = HistoryOptions { sink: Sink::Both(path.clone()), ..HistoryOptions::in_memory() };
    let recorded = record_memory_history(options, || {
        scope::step(0);
        for size in 0..50_000 {
            let _scope = scope::scope(if size % 2 == 0 { "even" } else { "odd" });
            let block = allocator.alloc(size);
            if size % 3 != 0 {
                allocator.free(block);
            }
        }
        Ok("done")
    });
    let recorded = recorded.expect("it succeeds");
    assert_eq!((recorded.value, recorded.file.as_deref()), ("done", Some(path.as_path())));
    let (from_memory, from_file) = (recorded.trace.expect("both"), read_file(&path).expect("a whole file"));
    assert_eq!(text_from_trace(&from_memory), text_from_trace(&from_file));
    assert!(from_file.trust.is_complete(), "{:?}", from_file.trust.sentences());
    assert_eq!(from_file.header.level, "stacks");
    let stack = from_file.tables.stack_text(from_file.blocks.stack[1]);
    let own = stack.iter().find(|line| line.contains("a_file_and_a_memory_recording_of_the_same_events_are_equal"));
    assert!(own.is_some_and(|line| line.contains("tests/history.rs:")), "{stack:#?}");
    let user = user_line(&from_file.tables, from_file.blocks.stack[1]).map(|line| from_file.tables.line_text(&line));
    assert!(user.as_deref().is_some_and(|line| line.contains("a_file_and_a_memory")), "{user:?} of {stack:#?}");
    assert!(stack.iter().any(|line| line.contains("Foreign")), "the allocator's own line is there: {stack:#?}");
}

#[test]
fn a_program_that_fails_leaves_its_recording_and_gets_its_own_error_back() {
    let _turn = turn();
    let allocator = Foreign::registered(0);
    let folder = tempfile::tempdir().expect("a folder for the test");
    let path = folder.path().join("failed.snap");
    let result = record_memory_history(HistoryOptions::to_file(&path), || -> Result<(), _> {
        allocator.alloc(1);
        Err("no luck".into())
    });
    match result {
        Err(Error::Body { source, file }) => {
            assert_eq!((source.to_string().as_str(), file), ("no luck", Some(path.clone())));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(read_file(&path).expect("a whole file").blocks.len(), 1);
}

#[test]
fn a_path_that_cannot_be_written_is_refused_at_the_start_and_a_second_recording_too() {
    let _turn = turn();
    let missing = std::path::Path::new("/no/such/folder/step.snap");
    let error = Recording::start(HistoryOptions::to_file(missing)).expect_err("there is no such folder");
    assert!(error.to_string().ends_with("path: /no/such/folder/step.snap"), "{error}");
    let first = Recording::start(in_memory()).expect("the refused one left nothing behind");
    assert!(matches!(Recording::start(in_memory()), Err(Error::AlreadyRecording)));
    first.finish().expect("memory takes everything");
}

#[test]
fn running_out_of_memory_dumps_the_history_while_the_program_still_lives() {
    let _turn = turn();
    let allocator = Foreign::registered(0);
    let folder = tempfile::tempdir().expect("a folder for the test");
    let options = HistoryOptions { dump_on_oom: Some(folder.path().to_owned()), ..in_memory().ring(100) };
    let recording = Recording::start(options).expect("nothing else records");
    allocator.alloc(123);
    api::oom(DeviceId(0), None, 1 << 50, 0);
    let dumps: Vec<_> = std::fs::read_dir(folder.path()).expect("the folder").flatten().collect();
    assert_eq!(dumps.len(), 1);
    let dump = read_file(&dumps[0].path()).expect("a whole file");
    assert_eq!((dump.ooms.len(), dump.blocks.requested.as_slice()), (1, &[123][..]));
    recording.finish().expect("the recording goes on after a dump");
}

#[test]
fn the_state_alone_is_recorded_without_events() {
    let _turn = turn();
    let allocator = Foreign::registered(0);
    let trace = trace_of(HistoryOptions::in_memory().level(Level::State), || {
        let gone = allocator.alloc(7);
        allocator.alloc(9);
        allocator.free(gone);
    });
    assert_eq!((trace.events.len(), trace.blocks.requested.as_slice()), (0, &[9][..]));
}

#[test]
fn the_state_alone_goes_to_a_file_too() {
    let _turn = turn();
    let allocator = Foreign::registered(0);
    let folder = tempfile::tempdir().expect("a folder for the test");
    let path = folder.path().join("state.snap");
    let recording = Recording::start(HistoryOptions::to_file(&path).level(Level::State)).expect("nothing else records");
    allocator.alloc(9);
    recording.finish().expect("the disk has room");
    assert_eq!(read_file(&path).expect("a whole file").blocks.requested, [9]);
}

#[test]
fn what_follows_the_last_step_belongs_to_none_and_is_not_recorded_where_steps_were_chosen() {
    let _turn = turn();
    let allocator = Foreign::registered(0);
    let train = || {
        scope::step(0);
        allocator.alloc(1);
        scope::leave_steps();
        allocator.alloc(2);
    };
    let trace = trace_of(in_memory(), train);
    let steps: Vec<Option<u32>> = trace.spans.rows().iter().map(|span| span.step).collect();
    assert_eq!(steps, [Some(0), None]);
    let trace = trace_of(in_memory().only_steps(0..9), train);
    assert_eq!(trace.blocks.requested, [1, 2, 1], "two from before, and step 0's");
}

#[test]
#[expect(clippy::print_stderr, reason = "says that nothing was tested, and why")]
fn a_program_keeps_its_result_when_the_recording_cannot_be_completed() {
    let _turn = turn();
    let allocator = Foreign::registered(0);
    let full = std::path::Path::new("/dev/full");
    if !full.exists() {
        eprintln!("skipped: this system has no /dev/full");
        return;
    }
    let options = HistoryOptions { sink: Sink::Both(full.to_owned()), ..in_memory().ring(10) };
    let recorded = record_memory_history(options, || Ok(allocator.alloc(5))).expect("the program succeeds");
    assert!(recorded.problem.is_some_and(|problem| problem.to_string().ends_with("path: /dev/full")));
    assert_eq!(recorded.trace.map(|trace| trace.blocks.len()), Some(1), "what is in memory is whole");
}

#[test]
fn running_out_of_memory_while_other_threads_go_on_does_not_wait_for_them() {
    let _turn = turn();
    let allocator = Foreign::registered(0);
    let folder = tempfile::tempdir().expect("a folder for the test");
    let path = folder.path().join("busy.snap");
    let recording =
        Recording::start(HistoryOptions::to_file(&path).level(Level::Events)).expect("nothing else records");
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|threads| {
        threads.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                allocator.free(allocator.alloc(64));
            }
        });
        for _ in 0..5 {
            api::oom(DeviceId(0), None, 1 << 50, 0);
        }
        done.store(true, Ordering::Relaxed);
    });
    recording.finish().expect("the disk has room");
    let trace = read_file(&path).expect("a whole file");
    assert_eq!((trace.ooms.len(), trace.trust.events_lost), (5, 0));
}

#[test]
fn eight_threads_keep_each_their_own_scope_and_no_event_is_lost() {
    let _turn = turn();
    let allocator = Foreign::registered(0);
    let trace = trace_of(in_memory(), || {
        std::thread::scope(|threads| {
            for thread in 0..8 {
                let allocator = &allocator;
                threads.spawn(move || {
                    let _scope = scope::scope(&format!("t{thread}"));
                    for turn in 0..500 {
                        let _inner = scope::scope(["even", "odd"][turn % 2]);
                        let _op = scope::op(["add", "mul"][turn % 2]);
                        let block = allocator.alloc(2 * thread + turn as u64 % 2 + 1);
                        allocator.free(block);
                    }
                });
            }
        });
    });
    assert_eq!(trace.events.len(), 8 * 500 * 3);
    for id in trace.blocks.ids() {
        let block = trace.blocks.get(id);
        let (thread, odd) = ((block.requested - 1) / 2, (block.requested as usize - 1) % 2);
        assert_eq!(trace.tables.scope_path(block.scope), format!("t{thread}.{}", ["even", "odd"][odd]));
        let op = trace.tables.ops[block.op.index().expect("each has an operation")];
        assert_eq!(trace.tables.op_name(block.op), ["add", "mul"][odd]);
        assert_eq!(op.scope, block.scope);
        assert!(block.free_completed.is_some());
    }
    assert!(trace.events.time_ns.is_sorted(), "the order of the lock is the order of time");
}

#[test]
fn two_devices_are_recorded_apart_and_one_may_join_late() {
    let _turn = turn();
    let first = Foreign::registered(0);
    let trace = {
        let recording = Recording::start(in_memory()).expect("nothing else records");
        first.alloc(100);
        let second = Foreign::registered(1);
        second.alloc(200);
        recording.finish().expect("memory takes everything").trace.expect("wanted in memory")
    };
    assert_eq!(trace.device_ids(), [DeviceId(0), DeviceId(1)]);
    let end = |device| Series::build(&trace, DeviceId(device)).end(&trace).requested;
    assert_eq!((end(0), end(1)), (100, 200));
}
