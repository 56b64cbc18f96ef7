//! Measures how long PyTorch snapshots take to read, and that the time grows linearly with the file.
//!
//! `HIGHWATER_BENCH_FILES=$PWD/1m.pickle,$PWD/oldest_1m.pickle cargo bench -p highwater-pytorch --bench pickle`, with
//! files of `snapshots/benches/generate_snapshot.py`, for example.

use std::hint::black_box;
use std::ops::ControlFlow;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use highwater_pytorch::assemble;
use highwater_pytorch::open::open_bytes;
use highwater_pytorch::pickle::read_pickle;

#[allow(clippy::print_stderr, reason = "a benchmark that has nothing to measure has to say so")]
fn benches(criterion: &mut Criterion) {
    let paths = std::env::var("HIGHWATER_BENCH_FILES").unwrap_or_default();
    if paths.is_empty() {
        eprintln!("nothing is measured: set HIGHWATER_BENCH_FILES to absolute paths of snapshots, separated by commas");
    }
    for path in paths.split(',').filter(|path| !path.is_empty()) {
        let bytes = std::fs::read(path).expect("HIGHWATER_BENCH_FILES has absolute paths of files");
        let mut group = criterion.benchmark_group(path);
        group.sample_size(10).throughput(Throughput::Bytes(bytes.len() as u64));
        let read = || read_pickle(&bytes, &mut |_| ControlFlow::Continue(())).expect("it is a snapshot");
        group.bench_function("read", |bencher| bencher.iter(|| black_box(read())));
        let raw = read();
        group.bench_function("assemble", |bencher| {
            bencher.iter_with_setup(|| raw.clone(), |raw| black_box(assemble(raw)));
        });
        drop(raw);
        let open = || open_bytes(&bytes, &mut |_| ControlFlow::Continue(())).expect("it is a snapshot");
        group.bench_function("open", |bencher| bencher.iter(|| black_box(open())));
        group.finish();
    }
}

criterion_group!(pickles, benches);
criterion_main!(pickles);
