//! Tests that a recording of which only some blocks are counted has the same totals in memory and read in windows.

use highwater_analysis::phases::phases;
use highwater_analysis::summary::summarize;
use highwater_analysis::{Filter, Metric, Source};
use highwater_snapshots::format::read_bytes;

pub(crate) use super::program::watch;
use super::program::{open, recording};

/// A recording in memory, and the same in windows of at most `events` events.
pub(crate) fn both(seed: u64, events: u64) -> (Source<'static>, Source<'static>) {
    let bytes = recording(seed, 8, seed.is_multiple_of(2));
    let windows = Source::in_windows(open(&bytes)).unwrap().in_windows_of(events);
    (Source::in_memory(read_bytes(&bytes).unwrap()), windows)
}

#[test]
fn blocks_that_count_in_memory_count_in_windows() {
    for text in ["", "size>=2KiB", "category=gradient", "stream=1", "step=4"] {
        let filter: Filter = text.parse().unwrap();
        for seed in 0..2 {
            let (whole, windows) = both(seed, 1000);
            let (whole, windows) = (whole.counting(&filter), windows.counting(&filter));
            assert_eq!(
                summarize(&windows, watch()).unwrap(),
                summarize(&whole, watch()).unwrap(),
                "{text}, seed {seed}"
            );
            for device in whole.facts().device_ids() {
                for metric in [Metric::Requested, Metric::Active, Metric::Reserved] {
                    let rows = |source: &Source<'_>| {
                        phases(source.facts(), device, metric, source.stages(device, metric, watch()).unwrap())
                    };
                    assert_eq!(rows(&windows), rows(&whole), "{text}, seed {seed}, {metric:?}");
                    let peaks = [&windows, &whole].map(|source| source.peak(device, metric).unwrap());
                    assert_eq!(peaks[0], peaks[1], "{text}, seed {seed}, {metric:?}");
                }
            }
        }
    }
}
