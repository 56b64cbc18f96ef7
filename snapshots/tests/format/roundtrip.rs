//! Tests that a written recording is read back unchanged, event by event and table by table.

use proptest::collection::vec;
use proptest::prelude::*;

use highwater_snapshots::event::{Event, What};
use highwater_snapshots::format::{CHUNK_EVENTS, EndFacts, SectionKind, SnapWriter, read_bytes, write_trace};
use highwater_snapshots::tables::{Scope, Stack};
use highwater_snapshots::trace::{Annotation, Header, NOTE, UNREGISTERED};
use highwater_snapshots::{
    DeviceId, Error, EventId, FrameId, Problem, ScopeId, StackId, StartingState, StringId, TraceBuilder,
};

use crate::made::{STEP_CHUNKS, described, header, write_step};
use crate::strange::{NAMES, baseline, builder_of, event, named, starting_state, whole};

proptest! {
    #[test]
    fn events_written_as_they_happen_give_the_trace_that_they_make(
        states in (starting_state(0), starting_state(2)), events in vec(event(), 0..120), chunk in 1..50_usize,
        named in named(),
    ) {
        let states = [states.0, states.1];
        let mut writer = SnapWriter::new(Vec::new(), &header()).unwrap();
        writer.append_strings(&NAMES).unwrap();
        for state in &states {
            writer.write_starting_state(state).unwrap();
        }
        for events in events.chunks(chunk) {
            writer.write_events(events).unwrap();
        }
        let (blocks, segments) = baseline(&states);
        let (annotations, attributes) = named.rows(events.len(), blocks, segments);
        for annotations in annotations.chunks(chunk) {
            writer.append_annotations(annotations).unwrap();
        }
        for attributes in attributes.chunks(chunk) {
            writer.append_attributes(attributes).unwrap();
        }
        let bytes = writer.finish(&EndFacts::default()).unwrap();
        let expected = builder_of(header(), &states, &events, &named).finish();
        prop_assert_eq!(whole(&read_bytes(&bytes).unwrap()), whole(&expected));
    }

    #[test]
    fn a_trace_written_whole_reads_as_itself(
        states in (starting_state(1), starting_state(0)), events in vec(event(), 0..120), named in named(),
    ) {
        let trace = builder_of(header(), &[states.0, states.1], &events, &named).finish();
        let bytes = write_trace(Vec::new(), &trace).unwrap();
        let read = read_bytes(&bytes).unwrap();
        prop_assert_eq!(whole(&read), whole(&trace));
        let again = write_trace(Vec::new(), &read).unwrap();
        prop_assert!(again == bytes, "writing what was read gives other bytes");
    }
}

#[test]
fn facts_that_are_known_at_the_end_are_those_of_the_header() {
    let fact = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let first = fact("rank", "3");
    let mut writer = SnapWriter::new(Vec::new(), &Header { facts: vec![first.clone()], ..header() }).unwrap();
    writer.append_facts(&[]).unwrap();
    let later = [fact(UNREGISTERED, "7"), fact(NOTE, "7 events of device 1 not recorded")];
    writer.append_facts(&later).unwrap();
    let trace = read_bytes(&writer.finish(&EndFacts::default()).unwrap()).unwrap();
    let [seven, note] = later;
    assert_eq!(trace.header.facts, [first, seven, note]);
    assert_eq!((trace.header.unregistered_events(), trace.is_complete()), (7, false));
    let again = read_bytes(&write_trace(Vec::new(), &trace).unwrap()).unwrap();
    assert_eq!(again.header, trace.header);
}

#[test]
fn a_recording_with_every_kind_of_section_reads_whole_and_converts_to_itself() {
    let bytes = write_step(true);
    let trace = read_bytes(&bytes).unwrap();
    assert_eq!(trace.events.len(), STEP_CHUNKS.iter().sum::<usize>());
    assert_eq!(trace.header, header());
    assert_eq!(trace.trust.events_lost, 3);
    assert!(!trace.trust.unfinished);
    assert_eq!(trace.problems, [Problem::new("the clock went back once")]);
    assert_eq!(
        trace.tables.stack_text(StackId(2)),
        ["0x30c0 in /usr/bin/train", "src/model.rs:40 gelu", "src/model.rs:12 forward", "src/model.rs:3 main"],
        "the last word on a frame wins, and a frame without one keeps its address"
    );
    let again = read_bytes(&write_trace(Vec::new(), &trace).unwrap()).unwrap();
    assert_eq!(described(&again), described(&trace));
    let third = read_bytes(&write_trace(Vec::new(), &again).unwrap()).unwrap();
    assert_eq!(whole(&third), whole(&again), "lines that no frame names are dropped once, and nothing after that");
}

#[test]
fn chunks_end_at_their_border_and_no_event_is_lost_there() {
    for count in [CHUNK_EVENTS - 1, CHUNK_EVENTS, CHUNK_EVENTS + 1, 2 * CHUNK_EVENTS + 1] {
        let events: Vec<Event> = (0..count as u64)
            .map(|number| Event {
                time_ns: number * number % 1009,
                device: DeviceId(0),
                stack: StackId::NONE,
                what: What::DeviceUsed(number),
            })
            .collect();
        let mut writer = SnapWriter::new(Vec::new(), &Header::default()).unwrap();
        writer.write_events(&events).unwrap();
        assert_eq!(writer.events(), count as u64);
        let bytes = writer.finish(&EndFacts::default()).unwrap();
        let trace = read_bytes(&bytes).unwrap();
        let values: Vec<u64> = events.iter().map(|event| event.time_ns).collect();
        assert!(trace.events.time_ns == values, "times differ with {count} events");
        assert!(trace.device_used.iter().copied().eq(0..count as u64), "values differ with {count} events");
        assert!(trace.trust.is_complete() && trace.problems.is_empty());
    }
}

#[test]
fn events_that_compress_to_almost_nothing_still_read() {
    let event = Event { time_ns: 0, device: DeviceId(0), stack: StackId::NONE, what: What::Step(0) };
    let mut writer = SnapWriter::new(Vec::new(), &Header::default()).unwrap();
    writer.write_events(&vec![event; CHUNK_EVENTS]).unwrap();
    let bytes = writer.finish(&EndFacts::default()).unwrap();
    assert!(bytes.len() < 10_000, "{} bytes", bytes.len());
    let trace = read_bytes(&bytes).unwrap();
    assert_eq!((trace.events.len(), trace.problems.len()), (CHUNK_EVENTS, 0));
}

#[test]
fn large_tables_are_split_and_put_together_again() {
    let rows: Vec<String> = (0..40_000).map(|row| format!("{row} {}", "x".repeat(row % 400))).collect();
    let mut writer = SnapWriter::new(Vec::new(), &Header::default()).unwrap();
    writer.append_strings(&rows[..7]).unwrap();
    writer.append_strings(&rows[7..]).unwrap();
    assert_eq!(writer.rows(SectionKind::Strings), 40_000);
    let bytes = writer.finish(&EndFacts::default()).unwrap();
    assert!(read_bytes(&bytes).unwrap().tables.strings == rows);
}

#[test]
fn large_tables_of_annotations_are_split_and_put_together_again() {
    let mut builder = TraceBuilder::default();
    builder.tables().strings = vec!["mlp".to_owned()];
    builder.push(&Event { time_ns: 0, device: DeviceId(0), stack: StackId::NONE, what: What::DeviceUsed(1) });
    let name = StringId(0);
    for number in 0..170_000_u32 {
        let (first, end) = (EventId(0), EventId(1));
        let (start_ns, end_ns) = (Some(u64::from(number)), None);
        builder.add_annotation(Annotation {
            name,
            device: DeviceId(0),
            start_ns,
            end_ns,
            first,
            end,
            is_guessed: false,
        });
    }
    let trace = builder.finish();
    let bytes = write_trace(Vec::new(), &trace).unwrap();
    let index = highwater_snapshots::format::Index::from_bytes(&bytes).unwrap();
    assert_eq!(index.rows.iter().filter(|row| row.kind == SectionKind::Annotations.code()).count(), 2);
    let read = read_bytes(&bytes).unwrap();
    assert!(read.annotations == trace.annotations && read.problems.is_empty());
}

#[test]
fn rows_and_states_out_of_order_are_refused_when_written() {
    let mut writer = SnapWriter::new(Vec::new(), &Header::default()).unwrap();
    let own_parent = Stack { parent: StackId(0), frame: FrameId(0) };
    assert!(matches!(writer.append_stacks(&[own_parent]), Err(Error::Encode { .. })));
    let later_parent = Scope { parent: ScopeId(4), name: StringId(0) };
    assert!(matches!(writer.append_scopes(&[later_parent]), Err(Error::Encode { .. })));
    let event = Event { time_ns: 0, device: DeviceId(0), stack: StackId::NONE, what: What::Step(0) };
    writer.write_events(&[event]).unwrap();
    let state = StartingState::default();
    let error = writer.write_starting_state(&state).unwrap_err();
    assert!(error.to_string().contains("before the first event"), "{error}");
}

/// Takes `left` bytes, then has no room.
struct FullDisk {
    bytes: Vec<u8>,
    left: usize,
}

impl std::io::Write for FullDisk {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let taken = bytes.len().min(self.left);
        if taken == 0 {
            return Err(std::io::Error::other("no space left on device"));
        }
        self.left -= taken;
        self.bytes.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_full_disk_is_an_error_each_time_and_what_was_written_before_reads() {
    let event = Event { time_ns: 0, device: DeviceId(0), stack: StackId::NONE, what: What::Step(0) };
    let disk = FullDisk { bytes: Vec::new(), left: 300 };
    let mut writer = SnapWriter::new(disk, &Header::default()).unwrap();
    let failures = (0..20).filter(|_| writer.write_events(&[event]).is_err()).count();
    assert!(failures > 1 && failures < 20, "{failures} failures");
    let trace = read_bytes(&writer.get_ref().bytes).unwrap();
    assert_eq!(trace.events.len(), 20 - failures);
    assert!(trace.trust.unfinished);
}
