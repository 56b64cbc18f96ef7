//! Tests a small recording cut at every byte and with every byte changed: intact parts are read, and damaged parts are
//! reported.

use highwater_snapshots::format::{
    HEADER_BYTES, PREAMBLE_BYTES, SectionHeader, SectionKind, TAIL_BYTES, WalkItem, Walker, read_bytes, write_trace,
};
use highwater_snapshots::trace::{Attribute, Owner};
use highwater_snapshots::{Error, Trace};

use crate::made::{STEP_CHUNKS, write_step};
use crate::strange::whole;

/// A section's place and header.
#[derive(Clone, Copy)]
struct Place {
    start: usize,
    end: usize,
    header: SectionHeader,
}

impl Place {
    fn events(&self) -> usize {
        if self.header.kind() == Some(SectionKind::Events) { self.header.count as usize } else { 0 }
    }
}

fn places(bytes: &[u8]) -> Vec<Place> {
    let sections = Walker::new(bytes, PREAMBLE_BYTES).filter_map(|found| match found {
        WalkItem::Section(section) => Some(section),
        _ => None,
    });
    let place = |section: highwater_snapshots::format::Section<'_>| {
        let start = section.offset as usize;
        Place { start, end: start + HEADER_BYTES + section.stored.len(), header: section.header }
    };
    sections.map(place).collect()
}

fn all_events() -> usize {
    STEP_CHUNKS.iter().sum()
}

/// How many rows of the tables are where they were; rows made up for lost ones do not count.
fn rows_kept(trace: &Trace, original: &Trace) -> [usize; 3] {
    fn same<T: PartialEq>(a: &[T], b: &[T]) -> usize {
        a.iter().zip(b).filter(|(a, b)| a == b).count()
    }
    let (tables, others) = (&trace.tables, &original.tables);
    [same(&tables.strings, &others.strings), same(&tables.stacks, &others.stacks), same(&tables.scopes, &others.scopes)]
}

/// Says which annotation or attribute does not fit what it belongs to: in [`write_step`] each says the times, bytes or
/// address of that.
fn misplaced(trace: &Trace) -> Option<String> {
    let wrong_annotation = trace.annotations.iter().find(|annotation| {
        let (Some(start), Some(end)) = (annotation.start_ns, annotation.end_ns) else { return true };
        let rows = annotation.first.0..annotation.end.0;
        let fits = |(row, time): (usize, &u64)| rows.contains(&(row as u32)) == (start..=end).contains(time);
        !trace.events.time_ns.iter().enumerate().all(fits)
    });
    let wrong_attribute = trace.attributes.iter().find(|attribute| {
        let expected = match attribute.owner {
            Owner::Event(id) => trace.events.time_of(id),
            Owner::Block(id) => trace.blocks.requested.get(id.0 as usize).copied(),
            Owner::Segment(id) => trace.segments.range.get(id.0 as usize).map(|range| range.address),
        };
        let value = trace.tables.string(attribute.value);
        !value.is_empty() && expected.map(|value| value.to_string()).as_deref() != Some(value)
    });
    let annotation = wrong_annotation.map(|annotation| format!("{annotation:?}"));
    annotation.or_else(|| wrong_attribute.map(|attribute| format!("{attribute:?}")))
}

/// The owners of `trace`'s attributes that the loss of the section at `place` may cost.
fn attributes_at_risk(trace: &Trace, place: &Place) -> usize {
    let numbers = place.header.first..place.header.first + u64::from(place.header.count);
    let is_at_risk = |attribute: &&Attribute| match (place.header.kind(), attribute.owner) {
        (Some(SectionKind::Strings), _) => true,
        (Some(SectionKind::Events), Owner::Event(id)) => numbers.contains(&u64::from(id.0)),
        (Some(SectionKind::StartingState), Owner::Block(_) | Owner::Segment(_)) => true,
        _ => false,
    };
    match place.header.kind() {
        Some(SectionKind::Attributes) => place.header.count as usize,
        _ => trace.attributes.iter().filter(is_at_risk).count(),
    }
}

#[test]
fn a_file_cut_anywhere_opens_up_to_the_cut() {
    let bytes = write_step(true);
    let places = places(&bytes);
    for length in 0..bytes.len() {
        let cut = &bytes[..length];
        if length < PREAMBLE_BYTES {
            let error = read_bytes(cut).unwrap_err();
            assert_eq!(matches!(error, Error::Empty), length == 0, "{length}: {error}");
            continue;
        }
        let trace = read_bytes(cut).unwrap_or_else(|error| panic!("cut to {length} bytes: {error}"));
        let whole_events: usize = places.iter().filter(|place| place.end <= length).map(Place::events).sum();
        assert_eq!(trace.events.len(), whole_events, "cut to {length} bytes");
        assert_eq!(misplaced(&trace), None, "cut to {length} bytes");
        let has_end = places.iter().any(|place| place.header.kind() == Some(SectionKind::End) && place.end <= length);
        assert_eq!(trace.trust.unfinished, !has_end, "cut to {length} bytes");
        assert_eq!(trace.lacks_index_only(), has_end, "cut to {length} bytes");
        let names_the_cut = trace.problems.iter().any(|problem| problem.offset == Some(length as u64));
        assert!(names_the_cut, "cut to {length} bytes: {:?}", trace.problems);
    }
}

#[test]
fn a_changed_byte_costs_its_section_alone_and_is_named() {
    let bytes = write_step(true);
    let original = read_bytes(&bytes).unwrap();
    let places = places(&bytes);
    let is_first_of_kind = |place: &Place| {
        places
            .iter()
            .find(|other| other.header.kind == place.header.kind)
            .is_some_and(|first| first.start == place.start)
    };
    let tail = bytes.len() - TAIL_BYTES;
    for at in 0..bytes.len() {
        let place = places.iter().find(|place| (place.start..place.end).contains(&at));
        let is_thorough = place.is_none_or(|place| at < place.start + HEADER_BYTES && is_first_of_kind(place));
        for bit in if is_thorough { 0..8 } else { at % 8..at % 8 + 1 } {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            let Ok(trace) = read_bytes(&changed) else {
                assert!(at < PREAMBLE_BYTES, "a change at byte {at} makes the file unreadable");
                continue;
            };
            let context = || format!("byte {at} bit {bit}: {:?}", trace.problems);
            assert!(trace.problems.len() > original.problems.len() || at >= tail, "{}", context());
            let Some(place) = place else { continue };
            let is_named = trace.problems.iter().any(|problem| problem.offset == Some(place.start as u64));
            assert!(is_named, "{}", context());
            assert_eq!(trace.events.len(), all_events() - place.events(), "{}", context());
            let said_lost = if place.header.kind() == Some(SectionKind::End) { 0 } else { 3 };
            assert_eq!(trace.trust.events_lost, said_lost + place.events() as u64, "{}", context());
            assert_eq!(misplaced(&trace), None, "{}", context());
            let kept = trace.attributes.len() + attributes_at_risk(&original, place);
            assert!(kept >= original.attributes.len(), "{}", context());
            let lost = original.annotations.len() - trace.annotations.len();
            let most_lost = match place.header.kind() {
                Some(SectionKind::Annotations) => place.header.count as usize,
                // Each section of events but the first holds all those of one annotation.
                Some(SectionKind::Events) => 1,
                Some(SectionKind::Strings) => original.annotations.len(),
                _ => 0,
            };
            assert!(lost <= most_lost, "{}", context());
            let kept = rows_kept(&trace, &original);
            let all = rows_kept(&original, &original);
            let lost: usize = kept.iter().zip(all).map(|(kept, all)| all - kept).sum();
            let is_table = [SectionKind::Strings, SectionKind::Stacks, SectionKind::Scopes]
                .iter()
                .any(|kind| place.header.kind() == Some(*kind));
            assert!(lost <= if is_table { place.header.count as usize } else { 0 }, "{}", context());
        }
    }
}

#[test]
fn a_changed_magic_or_version_is_an_error_that_says_so() {
    let bytes = write_step(true);
    for at in 0..8 {
        let mut changed = bytes.clone();
        changed[at] ^= 0x20;
        let error = read_bytes(&changed).unwrap_err();
        assert!(matches!(error, Error::Damaged { offset: 0, .. }), "byte {at}: {error}");
    }
    let mut major = bytes.clone();
    major[8] = 2;
    assert!(matches!(read_bytes(&major), Err(Error::Damaged { offset: 8, .. })));
    let crc = crc32fast::hash(&major[..12]);
    major[12..16].copy_from_slice(&crc.to_le_bytes());
    assert!(matches!(read_bytes(&major), Err(Error::Version { found: 2, supported: 1 })));
    let mut minor = bytes;
    minor[10] = 8;
    let crc = crc32fast::hash(&minor[..12]);
    minor[12..16].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(read_bytes(&minor).unwrap().events.len(), all_events(), "a newer minor version reads");
}

#[test]
fn line_ends_changed_by_a_copy_are_recognised() {
    let bytes = write_step(true);
    let to_unix = replaced(&bytes, b"\r\n", b"\n");
    let to_dos = replaced(&bytes, b"\n", b"\r\n");
    let stripped: Vec<u8> = bytes.iter().map(|byte| byte & 0x7f).collect();
    for changed in [to_unix, to_dos] {
        let error = read_bytes(&changed).unwrap_err().to_string();
        assert!(error.contains("binary mode"), "{error}");
    }
    assert!(matches!(read_bytes(&stripped), Err(Error::Damaged { offset: 0, .. })));
}

fn replaced(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = bytes;
    while let Some((&first, after)) = rest.split_first() {
        if rest.starts_with(from) {
            out.extend_from_slice(to);
            rest = &rest[from.len()..];
        } else {
            out.push(first);
            rest = after;
        }
    }
    out
}

#[test]
fn bytes_lost_from_or_put_into_the_middle_cost_only_the_sections_they_touch() {
    let bytes = write_step(true);
    let places = places(&bytes);
    let victim = places.iter().find(|place| place.events() == STEP_CHUNKS[2]).unwrap();
    let middle = (victim.start + victim.end) / 2;
    let mut shorter = bytes.clone();
    shorter.drain(middle..middle + 10);
    let mut longer = bytes.clone();
    longer.splice(middle..middle, [7; 50]);
    for changed in [shorter, longer] {
        let trace = read_bytes(&changed).unwrap();
        assert_eq!(trace.events.len(), all_events() - victim.events());
        assert_eq!(trace.trust.events_lost, 3 + victim.events() as u64);
        assert!(!trace.trust.unfinished);
    }
    let mut without = bytes.clone();
    without.drain(victim.start..victim.end);
    let trace = read_bytes(&without).unwrap();
    assert_eq!(trace.trust.events_lost, 3 + victim.events() as u64, "a section cut out whole is missed by number");
    let mut between = bytes;
    between.splice(victim.start..victim.start, *b"stray");
    let trace = read_bytes(&between).unwrap();
    assert_eq!(trace.events.len(), all_events());
    assert_eq!(trace.problems[0].to_string(), format!("at byte {}: bytes in no readable section: 5", victim.start));
}

#[test]
fn zeros_after_the_last_section_as_a_crashed_machine_leaves_them_are_passed_over() {
    let mut bytes = write_step(false);
    let length = bytes.len() as u64;
    bytes.resize(bytes.len() + 4096, 0);
    let trace = read_bytes(&bytes).unwrap();
    assert_eq!(trace.events.len(), all_events());
    assert!(trace.trust.unfinished);
    assert_eq!(trace.problems[0].offset, Some(length));
}

#[test]
fn the_index_changes_nothing_but_the_speed() {
    let bytes = write_step(true);
    let end = places(&bytes).iter().find(|place| place.header.kind() == Some(SectionKind::Footer)).unwrap().start;
    let with = read_bytes(&bytes).unwrap();
    let without = read_bytes(&bytes[..end]).unwrap();
    assert!(without.lacks_index_only() && !with.lacks_index_only());
    let rewritten = read_bytes(&write_trace(Vec::new(), &without).unwrap()).unwrap();
    assert_eq!(rewritten.problems, with.problems, "writing the recording again mends it");
    assert!(without.problems.last().unwrap().to_string().contains("index"));
    assert_eq!(whole(&without.edited(|trace| trace.problems.truncate(trace.problems.len() - 1))), whole(&with));
    // A damaged index is no loss either.
    let mut damaged = bytes;
    damaged[end + HEADER_BYTES] ^= 1;
    assert!(read_bytes(&damaged).unwrap().lacks_index_only());
}
