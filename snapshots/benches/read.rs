//! Measures how long a generated recording takes to write and to open, and how many bytes an event takes.
//!
//! `cargo bench -p highwater-snapshots --bench read`. `HIGHWATER_BENCH_EVENTS` sets how many events, 1,140,000 if
//! unset.

mod generated;

use std::hint::black_box;
use std::io::Write as _;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use highwater_snapshots::format::{read_bytes, write_trace};

use generated::write;

fn benches(criterion: &mut Criterion) {
    for count in generated::numbers("HIGHWATER_BENCH_EVENTS", &[1_140_000]) {
        of_size(criterion, count);
    }
}

fn of_size(criterion: &mut Criterion, count: usize) {
    let events = generated::training(count);
    let bytes = write(&events);
    let each = bytes.len() as f64 / count as f64;
    let _ = writeln!(std::io::stderr(), "{count} events in {} bytes: {each:.2} bytes an event", bytes.len());
    let mut group = criterion.benchmark_group(format!("snap_{count}_events"));
    group.sample_size(10).throughput(Throughput::Elements(count as u64));
    group.bench_function("write", |bencher| {
        bencher.iter(|| black_box(write(&events)));
    });
    group.bench_function("read", |bencher| {
        bencher.iter(|| black_box(read_bytes(&bytes).unwrap()));
    });
    let trace = read_bytes(&bytes).unwrap();
    group.bench_function("write_trace", |bencher| {
        bencher.iter(|| black_box(write_trace(Vec::new(), &trace).unwrap()));
    });
    group.finish();
}

criterion_group!(read, benches);
criterion_main!(read);
