//! Tests replays of recordings, made by this engine and by PyTorch, against the behavior of the real allocators.

mod changed;
mod pytorch;
mod scenarios;
mod strange;
mod stream;

use highwater_recorder::snapshots::event::{EventKind, What};
use highwater_recorder::snapshots::{DeviceId, Trace};

/// What an allocator did on `device`, in order: addresses aside, everything that it decides.
fn decisions(trace: &Trace, device: DeviceId) -> Vec<(EventKind, u64)> {
    let of_device = trace.events.ids().filter(|event| trace.events.device[event.0 as usize] == device);
    let decision = |what: What| match what {
        What::SegmentAlloc(range) | What::SegmentFree(range) | What::SegmentMap(range) | What::SegmentUnmap(range) => {
            Some((what.kind(), range.bytes))
        }
        What::Alloc(alloc) => Some((what.kind(), alloc.allocated)),
        What::FreeRequested(_) | What::FreeCompleted(_) | What::Oom(_) => Some((what.kind(), 0)),
        _ => None,
    };
    of_device.filter_map(|event| decision(trace.what(event))).collect()
}

/// The first place where two lists differ, with what stands there.
fn first_difference<T: PartialEq + Copy>(one: &[T], other: &[T]) -> Option<(usize, Option<T>, Option<T>)> {
    let length = one.len().max(other.len());
    let at = (0..length).find(|at| one.get(*at) != other.get(*at))?;
    Some((at, one.get(at).copied(), other.get(at).copied()))
}
