//! Chooses allocator settings to try, according to the sizes in a recording.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use highwater_analysis::Source;
use highwater_snapshots::alloc_rules::SMALL_REQUEST;
use highwater_snapshots::{DeviceId, Result, Trace};

const MIB: u64 = 1 << 20;
/// The smallest split limit to try: larger than segments that several requests share.
const MIN_LIMIT: u64 = 32 * MIB;
/// Maximum number of limits that are powers of two, and of other limits.
const MAX_LIMITS: [usize; 2] = [6, 2];
/// The values of `roundup_power2_divisions` to try, from the smallest change to the largest.
const DIVISIONS: [u64; 3] = [16, 8, 4];

/// Returns settings that may lower the reserved memory of `device`, in display order; empty if there are none.
pub(super) fn worth_trying(source: &Source<'_>, device: DeviceId) -> Result<Vec<String>> {
    if !source.allocator(device).has_settings() {
        return Ok(Vec::new());
    }
    let mut sizes = BTreeSet::new();
    let mut watch = |_| ControlFlow::Continue(());
    source.each_window(|window| large_sizes(window, device), |more| sizes.extend(more), &mut watch)?;
    let limits = limits(&sizes).into_iter().map(|limit| format!("max_split_size_mb:{}", limit / MIB));
    let divisions = DIVISIONS.into_iter().filter(|count| merges(&sizes, *count));
    let expandable = [true, false].map(|is_on| format!("expandable_segments:{}", if is_on { "True" } else { "False" }));
    let divisions = divisions.map(|count| format!("roundup_power2_divisions:{count}"));
    Ok(expandable.into_iter().chain(limits).chain(divisions).collect())
}

/// Returns the sizes above [`SMALL_REQUEST`] of the requests on `device`, and of the failed requests on any device.
fn large_sizes(trace: &Trace, device: DeviceId) -> BTreeSet<u64> {
    let blocks = trace.blocks.requested.iter().zip(&trace.blocks.device);
    let served = blocks.filter(|(_, at)| **at == device).map(|(size, _)| *size);
    let failed = trace.ooms.iter().map(|oom| oom.requested);
    served.chain(failed).filter(|size| *size > SMALL_REQUEST).collect()
}

/// Returns split limits (`max_split_size_mb`) to try, in bytes, as multiples of 1 MiB, the largest first. With a limit,
/// a cached range of at least that size serves only requests of at least that size that it exceeds by little. All limits
/// between two consecutive sizes are equivalent, so one is tried: a power of two if there is one, otherwise the larger
/// size rounded down. Keeps the largest powers of two, and the other limits whose two sizes have the largest ratio, at
/// most [`MAX_LIMITS`] of each.
fn limits(sizes: &BTreeSet<u64>) -> Vec<u64> {
    let (mut powers, mut others) = (Vec::new(), Vec::new());
    for (smaller, larger) in sizes.iter().zip(sizes.iter().skip(1)).filter(|(_, larger)| **larger >= MIN_LIMIT) {
        let power = 1 << larger.ilog2();
        if power > *smaller && power >= MIN_LIMIT {
            powers.push(power);
        } else if larger / MIB * MIB > *smaller {
            others.push((larger * 100 / smaller, larger / MIB * MIB));
        }
    }
    powers.reverse();
    powers.truncate(MAX_LIMITS[0]);
    others.sort_unstable_by(|one, other| other.cmp(one));
    powers.extend(others.into_iter().take(MAX_LIMITS[1]).map(|(_, limit)| limit));
    powers.sort_unstable_by(|one, other| other.cmp(one));
    powers
}

/// Returns whether rounding to `count` divisions between powers of two makes any two of `sizes` equal.
fn merges(sizes: &BTreeSet<u64>, count: u64) -> bool {
    let rounded = |size: &u64| size.next_multiple_of(((1 << size.ilog2()) / count).max(1));
    sizes.iter().map(rounded).collect::<BTreeSet<u64>>().len() < sizes.len()
}

#[cfg(test)]
mod tests {
    use highwater_notation::trace_from_text;

    use super::*;

    fn tried(text: &str) -> Vec<String> {
        worth_trying(&Source::in_memory(trace_from_text(text).unwrap()), DeviceId(0)).unwrap()
    }

    fn of(sizes: &[u64]) -> Vec<String> {
        let alloc = |(row, size): (usize, &u64)| format!("alloc b{row} {} large\n", size * MIB);
        let text: String = sizes.iter().enumerate().map(alloc).collect();
        tried(&format!("segment_alloc 0x0 2097152 small\n{text}"))
    }

    #[test]
    fn limits_of_splitting_lie_between_the_sizes_of_a_recording() {
        let expandable = ["expandable_segments:True", "expandable_segments:False"];
        assert_eq!(of(&[30, 600])[2..], ["max_split_size_mb:512"], "one of all limits that do the same");
        assert_eq!(of(&[30, 100, 600])[2..], ["max_split_size_mb:512", "max_split_size_mb:64"]);
        assert_eq!(of(&[600, 900])[2..], ["max_split_size_mb:900"], "no power of two lies between");
        assert_eq!(of(&[4, 8, 16]), expandable, "nothing to keep from being split");
        assert_eq!(of(&[]), expandable);
    }

    #[test]
    fn divisions_are_tried_where_they_make_sizes_the_same() {
        let divisions = |sizes: &[u64]| -> Vec<String> {
            let all = of(sizes).into_iter();
            all.filter_map(|text| text.strip_prefix("roundup_power2_divisions:").map(str::to_owned)).collect()
        };
        assert_eq!(divisions(&[16, 24]), [""; 0]);
        assert_eq!(divisions(&[17, 18]), ["8", "4"]);
        assert_eq!(divisions(&[33, 34]), ["16", "8", "4"]);
    }

    #[test]
    fn an_allocator_without_settings_has_none_to_try() {
        assert_eq!(tried("alloc a 104857600"), [""; 0]);
    }
}
