//! Tests that the contradictions found in a recording are the same in memory and read in windows.

use highwater_analysis::Source;
use highwater_analysis::verify::verify;
use highwater_notation::trace_from_text;
use highwater_snapshots::event::What;
use highwater_snapshots::format::{read_bytes, write_trace};
use highwater_snapshots::{ScopeId, StackId};

use crate::program::{Numbers, events, open, recording, training, watch};
use crate::rotated::write;

/// The problems of all devices together, and of each alone.
fn problems(source: &Source<'_>) -> Vec<Vec<String>> {
    let devices = source.facts().device_ids();
    let choices = std::iter::once(&devices[..]).chain(devices.chunks(1));
    let found = choices.map(|devices| verify(source, devices, watch()).unwrap());
    found.map(|problems| problems.iter().map(ToString::to_string).collect()).collect()
}

/// Compares a recording in memory with windows of it; returns the problems of all devices together.
fn compare(bytes: &[u8]) -> Vec<String> {
    let expected = problems(&Source::in_memory(read_bytes(bytes).unwrap()));
    for most in [7, 400, 1 << 20] {
        let windows = Source::in_windows(open(bytes)).unwrap().in_windows_of(most);
        assert_eq!(problems(&windows), expected, "windows of {most} events");
    }
    expected.into_iter().next().unwrap_or_default()
}

/// A recording some of whose events contradict others.
fn contradictory(seed: u64) -> Vec<u8> {
    let (mut events, state, ops) = events(seed, 2);
    let mut numbers = Numbers(seed);
    let mut addresses = Vec::new();
    for event in &mut events {
        let what = numbers.below(60);
        match &mut event.what {
            What::Alloc(alloc) => {
                addresses.push(alloc.address);
                match what {
                    0 => alloc.allocated = alloc.requested / 2,
                    1 => alloc.address = addresses[numbers.below(addresses.len() as u64) as usize] + 256,
                    2 => alloc.scope = ScopeId(70_000),
                    3 => event.stack = StackId(80_000),
                    _ => {}
                }
            }
            _ if what == 4 => event.time_ns = event.time_ns.saturating_sub(1000),
            _ if what == 5 => event.stack = StackId(90_000),
            _ => {}
        }
    }
    write(["linear", "add"], &[], &[state], ops, &[&events])
}

#[test]
fn a_recording_in_windows_has_the_contradictions_of_the_whole() {
    for seed in 0..2 {
        assert!(!compare(&recording(seed, 2, seed == 0)).is_empty(), "segments of seed {seed}");
        let problems = compare(&contradictory(seed));
        for what in ["earlier than", "were requested", "is out of range", "overlap at address", "more: "] {
            assert!(problems.iter().any(|problem| problem.contains(what)), "{what}: {problems:#?}");
        }
    }
    let sound = trace_from_text(&training(9, |_| String::new())).unwrap();
    assert_eq!(compare(&write_trace(Vec::new(), &sound).unwrap()), [""; 0]);
}
