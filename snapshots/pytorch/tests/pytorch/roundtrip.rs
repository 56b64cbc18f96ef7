//! Tests that an exported file gives back the recording, with and without the embedded recording.

use std::ops::ControlFlow;

use highwater_analysis::{Metric, Totals};
use highwater_notation::trace_from_text;
use highwater_pytorch::export::{write_json, write_pickle};
use highwater_pytorch::json::read_json_bytes;
use highwater_pytorch::open::open_bytes;
use highwater_pytorch::pickle::read_pickle;
use highwater_pytorch::{RawSnapshot, assemble};
use highwater_snapshots::event::EventKind;
use highwater_snapshots::format::write_trace;
use highwater_snapshots::tables::{Frame, Op, Scope, SourceLine, Stack, Tables};
use highwater_snapshots::trace::{DeviceFacts, Header};
use highwater_snapshots::{DeviceId, EventId, FrameId, ModuleId, Problem, Result, ScopeId, StackId, StringId, Trace};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::Value;

use crate::allocator::{Growth, orders, recorded};
use crate::found::series;
use crate::strange::{builder_of, event, named, starting_state, whole};

fn go<P>(_: P) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

fn pickle(trace: &Trace) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_pickle(&mut bytes, trace, &mut go).unwrap();
    bytes
}

fn json(trace: &Trace) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_json(&mut bytes, trace, &mut go).unwrap();
    bytes
}

/// Gives the handles that strange events have something to name: stacks, scopes and operations, but not to all.
fn fill_tables(tables: &mut Tables) {
    let first_text = tables.strings.len() as u32;
    tables.strings.extend(["main", "step \"1\"\n", "größe", "net.py", ""].map(str::to_owned));
    let text = |number: u32| StringId(first_text + number % 5);
    let (module, address) = (ModuleId::NONE, 0);
    tables.frames = (0..5).map(|row| Frame { module, address, first_line: row, line_count: 1 }).collect();
    let line = |row: u32| SourceLine { function: text(row), file: text(3), line: row };
    tables.lines = (0..5).map(line).collect();
    let stack = |row: u32| Stack { parent: row.checked_sub(2).map_or(StackId::NONE, StackId), frame: FrameId(row % 5) };
    tables.stacks = (0..7).map(stack).collect();
    let scope = |row: u32| Scope { parent: row.checked_sub(1).map_or(ScopeId::NONE, ScopeId), name: text(row) };
    tables.scopes = (0..2).map(scope).collect();
    tables.ops = (0..3).map(|row| Op { name: text(row), scope: ScopeId(row), stack: StackId(row) }).collect();
}

#[test]
fn a_pickle_that_begins_with_what_it_refers_to_again_opens() {
    let trace = trace_from_text("mark go\nmark go").unwrap();
    let opened = open_bytes(&pickle(&trace), &mut go).unwrap();
    assert_eq!(whole(&opened.trace), whole(&trace));
}

/// Bytes and totals of a device before its first event and after each event of a kind that PyTorch knows, and its
/// peaks.
type Course = (Totals, Vec<(EventKind, Totals)>, Vec<u64>);

fn course(trace: &Trace, ordinal: u16) -> Course {
    let series = series(trace, ordinal);
    let of_blocks = |totals: Totals| Totals { device_used: 0, ..totals };
    let is_of_pytorch = |id: &EventId| {
        let kind = trace.events.kind[id.0 as usize];
        trace.events.device[id.0 as usize] == DeviceId(ordinal) && kind <= EventKind::FreeCompleted
    };
    let after = |id: EventId| (trace.events.kind[id.0 as usize], of_blocks(series.after(trace, id)));
    let metrics = [Metric::Requested, Metric::Allocated, Metric::Active, Metric::Reserved];
    let peaks = metrics.map(|metric| series.peak(trace, metric).0);
    let events = trace.events.ids().filter(is_of_pytorch).map(after).collect();
    (of_blocks(series.baseline()), events, peaks.to_vec())
}

/// What a reader makes of a file from which the recording that it carries was taken out.
fn bare(raw: Result<RawSnapshot>) -> Trace {
    assemble(RawSnapshot { highwater: None, ..raw.unwrap() })
}

proptest! {
    /// Contradictions, handles of no row and sizes that cannot be are part of what survives.
    #[test]
    fn any_recording_comes_back_whole_from_each_format(
        states in prop_oneof![Just(Vec::new()), (starting_state(1), starting_state(0)).prop_map(|(a, b)| vec![a, b])],
        events in vec(event(), 0..80), named in named(),
        started_unix_us in prop_oneof![Just(0_u64), 1_790_000_000_000_000..1_800_000_000_000_000_u64, Just(u64::MAX)],
    ) {
        let header = Header { recorder: "highwater 0.1.0".to_owned(), started_unix_us, ..Header::default() };
        let settings = vec![("max_split_size".to_owned(), "-1".to_owned())];
        let mut builder = builder_of(header, &states, &events, &named);
        builder.set_device(DeviceFacts { device: DeviceId(2), settings, ..DeviceFacts::default() });
        fill_tables(builder.tables());
        let trace = builder.finish();
        let expected = whole(&trace);
        for bytes in [write_trace(Vec::new(), &trace).unwrap(), pickle(&trace), json(&trace)] {
            let opened = open_bytes(&bytes, &mut go).unwrap();
            prop_assert_eq!(whole(&opened.trace), expected.clone(), "as {}", opened.format.name());
        }
    }

    /// For recordings as an allocator makes them (see `allocator` for what is left out), the format itself holds all
    /// that the totals need, whatever becomes of stacks, categories, tags and marks.
    #[test]
    fn without_the_recording_that_it_carries_a_file_gives_the_same_totals(
        before in orders(40), after in orders(80), growth in prop_oneof![Just(Growth::Segments), Just(Growth::Mapped)],
    ) {
        let trace = recorded(&before, &after, growth);
        let json = json(&trace);
        let mut value: Value = serde_json::from_slice(&json).unwrap();
        prop_assert!(value.as_object_mut().unwrap().remove("highwater").is_some());
        let text = value.to_string();
        let read = [
            ("pickle", bare(read_pickle(&pickle(&trace), &mut go))),
            ("json", bare(read_json_bytes(&json, &mut go))),
            ("json without the key", open_bytes(text.as_bytes(), &mut go).unwrap().trace),
        ];
        for (name, read) in read {
            let is_ours = |problem: &&Problem| problem.what.contains("(kept as a mark)");
            let problems: Vec<_> = read.problems.iter().filter(|problem| !is_ours(problem)).collect();
            prop_assert!(problems.is_empty(), "as {}: {:?}", name, problems);
            for ordinal in [0, 1] {
                prop_assert_eq!(course(&read, ordinal), course(&trace, ordinal), "device {} as {}", ordinal, name);
            }
        }
    }
}
