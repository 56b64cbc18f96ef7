//! Tests that the allocator reports events to a recording in PyTorch's order, and that a recording can start at any
//! time.
//!
//! Recordings are global: the tests take turns.

use std::sync::{Arc, Mutex, PoisonError};

use expect_test::expect;
use highwater_allocator::AccountingDriver;
use highwater_allocator::{AllocConfig, Block, CachingAllocator};
use highwater_recorder::snapshots::Trace;
use highwater_recorder::snapshots::event::{Range, What};
use highwater_recorder::snapshots::units::format_bytes;
use highwater_recorder::{DeviceId, HistoryOptions, Level, Source, StreamId, api, record_memory_history};

const MIB: u64 = 1 << 20;
const STREAM: StreamId = StreamId(0);

static TURN: Mutex<()> = Mutex::new(());

/// An allocator that recordings know, on its own device.
fn registered(settings: &str, driver: &AccountingDriver, device: DeviceId) -> Arc<CachingAllocator> {
    let config: AllocConfig = settings.parse().expect("valid settings");
    let allocator = CachingAllocator::new(Box::new(driver.clone()), device, config);
    let source: Arc<dyn Source> = Arc::clone(&allocator) as Arc<dyn Source>;
    api::register(&source);
    allocator
}

fn record(body: impl FnOnce()) -> Trace {
    let options = HistoryOptions::in_memory().level(Level::Events);
    let recorded = record_memory_history(options, || {
        body();
        Ok(())
    });
    recorded.expect("recording in memory works").trace.expect("the trace was wanted")
}

/// A line an event; addresses relative to the first one.
fn lines(trace: &Trace, device: DeviceId) -> String {
    let mut out = String::new();
    let mut first = None;
    for id in trace.events.ids().filter(|&id| trace.events.device[id.index().expect("an event")] == device) {
        let what = trace.what(id);
        let mut place = |address: u64| format_bytes(address - *first.get_or_insert(address));
        let text = match what {
            What::SegmentAlloc(Range { address, bytes, .. })
            | What::SegmentFree(Range { address, bytes, .. })
            | What::SegmentMap(Range { address, bytes, .. })
            | What::SegmentUnmap(Range { address, bytes, .. }) => {
                format!("{} at {}", format_bytes(bytes), place(address))
            }
            What::Alloc(alloc) => {
                let [requested, allocated] = [alloc.requested, alloc.allocated].map(format_bytes);
                format!("{requested} as {allocated} at {}, {} pool", place(alloc.address), alloc.pool)
            }
            What::Oom(oom) => format!("{}, {} free", format_bytes(oom.requested), format_bytes(oom.device_free)),
            _ => String::new(),
        };
        out.push_str(format!("{} {text}", what.kind().name()).trim_end());
        out.push('\n');
    }
    out
}

#[test]
fn events_come_in_pytorchs_order() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let driver = AccountingDriver::new(64 * MIB);
    let device = DeviceId(1);
    let trace = record(|| {
        let allocator = registered("", &driver, device);
        let malloc = |bytes: u64| allocator.malloc(bytes, STREAM).expect("there is room");
        let first = malloc(12 * MIB + 5);
        let second = malloc(100);
        allocator.free(allocator.malloc(0, STREAM).expect("nothing is always there"));
        allocator.free(first);
        driver.hold_events();
        allocator.record_stream(&second, StreamId(3));
        allocator.free(second);
        driver.complete_events(StreamId(3));
        let third = malloc(60 * MIB);
        let refused = allocator.malloc(5 * MIB, STREAM);
        assert!(refused.is_err());
        allocator.free(third);
        allocator.empty_cache().expect("the accounting device does not fail");
    });
    expect![[r#"
        segment_alloc 14 MiB at 0 B
        alloc 12.00 MiB as 12.00 MiB at 0 B, large pool
        segment_alloc 2 MiB at 14 MiB
        alloc 100 B as 512 B at 14 MiB, small pool
        free_requested
        free_completed
        free_requested
        free_completed
        segment_free 14 MiB at 0 B
        segment_free 2 MiB at 14 MiB
        segment_alloc 60 MiB at 0 B
        alloc 60 MiB as 60 MiB at 0 B, large pool
        oom 5 MiB, 4 MiB free
        free_requested
        free_completed
        segment_free 60 MiB at 0 B
    "#]]
    .assert_eq(&lines(&trace, device));
}

#[test]
fn expandable_segments_report_the_pages_that_they_map_and_unmap() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let driver = AccountingDriver::new(256 * MIB);
    let device = DeviceId(2);
    let trace = record(|| {
        let allocator = registered("expandable_segments:True", &driver, device);
        let blocks = [15 * MIB, 30 * MIB].map(|bytes| allocator.malloc(bytes, STREAM).expect("there is room"));
        blocks.into_iter().for_each(|block| allocator.free(block));
        allocator.empty_cache().expect("the accounting device does not fail");
    });
    expect![[r#"
        segment_map 20 MiB at 0 B
        alloc 15 MiB as 15 MiB at 0 B, large pool
        segment_map 40 MiB at 20 MiB
        alloc 30 MiB as 30 MiB at 15 MiB, large pool
        free_requested
        free_completed
        free_requested
        free_completed
        segment_unmap 60 MiB at 0 B
    "#]]
    .assert_eq(&lines(&trace, device));
}

#[test]
fn a_recording_that_begins_in_the_middle_knows_what_is_held() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let driver = AccountingDriver::new(256 * MIB);
    let device = DeviceId(3);
    let allocator = registered("", &driver, device);
    let early: Block = allocator.malloc(30 * MIB, STREAM).expect("there is room");
    let trace = record(|| {
        let late = allocator.malloc(MIB, STREAM).expect("there is room");
        allocator.free(early);
        allocator.free(late);
    });
    expect![[r#"
        segment_alloc 2 MiB at 0 B
        alloc 1 MiB as 1 MiB at 0 B, small pool
        free_requested
        free_completed
        free_requested
        free_completed
    "#]]
    .assert_eq(&lines(&trace, device));
    let blocks = trace.blocks.ids().map(|id| trace.blocks.get(id));
    let baseline = blocks.filter(|block| block.is_baseline()).map(|block| block.requested);
    assert_eq!(baseline.collect::<Vec<_>>(), [30 * MIB]);
    assert!(trace.problems.is_empty(), "{:?}", trace.problems);
}
