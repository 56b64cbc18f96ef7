//! Measures the time to capture a stack and return its key, compared with the standard library's backtrace and the C
//! unwinder.
//!
//! Run this: `cargo bench -p highwater-recorder --bench stack`. `same` captures one stack again and again; a round of
//! `step` makes 256 captures of as many stacks, in the order of a training step: criterion's throughput is captures
//! a second. `nothing` runs the same functions without a capture, and is to be subtracted.

use std::backtrace::Backtrace;
use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use highwater_recorder::stack;

#[path = "overhead/walk.rs"]
mod walk;

use self::walk::{Leaf, Walk, node_of};

fn by_walk() {
    black_box(stack::capture());
}

fn by_unwinder() {
    black_box(stack::capture_portable());
}

fn by_std() {
    drop(black_box(Backtrace::force_capture()));
}

fn nothing() {
    black_box(());
}

const WAYS: [(&str, Leaf); 4] = [("walk", by_walk), ("unwinder", by_unwinder), ("std", by_std), ("nothing", nothing)];

/// One stack, `depth` frames below the benchmark, again and again.
fn same(c: &mut Criterion) {
    #[inline(never)]
    fn descend(depth: u32, leaf: Leaf, bencher: &mut criterion::Bencher<'_>) -> u32 {
        if depth == 0 {
            bencher.iter(leaf);
            return 1;
        }
        black_box(descend(depth - 1, leaf, bencher)) + 1
    }
    let mut group = c.benchmark_group("same");
    for depth in [10, 20, 40] {
        for (name, leaf) in WAYS {
            // Some twenty frames of the benchmark's own are below in any case.
            group.bench_function(BenchmarkId::new(name, depth), |bencher| {
                descend(depth - 10, leaf, bencher);
            });
        }
    }
    group.finish();
}

/// A chain, then a tree of seven levels with two captures at each of its 128 leaves.
fn step(c: &mut Criterion) {
    let mut group = c.benchmark_group("step");
    group.throughput(Throughput::Elements(256));
    for depth in [10, 20, 40] {
        for (name, leaf) in WAYS {
            let walk = Walk { leaf, branching: 7 };
            group.bench_function(BenchmarkId::new(name, depth), |bencher| {
                bencher.iter(|| node_of(0)(&walk, depth, 1));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, same, step);
criterion_main!(benches);
