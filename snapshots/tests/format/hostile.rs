//! Tests that malicious files cause no panic, no endless loop, and no more memory use than their size justifies.

use std::ops::ControlFlow;
use std::path::Path;

use proptest::collection::vec;
use proptest::prelude::*;

use highwater_snapshots::event::{Event, What};
use highwater_snapshots::format::{
    COMPRESSION_NONE, COMPRESSION_ZSTD, EndFacts, FLAG_MUST_UNDERSTAND, HEADER_BYTES, MARKER, PREAMBLE_BYTES,
    SectionHeader, SectionKind, SnapWriter, is_snap, read_bytes, read_bytes_with, read_file,
};
use highwater_snapshots::trace::{Annotation, Attribute, Owner};
use highwater_snapshots::{
    BlockId, Category, DeviceId, Error, EventId, SegmentId, StackId, StartingBlock, StartingState, StringId,
};

use crate::made::write_step;

/// A recording whose one section, beside the header section, is `header` and `payload`, checksums made right.
fn file_with(header: SectionHeader, payload: &[u8]) -> Vec<u8> {
    let mut bytes = SnapWriter::new(Vec::new(), &crate::made::header()).unwrap().get_ref().clone();
    bytes.extend(section(header, payload));
    bytes
}

fn section(header: SectionHeader, payload: &[u8]) -> Vec<u8> {
    let header = SectionHeader { payload_crc: crc32fast::hash(payload), ..header };
    [&header.to_bytes()[..], payload].concat()
}

fn header_for(kind: SectionKind, payload: &[u8]) -> SectionHeader {
    SectionHeader {
        kind: kind.code(),
        flags: 0,
        compression: COMPRESSION_NONE,
        stored: payload.len() as u32,
        raw: payload.len() as u32,
        count: 1,
        first: 0,
        payload_crc: 0,
    }
}

/// The problems that reading `bytes` gives, one a line.
fn problems(bytes: &[u8]) -> String {
    let trace = read_bytes(bytes).unwrap();
    trace.problems.iter().map(|problem| format!("{problem}\n")).collect()
}

#[test]
fn a_bomb_is_refused_before_it_is_decompressed() {
    let bomb = zstd::bulk::compress(&vec![0; 64 << 20], 19).unwrap();
    let honest = SectionHeader {
        compression: COMPRESSION_ZSTD,
        raw: 64 << 20,
        count: 1 << 23,
        ..header_for(SectionKind::Strings, &bomb)
    };
    assert!(problems(&file_with(honest, &bomb)).contains("claim to expand to 67108864"));
    let lying = SectionHeader { raw: 1000, ..honest };
    assert!(problems(&file_with(lying, &bomb)).contains("cannot be decompressed"));
}

#[test]
fn lengths_that_claim_gigabytes_are_refused_by_what_is_there() {
    let ones = [0xff; 64];
    for kind in SectionKind::ALL.iter().filter(|kind| !kind.is_repeated()) {
        let header = header_for(*kind, &ones);
        let text = problems(&file_with(header, &ones));
        assert!(text.contains("skipped"), "{}: {text}", kind.name());
        let many = SectionHeader { count: u32::MAX, ..header };
        let text = problems(&file_with(many, &ones));
        assert!(text.contains("skipped"), "{}: {text}", kind.name());
        let large = SectionHeader { raw: u32::MAX, compression: COMPRESSION_ZSTD, ..header };
        let text = problems(&file_with(large, &ones));
        assert!(text.contains("more than a section may"), "{}: {text}", kind.name());
        let long = SectionHeader { stored: u32::MAX, ..header };
        let text = problems(&file_with(long, &ones));
        assert!(text.contains("the file ends within a section"), "{}: {text}", kind.name());
    }
}

#[test]
fn rows_numbered_far_beyond_what_could_be_missing_are_refused() {
    let row = [0; 8];
    for first in [1, 1 << 20, u64::from(u32::MAX), u64::MAX] {
        let header = SectionHeader { first, ..header_for(SectionKind::Strings, &row) };
        let text = problems(&file_with(header, &row));
        assert!(text.contains("but only 0 rows came before"), "{first}: {text}");
    }
    let header = header_for(SectionKind::Strings, &row);
    let twice = [file_with(header, &row), section(header, &row)].concat();
    assert!(problems(&twice).contains("1 rows were already read"));
}

#[test]
fn parents_that_would_make_a_loop_cannot_be_written_down() {
    for back in [1_u32, 2, u32::MAX] {
        let row = [back.to_le_bytes(), 0_u32.to_le_bytes()].concat();
        for kind in [SectionKind::Stacks, SectionKind::Scopes] {
            let text = problems(&file_with(header_for(kind, &row), &row));
            assert!(text.contains("parent is before the first row"), "{text}");
        }
    }
}

/// Two sections of two events each; those of the first are of `device`.
fn writer_with_events(device: u16) -> SnapWriter<Vec<u8>> {
    let mut writer = SnapWriter::new(Vec::new(), &crate::made::header()).unwrap();
    writer.append_strings(&["name", "value"]).unwrap();
    let block = StartingBlock {
        alloc: crate::strange::alloc(0, 100, Category::Parameter),
        stack: StackId::NONE,
        free_requested: false,
    };
    for device in [device, 0] {
        let state = StartingState { device: DeviceId(device), blocks: vec![block; 2], ..StartingState::default() };
        writer.write_starting_state(&state).unwrap();
    }
    for (number, device) in [device, 0].into_iter().enumerate() {
        let event = |n| Event { time_ns: n, device: DeviceId(device), stack: StackId::NONE, what: What::DeviceUsed(n) };
        writer.write_events(&[event(2 * number as u64), event(2 * number as u64 + 1)]).unwrap();
    }
    writer
}

fn annotation(name: u32, first: u32, end: u32) -> Annotation {
    let (first, end, device) = (EventId(first), EventId(end), DeviceId(0));
    Annotation { name: StringId(name), device, start_ns: None, end_ns: None, first, end, is_guessed: false }
}

fn attribute(owner: Owner, name: u32, value: u32) -> Attribute {
    Attribute { owner, name: StringId(name), value: StringId(value) }
}

#[test]
fn annotations_and_attributes_of_what_is_not_there_are_left_out_and_counted() {
    let none = u32::MAX;
    let mut writer = writer_with_events(0);
    let wrong = [
        annotation(2, 0, 1),
        annotation(none, 0, 1),
        annotation(0, 2, 1),
        annotation(0, 0, 5),
        annotation(0, none, none),
    ];
    writer.append_annotations(&wrong).unwrap();
    writer.append_annotations(&[annotation(0, 0, 4), annotation(1, 4, 4)]).unwrap();
    let event = Owner::Event(EventId(3));
    let wrong = [
        attribute(Owner::Event(EventId(4)), 0, 1),
        attribute(Owner::Event(EventId(none)), 0, 1),
        attribute(Owner::Block(BlockId(4)), 0, 1),
        attribute(Owner::Block(BlockId(none)), 0, 1),
        attribute(Owner::Segment(SegmentId(0)), 0, 1),
        attribute(event, 2, 1),
        attribute(event, 0, none),
    ];
    writer.append_attributes(&wrong).unwrap();
    writer.append_attributes(&[attribute(event, 0, 1), attribute(Owner::Block(BlockId(3)), 0, 1)]).unwrap();
    let trace = read_bytes(&writer.finish(&EndFacts::default()).unwrap()).unwrap();
    assert_eq!(trace.annotations, [annotation(0, 0, 4), annotation(1, 4, 4)]);
    assert_eq!(trace.attributes, [attribute(event, 0, 1), attribute(Owner::Block(BlockId(3)), 0, 1)]);
    let told: Vec<&str> = trace.problems.iter().map(|problem| problem.what.as_str()).collect();
    let expected = [
        "5 annotations refer to missing rows: they are skipped",
        "7 attributes refer to missing rows: they are skipped",
    ];
    assert_eq!(told, expected);
}

#[test]
fn where_events_and_blocks_are_refused_what_belongs_to_the_others_finds_its_rows() {
    let mut writer = writer_with_events(300);
    let annotations = [annotation(0, 0, 2), annotation(0, 0, 3), annotation(0, 1, 4), annotation(0, 2, 4)];
    writer.append_annotations(&annotations).unwrap();
    let owners = [Owner::Event(EventId(1)), Owner::Event(EventId(2)), Owner::Block(BlockId(0))];
    writer.append_attributes(&owners.map(|owner| attribute(owner, 0, 1))).unwrap();
    let trace = read_bytes(&writer.finish(&EndFacts::default()).unwrap()).unwrap();
    assert_eq!(trace.events.time_ns, [2, 3]);
    // Nobody keeps account of which events of a section were refused, so that event 1 might be any of them.
    assert_eq!(trace.annotations, [annotation(0, 0, 2), annotation(0, 0, 1)]);
    assert_eq!(trace.attributes, [attribute(Owner::Event(EventId(0)), 0, 1)]);
    let told: String = trace.problems.iter().map(|problem| format!("{}\n", problem.what)).collect();
    assert!(told.contains("2 annotations belong to lost rows"), "{told}");
    assert!(told.contains("2 attributes belong to lost rows"), "{told}");
}

#[test]
fn sections_of_unknown_kinds_are_passed_over_and_named_only_if_they_matter() {
    let unknown = SectionHeader { kind: 700, ..header_for(SectionKind::Strings, b"hello") };
    assert!(!problems(&file_with(unknown, b"hello")).contains("700"));
    let matters = SectionHeader { flags: FLAG_MUST_UNDERSTAND, ..unknown };
    assert!(problems(&file_with(matters, b"hello")).contains("needs a section of kind 700"));
    let compressed = SectionHeader { compression: 9, ..header_for(SectionKind::Strings, b"hello") };
    assert!(problems(&file_with(compressed, b"hello")).contains("compression 9 is unknown"));
}

#[test]
fn other_files_are_named_for_what_they_look_like() {
    let cases: [(&[u8], &str); 10] = [
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "a PNG picture"),
        (b"\x7fELF\x02\x01\x01", "an ELF program"),
        (b"\x1f\x8b\x08\0\0\0\0\0", "gzip-compressed"),
        (b"\x80\x04\x95\x10\0\0\0\0\0\0\0}", "a Python pickle of protocol 4"),
        (b"PK\x03\x04\x14\0", "a zip archive"),
        (b"  {\"segments\": []}", "JSON"),
        (b"<!DOCTYPE html>", "HTML or XML"),
        (b"Traceback (most recent call last):\n  File", "text (\"Traceback (most recent c\")"),
        (b"\0\x01\x02\xfe\xff", "the bytes 00 01 02 fe ff"),
        (b"\x89", "within its first eight bytes"),
    ];
    for (bytes, expected) in cases {
        assert!(!is_snap(bytes));
        let error = read_bytes(bytes).unwrap_err().to_string();
        assert!(error.contains(expected), "{expected}: {error}");
    }
    assert!(matches!(read_bytes(b""), Err(Error::Empty)));
}

#[test]
fn many_overlapping_sections_are_given_up_on_rather_than_checked_for_ever() {
    // Each header claims all that follows as its payload, with a wrong checksum, so that each must be doubted.
    let mut bytes = write_step(false);
    let headers = 20_000;
    for left in (1..=headers).rev() {
        let stored = (left * HEADER_BYTES - HEADER_BYTES + 1) as u32;
        let header = SectionHeader { stored, raw: stored, ..header_for(SectionKind::Strings, b"") };
        bytes.extend(header.to_bytes());
    }
    bytes.extend([0, 0]);
    let trace = read_bytes(&bytes).unwrap();
    assert!(trace.problems.len() < 20, "{} problems", trace.problems.len());
    let given_up = trace.problems.iter().any(|problem| problem.what.contains("bytes in no readable section"));
    assert!(given_up, "{:?}", trace.problems);
}

#[test]
fn a_thousand_problems_are_counted_and_only_the_first_are_kept() {
    let row = [0; 7];
    let mut bytes = write_step(false);
    (0..1000).for_each(|_| bytes.extend(section(header_for(SectionKind::Strings, &row), &row)));
    let trace = read_bytes(&bytes).unwrap();
    assert!(trace.problems.len() < 300, "{} problems", trace.problems.len());
    assert!(trace.problems.last().unwrap().what.contains("further problems like these"));
}

#[test]
fn a_path_that_cannot_be_read_is_named() {
    let error = read_file(Path::new("/no/such/folder/step.snap")).unwrap_err().to_string();
    assert!(error.starts_with("/no/such/folder/step.snap: cannot open the recording: "), "{error}");
    assert!(matches!(read_file(Path::new("/dev/null")), Err(Error::Empty)));
}

#[test]
fn reading_stops_on_request() {
    let bytes = write_step(true);
    let mut calls = 0;
    let stopped = read_bytes_with(&bytes, &mut |progress| {
        calls += 1;
        assert_eq!(progress.bytes, bytes.len() as u64);
        ControlFlow::Break(())
    });
    assert!(matches!(stopped, Err(Error::Cancelled)));
    assert_eq!(calls, 1);
    let mut last = None;
    read_bytes_with(&bytes, &mut |progress| {
        last = Some(progress);
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(last.unwrap().events_in_all, Some(239));
    assert_eq!(last.unwrap().bytes_read, bytes.len() as u64);
}

proptest! {
    #[test]
    fn any_bytes_after_the_preamble_are_read_without_a_panic(tail in vec(any::<u8>(), 0..300), with_marker in any::<bool>()) {
        let mut bytes = write_step(false)[..PREAMBLE_BYTES].to_vec();
        if with_marker {
            bytes.extend(MARKER);
        }
        bytes.extend(tail);
        let trace = read_bytes(&bytes).unwrap();
        prop_assert!(trace.trust.unfinished && !trace.problems.is_empty());
    }

    #[test]
    fn any_payload_in_a_section_that_checks_out_is_read_without_a_panic(
        kind in 1..17_u16, payload in vec(any::<u8>(), 0..200), count in prop_oneof![0..200_u32, any::<u32>()],
        first in prop_oneof![Just(0_u64), any::<u64>()],
    ) {
        let header = SectionHeader { kind, count, first, ..header_for(SectionKind::Header, &payload) };
        read_bytes(&file_with(header, &payload)).unwrap();
    }

    #[test]
    fn pieces_of_a_file_in_any_order_are_read_without_a_panic(cuts in vec((any::<prop::sample::Index>(), 0..400_usize), 1..8)) {
        let original = write_step(true);
        let mut bytes = original[..PREAMBLE_BYTES].to_vec();
        for (from, length) in cuts {
            let from = from.index(original.len());
            bytes.extend(&original[from..original.len().min(from + length)]);
        }
        read_bytes(&bytes).unwrap();
    }
}
