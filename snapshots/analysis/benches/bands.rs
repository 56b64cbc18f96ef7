//! Benchmarks building the indexes of a recording, and drawing all or part of it.
//!
//! `cargo bench -p highwater-analysis --bench bands`. `HIGHWATER_BENCH_EVENTS` sets the numbers of events, separated by
//! commas; default 100,000 and 1,140,000. `HIGHWATER_BENCH_BLOCKS` sets the numbers of blocks freed oldest first;
//! default 10,000 and 1,000,000. With `HIGHWATER_BENCH_CPU` set, times are CPU times of all threads together.

#[path = "../../benches/generated/cpu_time.rs"]
mod cpu_time;
#[path = "../../benches/generated/mod.rs"]
mod generated;

use std::hint::black_box;
use std::ops::Range;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use highwater_analysis::bands::{Across, BandWindow, Bands, Raster, column_totals};
use highwater_analysis::{LiveIndex, Metric, Series, Totals};
use highwater_snapshots::format::read_bytes;
use highwater_snapshots::{BlockId, DeviceId, Trace};

use cpu_time::CpuTime;

const WIDTH: usize = 1400;
const HEIGHT: usize = 600;

/// Everything between a file and its first drawing, except colours and the window.
fn first_picture(bytes: &[u8]) -> (Trace, Raster, Vec<Totals>) {
    let device = DeviceId(0);
    let trace = read_bytes(bytes).unwrap();
    let (series, live) = rayon::join(|| Series::build(&trace, device), || LiveIndex::build(&trace, device));
    let bytes = 0..series.peak(&trace, Metric::Requested).0;
    let across = Across::Moments(0.0..trace.events.len() as f64 + 1.0);
    let window = BandWindow { metric: Metric::Requested, across, width: WIDTH, bytes, height: HEIGHT };
    let bands = Bands::in_block_order(&trace, device);
    let raster = bands.raster(&trace, &live, &series, &window);
    let totals = column_totals(&trace, &series, &window);
    (trace, raster, totals)
}

fn measure(criterion: &mut Criterion<CpuTime>, name: &str, bytes: &[u8]) {
    let device = DeviceId(0);
    let trace = &read_bytes(bytes).unwrap();
    let category = &trace.blocks.category;
    let rank_of = |id: BlockId| category[id.0 as usize] as u8;
    let mut group = criterion.benchmark_group(name);
    group.sample_size(10).warm_up_time(Duration::from_millis(100)).measurement_time(Duration::from_secs(1));
    group.bench_function("first_picture_from_bytes", |bencher| bencher.iter(|| black_box(first_picture(bytes))));
    group.bench_function("build_series", |bencher| bencher.iter(|| black_box(Series::build(trace, device))));
    group.bench_function("build_live", |bencher| bencher.iter(|| black_box(LiveIndex::build(trace, device))));
    group.bench_function("bands_by_age", |bencher| bencher.iter(|| black_box(Bands::in_block_order(trace, device))));
    group.bench_function("bands_by_group", |bencher| {
        bencher.iter(|| black_box(Bands::grouped(trace, device, rank_of)));
    });
    let (series, live) = (Series::build(trace, device), LiveIndex::build(trace, device));
    let orders = [("age", Bands::in_block_order(trace, device)), ("group", Bands::grouped(trace, device, rank_of))];
    let (peak, event) = series.peak(trace, Metric::Requested);
    let middle = event.map_or(0.0, |event| f64::from(event.0));
    let events = trace.events.len() as f64;
    let around =
        |share: f64| (middle - events * share / 2.0).max(0.0)..(middle + events * share / 2.0).min(events + 1.0);
    let zooms: [(&str, Range<f64>); 3] =
        [("whole", 0.0..events + 1.0), ("hundredth", around(0.01)), ("300_events", middle - 150.0..middle + 150.0)];
    for (zoom, range) in zooms {
        let across = Across::Moments(range);
        let window = BandWindow { metric: Metric::Requested, across, width: WIDTH, bytes: 0..peak, height: HEIGHT };
        for (order, bands) in &orders {
            group.bench_function(format!("raster_{zoom}_by_{order}"), |bencher| {
                bencher.iter(|| black_box(bands.raster(trace, &live, &series, &window)));
            });
        }
        group.bench_function(format!("totals_{zoom}"), |bencher| {
            bencher.iter(|| black_box(column_totals(trace, &series, &window)));
        });
    }
    let peak = event.map_or(0, |event| event.0 as usize + 1);
    group.bench_function("stack_at_peak", |bencher| {
        bencher.iter(|| black_box(orders[1].1.stack(trace, &live, Metric::Requested, peak)));
    });
    group.finish();
}

fn benches(criterion: &mut Criterion<CpuTime>) {
    for count in generated::numbers("HIGHWATER_BENCH_EVENTS", &[100_000, 1_140_000]) {
        measure(criterion, &format!("training_{count}_events"), &generated::write(&generated::training(count)));
    }
    for blocks in generated::numbers("HIGHWATER_BENCH_BLOCKS", &[10_000, 1_000_000]) {
        measure(
            criterion,
            &format!("oldest_first_{blocks}_blocks"),
            &generated::write(&generated::oldest_first(blocks)),
        );
    }
}

criterion_group! {
    name = bands;
    config = Criterion::default().with_measurement(CpuTime::from_environment());
    targets = benches
}
criterion_main!(bands);
