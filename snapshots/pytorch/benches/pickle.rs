//! Measures how long a generated PyTorch snapshot takes to read, and that the time grows linearly with the file.
//!
//! `cargo bench -p highwater-pytorch --bench pickle`. `HIGHWATER_BENCH_EVENTS` sets how many events, 1,140,000 if
//! unset.

#[path = "../examples/generate_snapshot/allocator.rs"]
mod allocator;
#[path = "../examples/generate_snapshot/pickle.rs"]
mod pickle;
#[path = "../examples/generate_snapshot/program.rs"]
mod program;
#[path = "../examples/generate_snapshot/snapshot.rs"]
mod snapshot;

use std::hint::black_box;
use std::ops::ControlFlow;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use highwater_pytorch::assemble;
use highwater_pytorch::open::open_bytes;
use highwater_pytorch::pickle::read_pickle;

use program::Plan;

fn generated(plan: &Plan) -> Vec<u8> {
    let mut bytes = Vec::new();
    snapshot::write(plan, &mut bytes).expect("memory takes everything");
    bytes
}

fn benches(criterion: &mut Criterion) {
    let events = std::env::var("HIGHWATER_BENCH_EVENTS").ok().and_then(|text| text.parse().ok()).unwrap_or(1_140_000);
    let training = Plan { events, oldest_first: None, devices: 1, depth: 40, stacks: 4_000, seed: 0 };
    let bytes = generated(&training);
    let mut group = criterion.benchmark_group(format!("pickle_{events}_events"));
    group.sample_size(10).throughput(Throughput::Bytes(bytes.len() as u64));
    group.bench_function("read", |bencher| {
        bencher.iter(|| black_box(read_pickle(&bytes, &mut |_| ControlFlow::Continue(())).expect("it is a snapshot")));
    });
    let raw = read_pickle(&bytes, &mut |_| ControlFlow::Continue(())).expect("it is a snapshot");
    group.bench_function("assemble", |bencher| {
        bencher.iter_with_setup(|| raw.clone(), |raw| black_box(assemble(raw)));
    });
    group.finish();
    drop((raw, bytes));

    let mut group = criterion.benchmark_group("oldest_first");
    group.sample_size(10);
    for blocks in [10_000, 100_000, 1_000_000] {
        let bytes = generated(&Plan { oldest_first: Some(blocks), ..training });
        group.throughput(Throughput::Elements(blocks));
        group.bench_with_input(BenchmarkId::from_parameter(blocks), &bytes, |bencher, bytes| {
            bencher
                .iter(|| black_box(open_bytes(bytes, &mut |_| ControlFlow::Continue(())).expect("it is a snapshot")));
        });
    }
    group.finish();
}

criterion_group!(pickles, benches);
criterion_main!(pickles);
