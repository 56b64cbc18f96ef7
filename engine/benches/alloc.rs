//! Measures an uncontended cached malloc and its free while no recording is active, on the accounting device and, if
//! available, on a GPU.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use highwater_allocator::AccountingDriver;
use highwater_allocator::{AllocConfig, Block, CachingAllocator, Driver};
use highwater_engine::device::cuda::CudaDriver;
use highwater_kernels::Gpu;
use highwater_recorder::{DeviceId, StreamId};

const KIB: u64 = 1 << 10;
const STREAM: StreamId = StreamId(0);
/// Memory for the case of many holes, with a reserve.
const MANY_HOLES_BYTES: u64 = 32 << 30;

fn malloc(allocator: &CachingAllocator, bytes: u64) -> Block {
    allocator.malloc(bytes, STREAM).expect("the device is large enough")
}

/// A cache with `holes` free ranges of many sizes, each between two blocks that stay.
fn fragmented(allocator: &CachingAllocator, holes: u64) -> Vec<Block> {
    let blocks: Vec<Block> = (0..2 * holes).map(|i| malloc(allocator, 512 * (1 + i / 2 * 7919 % 2000))).collect();
    let (mut stay, mut go) = (Vec::new(), Vec::new());
    for (position, block) in blocks.into_iter().enumerate() {
        if position % 2 == 0 {
            stay.push(block);
        } else {
            go.push(block);
        }
    }
    go.into_iter().for_each(|block| allocator.free(block));
    stay
}

fn on_the_accounting_device(c: &mut Criterion) {
    pairs(c, "malloc and free", || Box::new(AccountingDriver::new(80 << 30)));
}

#[expect(clippy::print_stderr, reason = "says that nothing was measured, and why")]
fn on_a_gpu(c: &mut Criterion) {
    match Gpu::open(0) {
        Ok(gpu) => pairs(c, "malloc and free on a GPU", || Box::new(CudaDriver::new(Arc::clone(&gpu), None))),
        Err(why) => eprintln!("skipped: {why}"),
    }
}

fn pairs(c: &mut Criterion, name: &str, driver: impl Fn() -> Box<dyn Driver>) {
    let allocator = |settings: &str| {
        let config: AllocConfig = settings.parse().expect("the settings are valid");
        CachingAllocator::new(driver(), DeviceId(0), config)
    };
    let mut group = c.benchmark_group(name);
    let pair = |allocator: &CachingAllocator, bytes: u64| {
        allocator.free(black_box(malloc(allocator, black_box(bytes))));
    };

    let exact = allocator("");
    let _stay = fragmented(&exact, 8);
    group.bench_function("exact fit among 8 holes", |b| b.iter(|| pair(&exact, 512)));

    let split = allocator("");
    let _stay = malloc(&split, 64 * KIB);
    group.bench_function("split and join", |b| b.iter(|| pair(&split, 64 * KIB)));

    let expandable = allocator("expandable_segments:True");
    let _stay = malloc(&expandable, 64 * KIB);
    group.bench_function("split and join, expandable", |b| {
        b.iter(|| pair(&expandable, 64 * KIB));
    });

    let crowded = allocator("");
    if crowded.capacity().is_ok_and(|capacity| capacity.free >= MANY_HOLES_BYTES) {
        let _stay = fragmented(&crowded, 20_000);
        let mut turn = 0_u64;
        group.bench_function("any fit among 20,000 holes", |b| {
            b.iter(|| {
                turn = (turn + 7919) % 2000;
                pair(&crowded, 512 * (1 + turn));
            });
        });
    }
    group.finish();
}

criterion_group!(benches, on_the_accounting_device, on_a_gpu);
criterion_main!(benches);
