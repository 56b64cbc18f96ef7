//! Tests of how a device runs out of memory, and of the error messages.

use highwater_allocator::{Advice, AllocConfig, AllocError, Capacity, OomReport};
use highwater_engine::device::WORKSPACE_BYTES;
use highwater_engine::{DType, Device, Error, Tensor};
use highwater_kernels::Gpu;
use highwater_recorder::StreamId;
use highwater_recorder::snapshots::event::EventKind;
use highwater_stand_in::Setup;

use crate::recorded::{lines, record, samples};

const MIB: u64 = 1 << 20;
/// Memory that the stand-in's context uses on a device.
const CONTEXT: u64 = 8 * MIB;

fn open(settings: &str) -> Device {
    Device::cuda_with(0, None, config(settings)).expect("a device opens")
}

fn config(settings: &str) -> AllocConfig {
    settings.parse().expect("valid settings")
}

/// Allocates this many bytes, without writing to them.
fn take(device: &Device, bytes: u64) -> Result<Tensor, Error> {
    Tensor::empty(bytes as usize, DType::U8, device)
}

fn report(outcome: Result<Tensor, Error>) -> OomReport {
    match outcome {
        Err(Error::Alloc(AllocError::OutOfMemory(report))) => *report,
        Err(other) => panic!("not out of memory: {other}"),
        Ok(tensor) => panic!("there was memory for {tensor:?}"),
    }
}

#[test]
fn a_full_device_gives_back_its_cache_and_then_says_who_has_the_memory() {
    Setup::new().memory_bytes(100 * MIB).only_on_stand_in().run(|| {
        let device = open("");
        let trace = record(|| {
            let kept = take(&device, 30 * MIB).expect("there is memory");
            drop(take(&device, 24 * MIB).expect("there is memory"));
            let larger = take(&device, 44 * MIB).expect("there is memory, once the cache is given back");
            let report = report(take(&device, 12 * MIB));
            assert_eq!((report.device_total, report.device_free), (100 * MIB, 2 * MIB));
            assert_eq!((report.outside(), report.limit), (CONTEXT, None));
            assert_eq!((report.requested, report.segment), (12 * MIB, 12 * MIB));
            assert_eq!((report.allocated, report.reserved), (90 * MIB, 90 * MIB));
            assert_eq!(report.advice, [Advice::AnalyseRecording]);
            let told = report.to_string();
            assert!(told.starts_with("out of memory on device 0 (Highwater stand-in): 12 MiB requested"), "{told}");
            assert!(told.contains("100 MiB total, 2 MiB free, 8 MiB used outside this allocator"), "{told}");
            drop((kept, larger));
            drop(take(&device, 70 * MIB).expect("the device goes on"));
        });
        let told = lines(&trace, device.id());
        assert!(told.contains("segment_free 24 MiB for stream 0\nsegment_alloc 44 MiB for stream 0\n"), "{told}");
        assert!(told.contains("oom 12 MiB, 2 MiB free\n"), "{told}");
        assert_eq!(trace.ooms.len(), 1);
        for (used, reserved) in samples(&trace, device.id()) {
            assert_eq!(used, reserved + WORKSPACE_BYTES + CONTEXT);
        }
    });
}

#[test]
fn memory_that_others_have_is_distinguished() {
    Setup::new().memory_bytes(100 * MIB).only_on_stand_in().run(|| {
        let device = open("");
        let other = Gpu::open(0).expect("the same device");
        other.reserve(50 * MIB).expect("there is memory");
        let report = report(take(&device, 40 * MIB));
        assert_eq!((report.outside(), report.device_free), (58 * MIB, 26 * MIB));
        assert!(report.advice.contains(&Advice::OtherUsers(58 * MIB)), "{report}");
    });
}

#[test]
fn a_capacity_limits_what_is_taken_and_is_the_size_of_the_device_in_recordings() {
    Setup::new().memory_bytes(100 * MIB).only_on_stand_in().run(|| {
        let device = Device::cuda_with(0, Some(60 * MIB), config("")).expect("a device opens");
        let capacity = || device.allocator().capacity().expect("the driver answers");
        assert_eq!(capacity(), Capacity { total: 60 * MIB, free: 44 * MIB });
        let trace = record(|| {
            let kept = take(&device, 40 * MIB).expect("there is memory");
            let report = report(take(&device, 12 * MIB));
            assert_eq!((report.device_total, report.device_free, report.outside()), (60 * MIB, 4 * MIB, 0));
            drop(kept);
        });
        assert_eq!(trace.device_facts(device.id()).map(|facts| facts.capacity_bytes), Some(60 * MIB));
        assert!(samples(&trace, device.id()).iter().all(|(used, _)| *used <= 60 * MIB));
        // Where others leave less than that, they count.
        let other = Gpu::open(0).expect("the same device");
        device.allocator().empty_cache().expect("the driver takes it back");
        other.reserve(66 * MIB).expect("there is memory");
        assert_eq!(capacity(), Capacity { total: 60 * MIB, free: 10 * MIB });
        let too_little = Device::cuda_with(0, Some(8 * MIB), config("")).expect_err("it keeps more than that");
        assert!(too_little.is_out_of_memory(), "{too_little}");
    });
}

#[test]
fn a_memory_fraction_stands_in_the_way_before_the_device_does() {
    Setup::new().memory_bytes(100 * MIB).only_on_stand_in().run(|| {
        let device = open("per_process_memory_fraction:0.5");
        let kept = take(&device, 20 * MIB).expect("there is memory");
        let limited = report(take(&device, 20 * MIB));
        assert_eq!((limited.limit, limited.device_free), (Some(50 * MIB), 56 * MIB));
        assert!(limited.advice.contains(&Advice::RaiseMemoryFraction), "{limited}");
        device.allocator().set_memory_fraction(1.0).expect("a fraction");
        drop((kept, take(&device, 20 * MIB).expect("there is memory")));
    });
}

#[test]
fn expandable_segments_give_back_pages_that_do_not_suffice() {
    Setup::new().memory_bytes(100 * MIB).only_on_stand_in().run(|| {
        // Pages of 20 MiB, two of which hold the workspace of 16 MiB and a block of 4 MiB or more.
        let device = open("expandable_segments:True");
        let free = || device.allocator().capacity().expect("the driver answers").free;
        assert_eq!(free(), 100 * MIB - CONTEXT - 20 * MIB);
        let trace = record(|| {
            let kept = take(&device, 24 * MIB).expect("there is memory");
            assert_eq!(free(), 52 * MIB);
            // Two pages could be had of the three that are needed.
            let report = report(take(&device, 60 * MIB));
            assert_eq!((report.device_free, report.outside()), (52 * MIB, CONTEXT));
            assert_eq!(free(), 52 * MIB, "what was mapped in vain is given back");
            let fits = take(&device, 40 * MIB).expect("there is memory for two pages");
            drop((kept, fits));
            device.allocator().empty_cache().expect("the driver takes it back");
            assert_eq!(free(), 100 * MIB - CONTEXT - 20 * MIB);
        });
        let told = lines(&trace, device.id());
        assert!(
            told.contains("segment_map") && told.contains("segment_unmap") && told.contains("oom 60 MiB"),
            "{told}"
        );
        let samples = samples(&trace, device.id());
        assert!(samples.len() > 3, "{samples:?}");
        for (used, reserved) in samples {
            assert_eq!(used, reserved + 20 * MIB + CONTEXT);
        }
    });
}

#[test]
fn pages_are_unmapped_when_the_device_is_done_with_them() {
    Setup::new().lazy().run(|| {
        let device = open("expandable_segments:True");
        let side = device.new_stream().expect("a stream");
        for stream in [&device.default_stream(), &side] {
            let _stream = stream.enter();
            // Work that nothing has waited for yet, in memory that nobody has any more.
            drop(Tensor::full(8 << 20, 1.0, DType::F32, &device).expect("there is memory"));
            assert!(device.allocator().empty_cache().expect("the driver takes it back") > 0);
            device.synchronize().expect("nobody wrote where nothing is");
        }
    });
}

#[test]
fn pinned_memory_and_streams_have_caches_of_their_own() {
    Setup::new().memory_bytes(100 * MIB).only_on_stand_in().run(|| {
        let device = open("");
        let side = device.new_stream().expect("a stream");
        let beside = side.enter();
        let kept = take(&device, 30 * MIB).expect("there is memory");
        assert_eq!(kept.storage().stream(), StreamId(1));
        drop(beside);
        let pinned = take(&device.pinned(), 200 * MIB).expect("the host's memory is not the device's");
        let report = report(take(&device, 60 * MIB));
        assert_eq!((report.stream, report.device_free), (StreamId(0), 46 * MIB));
        drop((kept, pinned));
        drop(take(&device, 60 * MIB).expect("the other stream's cache is given back for it"));
        let trace = record(|| drop(take(&device, 60 * MIB)));
        assert!(!trace.events.kind.contains(&EventKind::Oom));
    });
}
