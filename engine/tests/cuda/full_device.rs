//! Tests on a full device of any size that the allocator frees its cache before it reports that memory is exhausted. On
//! a GPU nothing else may use the device during the test, which allocates nearly all of its memory.

use highwater_allocator::{AllocError, OomReport};
use highwater_engine::device::WORKSPACE_BYTES;
use highwater_engine::{DType, Device, Error, Tensor};
use highwater_recorder::snapshots::event::EventKind;
use highwater_stand_in::Setup;

use crate::recorded::record;

/// Requests become segments of their size, rounded up to this.
const PAGE: u64 = 2 << 20;

/// Allocates percentages of the memory that was free at first, without writing to it.
struct Shares {
    device: Device,
    free: u64,
}

impl Shares {
    fn bytes(&self, hundredths: u64) -> u64 {
        (self.free / 100 * hundredths).next_multiple_of(PAGE)
    }

    fn take(&self, hundredths: u64) -> Result<Tensor, Error> {
        Tensor::empty(self.bytes(hundredths) as usize, DType::U8, &self.device)
    }
}

fn report(outcome: Result<Tensor, Error>) -> OomReport {
    match outcome {
        Err(Error::Alloc(AllocError::OutOfMemory(report))) => *report,
        Err(other) => panic!("not out of memory: {other}"),
        Ok(tensor) => panic!("there was memory for {tensor:?}"),
    }
}

/// Fills the device, and returns how often cached memory was released to the driver.
fn fill(settings: &str) -> usize {
    let device = Device::cuda_with(0, None, settings.parse().expect("settings")).expect("a device opens");
    let free = device.allocator().capacity().expect("the driver answers").free;
    let shares = Shares { device, free };
    let trace = record(|| {
        let kept = shares.take(30).expect("there is memory");
        drop(shares.take(25).expect("there is memory"));
        let larger = shares.take(50).expect("there is memory, once the cache is given back");
        let report = report(shares.take(25));
        assert_eq!(report.requested, shares.bytes(25));
        assert_eq!(report.allocated, shares.bytes(30) + shares.bytes(50) + WORKSPACE_BYTES);
        assert!(report.device_free < shares.bytes(25) + PAGE, "{report}");
        assert!(report.to_string().starts_with("out of memory on device 0"), "{report}");
        drop((kept, larger));
        drop(shares.take(75).expect("the device goes on"));
    });
    assert_eq!(trace.ooms.len(), 1);
    let count = |kinds: &[EventKind]| trace.events.kind.iter().filter(|kind| kinds.contains(kind)).count();
    assert_eq!(count(&[EventKind::Oom]), 1);
    count(&[EventKind::SegmentFree, EventKind::SegmentUnmap])
}

#[test]
fn a_device_gives_back_its_cache_before_it_is_full() {
    Setup::new().memory_bytes(400 << 20).run(|| {
        assert!(fill("") > 0, "what is cached stands in the way of a larger segment");
    });
}

#[test]
fn an_expandable_segment_grows_over_what_is_cached_until_a_device_is_full() {
    Setup::new().memory_bytes(1 << 30).run(|| {
        fill("expandable_segments:True");
    });
}
