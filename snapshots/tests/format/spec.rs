//! Tests that the specification agrees with the code in every number and byte.

use std::fmt::Write as _;

use highwater_notation::text_from_trace;
use highwater_snapshots::event::{Alloc, Event, EventKind, What};
use highwater_snapshots::format::{
    CHUNK_EVENTS, COMPRESSION_NONE, COMPRESSION_ZSTD, Column, EndFacts, FLAG_MUST_UNDERSTAND, HEADER_BYTES, Index,
    MAGIC, MARKER, MAX_EXPANSION, MAX_RAW_BYTES, PREAMBLE_BYTES, SectionKind, SnapWriter, TAIL_BYTES, TAIL_MARKER,
    VERSION_MAJOR, VERSION_MINOR, WalkItem, Walker, read_bytes,
};
use highwater_snapshots::tables::Scope;
use highwater_snapshots::trace::{Annotation, Attribute, Header, Owner};
use highwater_snapshots::{
    BlockId, Category, DeviceId, EventId, OpId, Phase, Pool, ScopeId, StackId, StreamId, StringId,
};

const SPEC: &str = include_str!("../../SPEC.md");

/// The rows of the table under `heading`: their cells, without the table's head.
fn table(heading: &str) -> Vec<Vec<&'static str>> {
    let start = SPEC.find(&format!("\n{heading}\n")).unwrap_or_else(|| panic!("the specification has no '{heading}'"));
    let lines = SPEC[start + 1..].lines().skip(1).skip_while(|line| !line.starts_with('|'));
    let rows = lines.take_while(|line| line.starts_with('|')).skip(2);
    rows.map(|row| row.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// The first two cells of each row, as the code has them: number and name.
fn numbers(heading: &str) -> Vec<(usize, &'static str)> {
    table(heading).into_iter().map(|row| (row[0].parse().unwrap(), row[1])).collect()
}

/// Bytes in hexadecimal, as the specification writes them.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}

#[test]
fn every_code_in_the_tables_is_the_one_in_the_code() {
    let kinds: Vec<_> = SectionKind::ALL.iter().map(|kind| (usize::from(kind.code()), kind.name())).collect();
    assert_eq!(numbers("## Section kinds"), kinds);
    let columns: Vec<_> = Column::ALL.iter().map(|column| (*column as usize, column.name())).collect();
    assert_eq!(numbers("### Columns"), columns);
    let events: Vec<_> = EventKind::ALL.iter().map(|kind| (*kind as usize, kind.name())).collect();
    assert_eq!(numbers("### Event kinds"), events);
    let categories: Vec<_> = Category::ALL.iter().map(|category| (*category as usize, category.name())).collect();
    assert_eq!(numbers("### Categories"), categories);
    let phases: Vec<_> = Phase::ALL.iter().map(|phase| (*phase as usize, phase.name())).collect();
    assert_eq!(numbers("### Phases"), phases);
    let pools: Vec<_> = Pool::ALL.iter().map(|pool| (*pool as usize, pool.name())).collect();
    assert_eq!(numbers("### Pools"), pools);
}

#[test]
fn markers_versions_and_limits_are_those_of_the_code() {
    let preamble = table("### Preamble");
    assert_eq!(preamble[0][2], format!("magic: `{}`", hex(&MAGIC)));
    assert_eq!(preamble[1][2], format!("major version: {VERSION_MAJOR}"));
    assert_eq!(preamble[2][2], format!("minor version: {VERSION_MINOR}"));
    assert_eq!(length(&preamble), PREAMBLE_BYTES);
    let header = table("### Section header");
    assert_eq!(header[0][2], format!("marker: `{}`", hex(&MARKER)));
    assert_eq!(header[3][2], format!("compression: {COMPRESSION_NONE} none, {COMPRESSION_ZSTD} zstd"));
    assert_eq!(length(&header), HEADER_BYTES);
    assert_eq!(FLAG_MUST_UNDERSTAND, 1 << 0);
    let tail = table("### Tail");
    assert_eq!(tail[0][2], format!("marker: `{}`", hex(&TAIL_MARKER)));
    assert_eq!(length(&tail), TAIL_BYTES);
    let limits = SPEC.lines().filter_map(|line| line.strip_prefix("| ")?.split_once(" | ")).collect::<Vec<_>>();
    for (name, value) in [
        ("raw bytes of a section", MAX_RAW_BYTES),
        ("raw bytes a stored byte of a compressed section", MAX_EXPANSION),
        ("events of a section", CHUNK_EVENTS),
    ] {
        assert!(limits.contains(&(name, format!("{value} |").as_str())), "{name} is not {value}");
    }
    assert!(SPEC.starts_with(&format!("# The `.snap` format, version {VERSION_MAJOR}.{VERSION_MINOR}\n")));
}

/// The sum of the lengths in a table of fields, whose offsets must follow from each other.
fn length(rows: &[Vec<&str>]) -> usize {
    rows.iter().fold(0, |offset, row| {
        assert_eq!(row[0], offset.to_string(), "the field '{}' does not follow the one before", row[2]);
        offset + row[1].parse::<usize>().unwrap()
    })
}

#[test]
fn every_section_kind_but_events_has_its_row_described() {
    let described: Vec<&str> = table("## Rows").iter().map(|row| row[0]).collect();
    let kinds = SectionKind::ALL.iter().filter(|kind| **kind != SectionKind::Events).map(|kind| kind.name());
    assert_eq!(described, kinds.collect::<Vec<_>>());
}

/// The recording that the worked example shows.
fn example() -> Vec<u8> {
    let header = Header { recorder: "hw".to_owned(), program: "p".to_owned(), pid: 7, ..Header::default() };
    let mut writer = SnapWriter::new(Vec::new(), &header).unwrap();
    writer.append_strings(&["mlp"]).unwrap();
    writer.append_scopes(&[Scope { parent: ScopeId::NONE, name: StringId(0) }]).unwrap();
    let parameter = Alloc {
        block: 0,
        address: 0x20_0000,
        requested: 1000,
        allocated: 1024,
        stream: StreamId(0),
        pool: Pool::Small,
        category: Category::Parameter,
        op: OpId::NONE,
        scope: ScopeId(0),
    };
    let activation = Alloc {
        block: 1,
        address: 0x20_0400,
        requested: 1024,
        category: Category::Activation,
        scope: ScopeId::NONE,
        ..parameter
    };
    let event = |time_ns, what| Event { time_ns, device: DeviceId(0), stack: StackId::NONE, what };
    let events = [
        event(1000, What::Step(0)),
        event(1300, What::Alloc(parameter)),
        event(1350, What::Alloc(activation)),
        event(1500, What::FreeRequested(1)),
        event(1500, What::FreeCompleted(1)),
    ];
    writer.write_events(&events).unwrap();
    writer.finish(&EndFacts::default()).unwrap()
}

/// The bytes of the example after `words` in the specification; its offsets must follow from each other.
fn written_example(words: &str) -> Vec<u8> {
    let (_, after) = SPEC.split_once(words).unwrap_or_else(|| panic!("the specification has no '{words}'"));
    let (_, example) = after.split_once("```hex\n").unwrap();
    let end = example.find("```").unwrap();
    let mut bytes = Vec::new();
    for line in example[..end].lines().filter(|line| !line.is_empty()) {
        let (offset, rest) = line.split_once("  ").unwrap();
        assert_eq!(offset, format!("{:04x}", bytes.len()), "at '{line}'");
        let shown = rest.split("  ").next().unwrap();
        bytes.extend(shown.split(' ').map(|byte| u8::from_str_radix(byte, 16).unwrap()));
    }
    bytes
}

#[test]
fn the_worked_example_is_what_the_writer_writes_and_reads_as_it_says() {
    let shown = written_example("## A worked example");
    let made = example();
    let dump = made.chunks(16).enumerate().fold(String::new(), |mut out, (row, bytes)| {
        let _ = writeln!(out, "{:04x}  {}", row * 16, hex(bytes));
        out
    });
    assert!(shown == made, "the writer gives other bytes:\n{dump}");
    let trace = read_bytes(&shown).unwrap();
    assert!(trace.problems.is_empty() && trace.trust.is_complete());
    assert_eq!((trace.header.recorder.as_str(), trace.header.program.as_str(), trace.header.pid), ("hw", "p", 7));
    assert_eq!(trace.events.time_ns, [1000, 1300, 1350, 1500, 1500]);
    assert_eq!(trace.blocks.requested, [1000, 1024]);
    assert_eq!(trace.blocks.address, [0x20_0000, 0x20_0400]);
    let words = |line: &str| line.split(' ').take(4).collect::<Vec<_>>().join(" ");
    let text: Vec<String> = text_from_trace(&trace).lines().map(words).collect();
    assert_eq!(text[0], "step 0");
    assert_eq!(text[1], "alloc b0 1000/1024 parameter");
}

#[test]
fn the_examples_of_annotations_and_attributes_are_what_the_writer_writes() {
    let mut writer = SnapWriter::new(Vec::new(), &Header::default()).unwrap();
    let annotation = Annotation {
        name: StringId(5),
        device: DeviceId(0),
        start_ns: Some(1000),
        end_ns: None,
        first: EventId(2),
        end: EventId(9),
        is_guessed: false,
    };
    let attribute = |owner, value| Attribute { owner, name: StringId(6), value: StringId(value) };
    writer.append_annotations(&[annotation]).unwrap();
    let attributes = [attribute(Owner::Event(EventId(3)), 7), attribute(Owner::Block(BlockId(0)), 8)];
    writer.append_attributes(&attributes).unwrap();
    let bytes = writer.finish(&EndFacts::default()).unwrap();
    let payload = |kind: SectionKind| {
        let found = Walker::new(&bytes, PREAMBLE_BYTES).find_map(|found| match found {
            WalkItem::Section(section) if section.header.kind() == Some(kind) => Some(section.stored.to_vec()),
            _ => None,
        });
        found.unwrap()
    };
    assert_eq!(payload(SectionKind::Annotations), written_example("payload of an annotations section"));
    assert_eq!(payload(SectionKind::Attributes), written_example("that of an attributes section"));
}

#[test]
fn the_footer_of_the_example_lists_every_section_at_its_place() {
    let bytes = example();
    let index = Index::from_bytes(&bytes).unwrap();
    let sections = Walker::new(&bytes, PREAMBLE_BYTES).filter_map(|found| match found {
        WalkItem::Section(section) => Some((section.header.kind, section.offset)),
        _ => None,
    });
    let mut sections: Vec<(u16, u64)> = sections.collect();
    assert_eq!(sections.pop().map(|(kind, _)| kind), Some(SectionKind::Footer.code()));
    let rows: Vec<(u16, u64)> = index.rows.iter().map(|row| (row.kind, row.offset)).collect();
    assert_eq!(rows, sections);
    assert_eq!(index.events(), 5);
}
