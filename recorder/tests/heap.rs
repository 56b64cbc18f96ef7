//! Tests that a program's heap is recorded through the global allocator.

use std::hint::black_box;
use std::sync::{Mutex, MutexGuard, PoisonError};

use highwater_analysis::verify;
use highwater_recorder::snapshots::Trace;
use highwater_recorder::snapshots::trace::HEAP_DEVICE;
use highwater_recorder::{Category, HistoryOptions, Level, RecordedHeap, Recording, heap, scope};

#[global_allocator]
static HEAP: RecordedHeap = RecordedHeap::new();

/// The recorder is one for the process: tests that record take turns.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn trace_of(options: HistoryOptions, body: impl FnOnce()) -> Trace {
    let recording = Recording::start(options).expect("nothing else records");
    body();
    recording.finish().expect("memory takes everything").trace.expect("wanted in memory")
}

/// The requested bytes of the blocks made in scope `name`, and whether each was given back.
fn blocks_in(trace: &Trace, name: &str) -> Vec<(u64, bool)> {
    let block = |id| trace.blocks.get(id);
    let within = trace.blocks.ids().filter(|id| trace.tables.scope_path(block(*id).scope) == name);
    within.map(|id| (block(id).requested, block(id).free_completed.is_some())).collect()
}

#[test]
fn vectors_are_blocks_of_the_heap_from_their_allocation_to_their_free() {
    let _turn = turn();
    let options = HistoryOptions::in_memory();
    let mut kept = Vec::new();
    let trace = trace_of(options, || {
        let _scope = scope::scope("here");
        drop(black_box(vec![1_u8; 5000]));
        kept = black_box(vec![0_u8; 7000]);
        drop(black_box(vec![1_u8; 100]));
    });
    assert_eq!(blocks_in(&trace, "here"), [(5000, true), (7000, false)], "what is small is left out");
    assert_eq!(trace.main_device(), HEAP_DEVICE);
    assert_eq!((trace.trust.unmatched_frees, trace.trust.events_lost), (0, 0));
    assert_eq!(verify::verify_trace(&trace), []);
    let stack = trace.blocks.stack.iter().copied().find(|stack| stack.is_some()).expect("blocks have stacks");
    let told = format!("{:?}", trace.tables.lines.len());
    assert_ne!(told, "0", "stacks are resolved: {stack:?}");
    drop(kept);
}

#[test]
fn a_vector_that_grows_is_one_block_after_another() {
    let _turn = turn();
    let trace = trace_of(HistoryOptions::in_memory().level(Level::Events), || {
        let _scope = scope::scope("growing");
        let mut growing: Vec<u8> = Vec::with_capacity(2000);
        growing.resize(2000, 1);
        growing.reserve_exact(10_000);
        growing.truncate(10);
        growing.shrink_to_fit();
        black_box(&growing);
    });
    assert_eq!(blocks_in(&trace, "growing"), [(2000, true), (12_000, true)], "ten bytes are too few to be told");
}

#[test]
fn what_was_there_before_is_not_counted_when_it_goes_and_addresses_may_come_again() {
    let _turn = turn();
    let before = black_box(vec![1_u8; 9000]);
    let trace = trace_of(HistoryOptions::in_memory().level(Level::Events), || {
        drop(before);
        let _scope = scope::scope("again");
        for _ in 0..100 {
            drop(black_box(vec![1_u8; 9000]));
        }
    });
    assert_eq!(blocks_in(&trace, "again"), vec![(9000, true); 100]);
    assert_eq!(trace.trust.unmatched_frees, 0);
}

#[test]
fn what_a_vector_is_for_can_be_stated_after_it_was_made() {
    let _turn = turn();
    let trace = trace_of(HistoryOptions::in_memory().level(Level::Events), || {
        let _scope = scope::scope("tagged");
        let _category = scope::category(Category::Temporary);
        let (kept, other) = (black_box(vec![1_u8; 5000]), black_box(vec![1_u8; 6000]));
        heap::tag(kept.as_ptr(), Category::Gradient);
        heap::tag(other[1..].as_ptr(), Category::Gradient);
    });
    let tagged = trace.blocks.ids().map(|id| trace.blocks.get(id));
    let tagged: Vec<_> = tagged.map(|block| (block.requested, block.category)).collect();
    assert_eq!(tagged, [(5000, Category::Gradient), (6000, Category::Temporary)], "no block begins one byte further");
    assert_eq!(verify::verify_trace(&trace), []);
}

#[test]
fn blocks_that_wander_between_threads_are_given_back_where_they_end() {
    let _turn = turn();
    let trace = trace_of(HistoryOptions::in_memory().level(Level::Events), || {
        std::thread::scope(|threads| {
            let (send, receive) = std::sync::mpsc::channel::<Vec<u8>>();
            threads.spawn(move || receive.into_iter().for_each(drop));
            for _ in 0..4 {
                let send = send.clone();
                threads.spawn(move || {
                    let _scope = scope::scope("wandering");
                    for size in 0..1000 {
                        send.send(black_box(vec![0; 4096 + size])).expect("the other end listens");
                    }
                });
            }
        });
    });
    let wandering = blocks_in(&trace, "wandering");
    let sent: Vec<_> = wandering.iter().filter(|(bytes, _)| (4096..5096).contains(bytes)).collect();
    assert_eq!(sent.len(), 4000);
    assert!(sent.iter().all(|(_, is_freed)| *is_freed), "each was dropped on another thread");
    assert_eq!(verify::verify_trace(&trace), []);
}

#[test]
fn the_recorder_s_own_memory_is_not_on_the_timeline() {
    let _turn = turn();
    let folder = tempfile::tempdir().expect("a folder for the test");
    let trace = trace_of(
        HistoryOptions {
            sink: highwater_recorder::Sink::Both(folder.path().join("heap.snap")),
            ..HistoryOptions::in_memory()
        },
        || {
            let _scope = scope::scope("burst");
            for _ in 0..20_000 {
                drop(black_box(vec![1_u8; 2000]));
            }
        },
    );
    let (ours, foreign): (Vec<_>, Vec<_>) =
        trace.blocks.ids().map(|id| trace.blocks.get(id)).partition(|block| block.requested == 2000);
    assert_eq!(ours.len(), 20_000);
    // The test harness has threads too, and rayon's, which may be started by the recording before; all belong to the
    // program.
    let stacks = foreign.iter().map(|block| trace.tables.stack_text(block.stack).join("\n"));
    let of_recorder: Vec<String> =
        stacks.filter(|stack| ["test::", "rayon_core::"].iter().all(|other| !stack.contains(other))).collect();
    assert_eq!(of_recorder, [""; 0], "queues, batches and tables are the recorder's");
}
