//! What contradicts itself in a recording is found in windows as in memory, once.

use std::fmt::Write as _;

use highwater_analysis::Source;
use highwater_analysis::verify::verify_devices;
use highwater_snapshots::format::{read_bytes, write_trace};
use highwater_snapshots::text::trace_from_text;

use super::program::{open, watch};

#[test]
fn contradictions_are_found_in_windows_of_any_length() {
    let mut text = "baseline w 4096\n".to_owned();
    for block in 0..60 {
        let device = if block % 10 == 3 { " device=1" } else { "" };
        writeln!(text, "alloc a{block} 512{device}").unwrap();
        if block > 20 {
            let freed = block - 20;
            let device = if freed % 10 == 3 { " device=1" } else { "" };
            writeln!(text, "free a{freed}{device}").unwrap();
        }
    }
    let mut trace = trace_from_text(&text).unwrap();
    for row in 0..trace.blocks.len() {
        trace.blocks.address[row] = row as u64 * 4096;
    }
    // Blocks that overlap one allocated long before, or the baseline; sizes and times that cannot be.
    for (row, other) in [(12, 2), (30, 14), (31, 14), (55, 0), (56, 54), (57, 54), (58, 54)] {
        trace.blocks.address[row] = trace.blocks.address[other] + 256;
    }
    trace.blocks.allocated[40] = 400;
    for row in (0..trace.events.len()).step_by(7).skip(1) {
        trace.events.time_ns[row] = row as u64 * 10;
        trace.events.time_ns[row - 1] = row as u64 * 10 + 5;
    }
    let bytes = write_trace(Vec::new(), &trace).unwrap();
    let whole = Source::in_memory(read_bytes(&bytes).unwrap());
    let devices = whole.facts().device_ids();
    let told = |source: &Source<'_>| -> Vec<String> {
        let found = verify_devices(source, &devices, watch()).unwrap();
        found.iter().map(ToString::to_string).collect()
    };
    let expected = told(&whole);
    assert!(expected.iter().any(|text| text.contains("blocks 2 and 12 overlap")), "{expected:#?}");
    assert!(expected.iter().any(|text| text.contains("more: events out of order")), "{expected:#?}");
    assert!(expected.iter().any(|text| text.contains("block 40 has 400 bytes")), "{expected:#?}");
    for events in [1, 3, 7, 50] {
        let windows = Source::in_windows(open(&bytes)).unwrap().in_windows_of(events);
        assert_eq!(told(&windows), expected, "windows of {events} events");
    }
}
