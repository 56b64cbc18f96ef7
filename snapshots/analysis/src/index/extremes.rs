//! Finds the local peaks of a total that stand out from their surroundings.

use highwater_snapshots::format::Extreme;
use highwater_snapshots::trace::Trace;

use super::replay::Replay;
use super::series::Series;
use crate::metric::Metric;

/// Returns the local peaks of `metric`, in order: points after which the total falls by at least `least_fall` bytes
/// before it exceeds their value, and before which it rose by at least that from the minimum since the previous peak.
/// The first peak needs no such rise, and the last no such fall. A fall of 0 is taken as 1.
///
/// Each has the number of events after which it is first reached. Takes one pass over the events of the series' device.
pub fn peaks(trace: &Trace, series: &Series, metric: Metric, least_fall: u64) -> Vec<Extreme<usize>> {
    let least_fall = least_fall.max(1);
    let mut replay = Replay::new(trace, series.device());
    let first = Extreme { after: 0, bytes: replay.totals().get(metric) };
    let mut found = Vec::new();
    // While the total rises, the highest moment since the last valley; while it falls, the lowest since the last peak.
    let (mut highest, mut lowest, mut is_climbing) = (first, first.bytes, true);
    let mut bytes = first.bytes;
    while replay.step().is_some() {
        bytes = replay.totals().get(metric);
        if is_climbing {
            if !highest.raise(bytes, replay.position()) && highest.bytes - bytes >= least_fall {
                found.push(highest);
                (is_climbing, lowest) = (false, bytes);
            }
        } else if bytes < lowest {
            lowest = bytes;
        } else if bytes - lowest >= least_fall {
            (is_climbing, highest) = (true, Extreme { after: replay.position(), bytes });
        }
    }
    // The end counts as a peak if the total rose to it; a recording that never falls has only that peak.
    let has_risen = highest.after > 0 || found.is_empty();
    if is_climbing && has_risen && bytes > 0 {
        found.push(highest);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_notation::trace_from_text;
    use highwater_snapshots::ids::DeviceId;

    fn found(text: &str, least_fall: u64) -> Vec<(usize, u64)> {
        let trace = trace_from_text(text).unwrap();
        let series = Series::build(&trace, DeviceId(0));
        let peaks = peaks(&trace, &series, Metric::Requested, least_fall);
        peaks.iter().map(|peak| (peak.after, peak.bytes)).collect()
    }

    #[test]
    fn small_dents_part_no_peaks() {
        let text = "alloc a 100\nalloc t 5\nfree t\nalloc u 4\nfree u\nfree a\nalloc b 80\nfree b\nalloc c 50";
        let trace = trace_from_text(text).unwrap();
        let at = |moment: usize| {
            let series = Series::build(&trace, DeviceId(0));
            series.before_position(&trace, moment).requested
        };
        for least_fall in [1, 10, 60, 90] {
            for (moment, bytes) in found(text, least_fall) {
                assert_eq!(at(moment), bytes);
            }
        }
        let bytes = |least_fall| found(text, least_fall).into_iter().map(|(_, bytes)| bytes).collect::<Vec<_>>();
        assert_eq!(bytes(1), [105, 104, 80, 50]);
        assert_eq!(bytes(10), [105, 80, 50]);
        assert_eq!(bytes(60), [105, 80]);
        assert_eq!(bytes(90), [105]);
    }

    #[test]
    fn a_recording_that_never_falls_ends_on_its_peak_and_an_empty_one_has_none() {
        assert_eq!(found("baseline w 10\nalloc a 100\nalloc b 1", 50), [(2, 111)]);
        assert_eq!(found("baseline w 10", 5), [(0, 10)]);
        assert_eq!(found("", 1), []);
    }

    #[test]
    fn a_recording_that_only_falls_began_with_its_peak() {
        assert_eq!(found("baseline w 10\nbaseline v 90\nfree v", 50), [(0, 100)]);
    }
}
