//! Measures the time per recorded event, in nanoseconds, in bursts with the pattern of a training step, on one thread
//! and on several.
//!
//! Run this: `cargo bench -p highwater-recorder --bench overhead`. It prints a table of thread CPU time: the median of
//! many bursts of the same step (a chain of calls, then a tree with 128 leaves; at each leaf two allocations and two
//! frees, each half of a pair), less the same step with a null sink in place of the recorder. The recorder's own thread
//! works beside it; that nothing was lost to it is checked. `backtrace` is the crate of that name: what an event with
//! a stack costs where stacks are taken by the C unwinder.

use std::cell::Cell;
use std::hint::black_box;
use std::time::Duration;

use highwater_recorder::api::{self, NewBlock};
use highwater_recorder::{DeviceId, HistoryOptions, Level, Pool, Recording, StacksOn, StreamId, WhenBehind};

mod walk;

use self::walk::{Leaf, Walk, node_of};

/// Bursts of which the median counts.
const BURSTS: usize = 41;
/// Steps of 256 captures in a burst.
const STEPS: u32 = 40;
/// LiveBytes of the tree; the rest of the depth is a chain.
const BRANCHING: u32 = 7;

thread_local! {
    static NEXT: Cell<u64> = const { Cell::new(0) };
    static DEVICE: Cell<u16> = const { Cell::new(0) };
}

fn next_block() -> NewBlock {
    let block = NEXT.get();
    NEXT.set(block + 1);
    let address = 0x1000 * block;
    NewBlock { block, address, requested: 4000, allocated: 4096, stream: StreamId(0), pool: Pool::Small }
}

/// One allocation, and one block given back.
#[inline(never)]
fn alloc_and_free() {
    let device = DeviceId(DEVICE.get());
    let block = next_block();
    api::alloc(device, &block);
    api::free(device, block.block);
    black_box(());
}

/// What stands in for the recorder: the same values, thrown away.
#[inline(never)]
fn null_sink() {
    let block = next_block();
    black_box((DEVICE.get(), &block));
    black_box((DEVICE.get(), block.block));
}

/// The stack by the `backtrace` crate, as addresses; no event.
#[inline(never)]
fn by_backtrace() {
    black_box(backtrace::Backtrace::new_unresolved());
    black_box(next_block());
}

/// CPU time of the running thread.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Nanoseconds a leaf, median of the bursts.
fn measure(leaf: Leaf, depth: u32) -> f64 {
    let walk = Walk { leaf, branching: BRANCHING };
    let burst = || {
        let began = cpu_time();
        for _ in 0..STEPS {
            black_box(node_of(0)(&walk, depth, 1));
        }
        (cpu_time() - began).as_nanos() as f64 / f64::from(STEPS * 256)
    };
    burst();
    let mut found: Vec<f64> = (0..BURSTS)
        .map(|_| {
            let ns = burst();
            // The recorder's thread catches up outside of the measurement.
            std::thread::sleep(Duration::from_millis(4));
            ns
        })
        .collect();
    found.sort_by(f64::total_cmp);
    found[BURSTS / 2]
}

/// The median over the threads.
fn on_threads(threads: u16, leaf: Leaf, depth: u32) -> f64 {
    let run = |device: u16| {
        DEVICE.set(device);
        NEXT.set(u64::from(device) << 40);
        measure(leaf, depth)
    };
    let mut found: Vec<f64> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|device| scope.spawn(move || run(device))).collect();
        running.into_iter().map(|thread| thread.join().expect("it measures")).collect()
    });
    found.sort_by(f64::total_cmp);
    found[found.len() / 2]
}

/// A device that holds nothing when a recording begins.
struct Empty(DeviceId);

impl highwater_recorder::Source for Empty {
    fn facts(&self) -> highwater_recorder::snapshots::trace::DeviceFacts {
        highwater_recorder::snapshots::trace::DeviceFacts { device: self.0, ..Default::default() }
    }

    fn freeze(&self, read: &mut dyn FnMut(highwater_recorder::snapshots::StartingState)) {
        read(highwater_recorder::snapshots::StartingState { device: self.0, ..Default::default() });
    }
}

fn recorded(level: Level, stacks_on: StacksOn, threads: u16, depth: u32) -> f64 {
    let options = HistoryOptions { stacks_on, when_behind: WhenBehind::Drop, ..HistoryOptions::in_memory() };
    let recording = (level > Level::Off)
        .then(|| Recording::start(options.level(level).ring(100_000)).expect("nothing else records"));
    let per_leaf = on_threads(threads, alloc_and_free, depth) - on_threads(threads, null_sink, depth);
    let lost = recording.map_or(0, |recording| {
        let finished = recording.finish().expect("memory takes everything");
        let kept = finished.trace.expect("wanted in memory").events.len() as u64;
        // What left the ring was kept for a while; the rest of what is missing was dropped.
        finished.counts.events_lost.saturating_sub(finished.counts.events.saturating_sub(kept))
    });
    assert_eq!(lost, 0, "the figures are of events that were dropped");
    per_leaf / 2.0
}

#[expect(clippy::print_stdout, reason = "a benchmark tells its figures")]
fn main() {
    let sources: Vec<std::sync::Arc<dyn highwater_recorder::Source>> =
        (0..8).map(|device| std::sync::Arc::new(Empty(DeviceId(device))) as _).collect();
    sources.iter().for_each(api::register);
    println!("nanoseconds an event (half of an allocation and a free), thread CPU time, median of {BURSTS} bursts\n");
    println!("{:<34} {:>7} {:>10} {:>10} {:>10}", "", "threads", "depth 10", "depth 20", "depth 40");
    let row = |name: &str, threads: u16, ns: &dyn Fn(u32) -> f64| {
        let [ten, twenty, forty] = [10, 20, 40].map(ns);
        println!("{name:<34} {threads:>7} {ten:>10.1} {twenty:>10.1} {forty:>10.1}");
    };
    for threads in [1, 2, 8] {
        row("off", threads, &|depth| recorded(Level::Off, StacksOn::Allocs, threads, depth));
        row("events", threads, &|depth| recorded(Level::Events, StacksOn::Allocs, threads, depth));
        row("events, stacks on allocations", threads, &|depth| {
            recorded(Level::Stacks, StacksOn::Allocs, threads, depth)
        });
        row("events, stacks on both", threads, &|depth| {
            recorded(Level::Stacks, StacksOn::AllocsAndFrees, threads, depth)
        });
        row("a stack by the backtrace crate", threads, &|depth| {
            on_threads(threads, by_backtrace, depth) - on_threads(threads, null_sink, depth)
        });
    }
}
