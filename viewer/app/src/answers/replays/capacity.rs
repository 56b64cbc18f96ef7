//! The memory that an allocator may use in a replay, and the smallest device on which a replay succeeds.

use highwater_analysis::capacity::{Capacity, obtained};
use highwater_analysis::{Metric, Series};
use highwater_snapshots::trace::Subject;
use highwater_snapshots::units::{format_bytes, format_required_bytes};
use highwater_snapshots::{DeviceId, Trace};

use crate::answers::prediction::Change;

/// Resolution of [`smallest_that_fits`] in bytes: the granularity of segments.
const STEP: u64 = 2 << 20;
/// Maximum number of replays in [`smallest_that_fits`].
const MOST_REPLAYS: u32 = 16;

/// Bytes that the allocator may reserve.
pub(super) struct Bound {
    /// The limit; `None` if unknown.
    pub(super) bytes: Option<u64>,
    /// Bytes of the device used by others, which were subtracted.
    pub(super) outside: u64,
    /// The source of the figure, as a clause.
    pub(super) from: String,
}

impl Bound {
    /// Returns the requested size, or else the size of the recorded device.
    pub(super) fn of(trace: &Trace, series: &Series, change: &Change) -> Self {
        let outside = used_outside(trace, series);
        let less = |capacity: u64, what: &str| {
            let mut from = format!("{}, {what}", format_required_bytes(capacity));
            if outside > 0 {
                let used = format_bytes(outside);
                from.push_str(&format!(", less {used} that others use according to the recording's samples"));
            }
            Self { bytes: Some(capacity.saturating_sub(outside)), outside, from }
        };
        if let Some(capacity) = change.capacity {
            return less(capacity, "as given");
        }
        let failed = trace.events.ids().find_map(|event| match trace.subject(event) {
            Subject::Oom(row) if trace.events.device[event.0 as usize] == change.device => {
                Some((event, trace.ooms.get(row)?.device_free))
            }
            _ => None,
        });
        if let Some((event, free)) = failed {
            let capacity = Capacity::at_failure(obtained(series.after(trace, event)), free).bytes;
            let bytes = format_required_bytes(capacity);
            let from = format!("{bytes}, the reserved and free memory when the recorded request failed");
            return Self { bytes: Some(capacity), outside: 0, from };
        }
        match recorded_total(trace, change.device) {
            Some(capacity) => less(capacity, "the size of the recorded device"),
            None => {
                let from = "unlimited, since the recording does not contain the size of the device".to_owned();
                Self { bytes: None, outside: 0, from }
            }
        }
    }
}

/// Returns the size of `device`, if it is recorded.
pub(super) fn recorded_total(trace: &Trace, device: DeviceId) -> Option<u64> {
    Capacity::recorded(trace, device).map(|capacity| capacity.bytes)
}

/// Returns the bytes of the device in use outside the allocator when most of it is in use; 0 if that was not sampled.
/// They count against the size of a device, in plans as in what-if predictions.
pub fn used_outside(trace: &Trace, series: &Series) -> u64 {
    let (used, event) = series.peak(trace, Metric::DeviceUsed);
    event.map_or(0, |event| used.saturating_sub(series.after(trace, event).reserved))
}

/// Returns the smallest number of bytes, in whole MiB, with which `fits` returns true: above `too_small`, and found by
/// bisection, so that a smaller one may exist if `fits` is not monotone. The search starts at `enough`. `None` if
/// `fits` returns false there too.
pub(super) fn smallest_that_fits(too_small: u64, enough: u64, fits: impl Fn(u64) -> bool) -> Option<u64> {
    let mut low = too_small >> 20 << 20;
    let mut high = enough.max(low + 1).checked_next_multiple_of(1 << 20)?;
    if !fits(high) {
        return None;
    }
    for _ in 0..MOST_REPLAYS {
        // Halving an even number of MiB gives multiples of the step as long as possible.
        let middle = (low + (high - low) / 2) / STEP * STEP;
        if middle <= low || middle >= high {
            break;
        }
        if fits(middle) { high = middle } else { low = middle }
    }
    Some(high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_size_is_found_between_one_that_fails_and_one_that_fits() {
        const MIB: u64 = 1 << 20;
        let search = |too_small: u64, enough: u64, least: u64| {
            smallest_that_fits(too_small * MIB, enough * MIB, |bytes| bytes >= least * MIB).map(|bytes| bytes / MIB)
        };
        assert_eq!(search(24 << 10, 36_656, 29_286), Some(29_286));
        assert_eq!(search(40_960, 42_025, 40_974), Some(40_974));
        assert_eq!(search(40_960, 40_961, 40_961), Some(40_961), "nothing lies between");
        assert_eq!(search(10, 20, 30), None, "more than without a bound, as with a limit in percent");
    }
}
