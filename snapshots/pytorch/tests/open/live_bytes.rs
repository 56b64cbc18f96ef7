//! Tests that the live bytes reported while a recording is read equal those of the complete recording.

use std::ops::ControlFlow;

use highwater_analysis::{Metric, Series};
use highwater_notation::trace_from_text;
use highwater_pytorch::open::{open_bytes, open_stream};
use highwater_snapshots::format::{Progress, write_trace};
use highwater_snapshots::live_bytes::LiveBytes;
use highwater_snapshots::{DeviceId, Trace};
use serde_json::json;

/// What is told of `bytes`, by events, and the trace.
fn expected(bytes: &[u8], is_stream: bool) -> (Vec<(u64, LiveBytes)>, Trace) {
    let mut expected = Vec::new();
    let mut listener = |now: Progress| {
        expected.extend(now.levels.map(|levels| (now.events, levels)));
        ControlFlow::Continue(())
    };
    let opened = if is_stream { open_stream(bytes, &mut listener) } else { open_bytes(bytes, &mut listener) };
    let trace = opened.unwrap().trace;
    (expected, trace)
}

#[test]
fn the_levels_of_a_recording_are_those_of_its_totals_to_the_byte() {
    // Frees that were not recorded, a block that waits from the start, and completions that stand for both.
    let mut text = "baseline w 1000\nbaseline x 500 waiting\nfree_completed x\nalloc a 70\nalloc a 80\n".to_owned();
    text += "alloc c 90\nfree_completed c\nfree_requested z\n";
    for n in 0..30_000 {
        text += &format!("alloc b{n} {}\nfree_requested b{}\n", 100 + n % 50, n - n % 3);
    }
    let trace = trace_from_text(&text).unwrap();
    let series = Series::build(&trace, DeviceId(0));
    let bytes = write_trace(Vec::new(), &trace).unwrap();
    for is_stream in [false, true] {
        let (expected, read) = expected(&bytes, is_stream);
        assert_eq!(read.events.len(), trace.events.len());
        assert!(expected.len() >= 4, "{}", expected.len());
        assert_eq!(expected.last().unwrap().0, trace.events.len() as u64);
        let mut first = 0;
        for (end, levels) in expected {
            let largest = series.largest(&trace, Metric::Requested, first..end as usize).unwrap().0;
            let before = series.before_position(&trace, first).requested;
            let before = if first == 0 { 0 } else { before };
            assert_eq!(
                levels.highest,
                largest.max(before).max(series.baseline().requested * u64::from(first == 0)) as i64
            );
            first = end as usize;
        }
    }
}

#[test]
fn the_levels_of_a_snapshot_show_its_shape() {
    let event = |action: &str, n: u64| json!({"action": action, "addr": 512 * n, "size": 1000, "time_us": 50 + n});
    let mut events = Vec::new();
    for n in 0..30_000 {
        events.push(event("alloc", n));
        if n % 2 == 0 {
            events.extend([event("free_requested", n), event("free_completed", n)]);
        }
    }
    let text = json!({"segments": [], "device_traces": [events]}).to_string();
    let (expected, trace) = expected(text.as_bytes(), false);
    assert!(expected.len() >= 3 && trace.events.len() >= 60_000, "{expected:?}");
    assert!(expected.windows(2).all(|pair| pair[0].1.highest < pair[1].1.highest), "{expected:?}");
    let (events, levels) = *expected.last().unwrap();
    let expected = events / 4 * 1000;
    assert!((levels.highest as u64).abs_diff(expected) <= 2000, "{levels:?} after {events} events");
}
