//! Stack capture: nanoseconds from "where am I" to a key, beside the standard library's backtrace and the C unwinder.
//!
//! Run this: `cargo bench -p highwater-recorder --bench stack`. `same` captures one stack again and again; a round of
//! `step` makes 256 captures of as many stacks, in the order of a training step: criterion's throughput is captures
//! a second. `nothing` runs the same functions without a capture, and is to be subtracted.

use std::backtrace::Backtrace;
use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use highwater_recorder::stack;

/// What is done at the innermost frame.
type Leaf = fn();

/// A frame on the way to the leaves. `BYTES` makes each a function of its own, with a frame of its own size.
type Node = fn(&Walk, depth: u32, path: u32) -> u32;

struct Walk {
    leaf: Leaf,
    /// The innermost levels, which branch; above them there is one chain.
    branching: u32,
}

const fn four<const A: usize, const B: usize, const C: usize, const D: usize>() -> [Node; 4] {
    [node::<A>, node::<B>, node::<C>, node::<D>]
}

/// As many functions as a training step has on its stacks, more or less.
const NODES: [[Node; 4]; 6] = [
    four::<8, 16, 24, 32>(),
    four::<40, 56, 72, 88>(),
    four::<104, 120, 136, 152>(),
    four::<168, 184, 200, 216>(),
    four::<232, 248, 264, 280>(),
    four::<312, 344, 376, 408>(),
];

fn node_of(path: u32) -> Node {
    NODES[path as usize % 6][(path >> 16) as usize % 4]
}

fn next(path: u32) -> u32 {
    path.wrapping_mul(0x9e37_79b1).rotate_left(13) ^ 0x5bd1
}

#[inline(never)]
fn node<const BYTES: usize>(walk: &Walk, depth: u32, path: u32) -> u32 {
    let mut block = [0u8; BYTES];
    black_box(&mut block);
    let call = |path: u32| node_of(path)(walk, depth - 1, path);
    let found = if depth == 0 {
        (walk.leaf)();
        black_box(&mut block);
        if walk.branching > 0 {
            (walk.leaf)();
        }
        1
    } else if depth > walk.branching {
        call(next(path))
    } else {
        let first = call(next(2 * path));
        black_box(&mut block);
        first + call(next(2 * path + 1))
    };
    found + u32::from(black_box(&block)[BYTES - 1])
}

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
