//! The memory that an allocator may use in a replay, and the smallest device on which a replay succeeds.

use highwater_allocator::replay::recorded_config;
use highwater_analysis::capacity::{Capacity, obtained};
use highwater_analysis::{Metric, Source};
use highwater_snapshots::{DeviceId, EventKind, Result, Trace, format_bytes};

use crate::answers::prediction::Change;
use crate::answers::request_failure::RequestFailure;

/// Resolution of [`smallest_that_fits`] in bytes: the granularity of segments.
const STEP: u64 = 2 << 20;
const MAX_REPLAYS: u32 = 16;

/// The maximum number of bytes that the allocator may reserve.
pub(super) struct Bound {
    /// The limit; `None` if unknown.
    pub(super) bytes: Option<u64>,
    /// Bytes that other processes use on the device, already subtracted from the limit.
    pub(super) outside: u64,
    pub(super) from: String,
}

impl Bound {
    /// Returns the capacity that `change` gives, otherwise the memory available when the first recorded request failed,
    /// otherwise the size of the recorded device; the first and the last without the memory that other processes use.
    ///
    /// # Errors
    /// Fails if the recording cannot be read.
    pub(super) fn of(source: &Source<'_>, change: &Change) -> Result<Self> {
        let outside = used_outside(source, change.device)?;
        let less = |capacity: u64, what: &str| {
            let mut from = format!("{}, {what}", format_bytes(capacity));
            if outside > 0 {
                let used = format_bytes(outside);
                from.push_str(&format!(", less {used} that other processes use according to the recording's samples"));
            }
            Self { bytes: Some(capacity.saturating_sub(outside)), outside, from }
        };
        if let Some(capacity) = change.capacity {
            return Ok(less(capacity, "as given"));
        }
        if let Some(failed) = RequestFailure::first(source, change.device, 1)?.first() {
            let totals = source.window_at(Some(failed.number))?.totals(change.device);
            // A limit in the recorded settings applies to the replay as well.
            let facts = source.facts().device_facts(change.device);
            let is_set = recorded_config(facts).0.memory_fraction() < 1.0
                && recorded_total(source.facts(), change.device).is_some();
            let limit = if is_set { None } else { source.memory_limit(change.device)? };
            let (capacity, what) = match limit {
                Some(limit) => (
                    limit,
                    "the maximum of reserved memory: a limit below the device's memory made the recorded request fail",
                ),
                None => (
                    Capacity::at_failure(obtained(totals), failed.device_free).bytes,
                    "the reserved and free memory when the recorded request failed",
                ),
            };
            let from = format!("{}, {what}", format_bytes(capacity));
            return Ok(Self { bytes: Some(capacity), outside: 0, from });
        }
        Ok(match recorded_total(source.facts(), change.device) {
            Some(capacity) => less(capacity, "the size of the recorded device"),
            None => {
                let from = "unlimited, since the recording does not contain the size of the device".to_owned();
                Self { bytes: None, outside: 0, from }
            }
        })
    }

    /// Returns the limit for a change without a capacity.
    ///
    /// # Errors
    /// Fails like [`Self::of`].
    pub(super) fn recorded(source: &Source<'_>, device: DeviceId) -> Result<Self> {
        Self::of(source, &Change { device, ..Change::default() })
    }
}

pub(super) fn recorded_total(trace: &Trace, device: DeviceId) -> Option<u64> {
    Capacity::recorded(trace, device).map(|capacity| capacity.bytes)
}

/// Returns the bytes in use on the device outside of the allocator when the sampled use of the device is largest; 0
/// without samples, or if none exceeds the use at the start. They reduce the usable size of a device in plans and
/// what-if predictions.
///
/// # Errors
/// Fails if the recording cannot be read.
pub fn used_outside(source: &Source<'_>, device: DeviceId) -> Result<u64> {
    if source.count(device, EventKind::DeviceUsed) == 0 {
        return Ok(0);
    }
    let before = source.window_at(None)?.totals(device).get(Metric::DeviceUsed);
    let largest = source.largest(device, Metric::DeviceUsed, source.events())?;
    let Some((used, event)) = largest.filter(|(used, _)| *used > before) else { return Ok(0) };
    Ok(used.saturating_sub(source.window_at(Some(event))?.totals(device).reserved))
}

/// Returns the smallest number of bytes above `too_small`, in whole MiB, for which `fits` returns true; `None` if
/// `fits` returns false for `enough`. Uses bisection, so if `fits` is not monotone, a smaller number may exist.
///
/// # Errors
/// Fails if `fits` fails.
pub(super) fn smallest_that_fits<E>(
    too_small: u64,
    enough: u64,
    fits: impl Fn(u64) -> std::result::Result<bool, E>,
) -> std::result::Result<Option<u64>, E> {
    let mut low = too_small >> 20 << 20;
    let Some(mut high) = enough.max(low + 1).checked_next_multiple_of(1 << 20) else { return Ok(None) };
    if !fits(high)? {
        return Ok(None);
    }
    for _ in 0..MAX_REPLAYS {
        // Halving an even number of MiB gives multiples of the step as long as possible.
        let middle = (low + (high - low) / 2) / STEP * STEP;
        if middle <= low || middle >= high {
            break;
        }
        if fits(middle)? { high = middle } else { low = middle }
    }
    Ok(Some(high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_size_is_found_between_one_that_fails_and_one_that_fits() {
        const MIB: u64 = 1 << 20;
        let search = |too_small: u64, enough: u64, least: u64| {
            let fits = |bytes| Ok::<_, std::convert::Infallible>(bytes >= least * MIB);
            let Ok(found) = smallest_that_fits(too_small * MIB, enough * MIB, fits);
            found.map(|bytes| bytes / MIB)
        };
        assert_eq!(search(24 << 10, 36_656, 29_286), Some(29_286));
        assert_eq!(search(40_960, 42_025, 40_974), Some(40_974));
        assert_eq!(search(40_960, 40_961, 40_961), Some(40_961), "nothing lies between");
        assert_eq!(search(10, 20, 30), None, "more than without a bound, as with a limit in percent");
    }
}
