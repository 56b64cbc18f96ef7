//! The memory capacity of a device, as recorded or inferred from failed requests.

use highwater_snapshots::alloc_rules::AllocRules;
use highwater_snapshots::event::Oom;
use highwater_snapshots::ids::DeviceId;
use highwater_snapshots::trace::{Allocator, Trace};

use crate::metric::Totals;

/// The memory capacity of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Capacity {
    /// The size of the memory in bytes.
    pub bytes: u64,
    /// Whether the capacity was inferred instead of recorded: the allocator's reserved memory plus free memory when a
    /// request failed, without the memory of other processes. If a limit applied, the maximum of reserved memory.
    pub is_inferred: bool,
}

impl Capacity {
    /// Returns the recorded capacity of `device`; `None` if it was not recorded.
    pub fn recorded(trace: &Trace, device: DeviceId) -> Option<Self> {
        let facts = trace.device_facts(device).filter(|facts| facts.capacity_bytes > 0)?;
        Some(Self { bytes: facts.capacity_bytes, is_inferred: false })
    }

    /// Returns the capacity inferred from a failed request: the bytes that the allocator had `obtained` plus those that
    /// the driver reported as `free`.
    pub fn at_failure(obtained: u64, free: u64) -> Self {
        Self { bytes: obtained.saturating_add(free), is_inferred: true }
    }
}

/// Returns whether `request` failed on `device` because of a limit below the device's memory, such as one set by
/// `set_per_process_memory_fraction`: a caching allocator failed although the driver had enough free memory.
pub fn is_limited(trace: &Trace, device: DeviceId, request: &Oom) -> bool {
    let rules = AllocRules::of(trace.device_facts(device));
    let is_caching = trace.allocator(device) == Allocator::Caching;
    is_caching && rules.from_driver(rules.round(request.requested)) <= request.device_free
}

/// Returns the bytes that an allocator has obtained from its device: reserved memory, or the bytes of blocks if the
/// allocator has no segments.
pub fn obtained(totals: Totals) -> u64 {
    totals.reserved.max(totals.active)
}

#[cfg(test)]
mod tests {
    use highwater_notation::trace_from_text;
    use highwater_snapshots::trace::DeviceFacts;

    use super::*;
    use crate::Source;

    const FAILED: &str = "segment_alloc 0x0 20971520 large\nalloc a 10485760 large\noom 52428800 free=1048576\n";

    fn of(text: &str, recorded: u64) -> Option<Capacity> {
        let trace = trace_from_text(text)
            .unwrap()
            .edited(|trace| trace.devices = vec![DeviceFacts { capacity_bytes: recorded, ..DeviceFacts::default() }]);
        Source::in_memory(trace).capacity(DeviceId(0)).unwrap()
    }

    #[test]
    fn the_recorded_memory_of_a_device_comes_before_what_a_failed_request_shows() {
        assert_eq!(of(FAILED, 1 << 30), Some(Capacity { bytes: 1 << 30, is_inferred: false }));
        assert_eq!(of(FAILED, 0), Some(Capacity { bytes: 21 << 20, is_inferred: true }), "reserved and free");
        let again = format!("{FAILED}segment_alloc 0x2000000 2097152 small\noom 5 free=0\n");
        assert_eq!(of(&again, 0).map(|capacity| capacity.bytes), Some(22 << 20), "the most that it had");
        assert_eq!(of("alloc a 1024", 0), None);
    }

    #[test]
    fn a_limit_of_the_process_is_the_memory_that_a_failed_request_shows() {
        let limited = "segment_alloc 0x0 104857600 large\nalloc a 104857600 large\nfree a\nsegment_free 0x0 104857600\n\
                       segment_alloc 0x0 52428800 large\noom 62914560 free=209715200\n";
        let limit = Some(Capacity { bytes: 100 << 20, is_inferred: true });
        assert_eq!(of(limited, 0), limit, "the most that was reserved, not what was free");
        assert_eq!(of(limited, 1 << 30).map(|capacity| capacity.bytes), Some(1 << 30), "the device's own memory");
        let again = format!("{limited}oom 524288000 free=209715200\n");
        assert_eq!(of(&again, 0), limit, "a request that is larger than what is free shows no more");
        let source = Source::in_memory(trace_from_text(FAILED).unwrap());
        assert_eq!(source.memory_limit(DeviceId(0)).unwrap(), None);
    }

    #[test]
    fn an_allocator_without_segments_has_the_bytes_of_its_blocks() {
        let arena = "alloc a 62914560\noom 8388608 free=4194304\n";
        assert_eq!(of(arena, 0).map(|capacity| capacity.bytes), Some(64 << 20));
    }
}
