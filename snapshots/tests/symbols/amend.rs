//! Tests that adding symbols to a file leaves its other contents unchanged.

use highwater_snapshots::format::{
    Amendment, HEADER_BYTES, Index, PREAMBLE_BYTES, SectionHeader, SectionKind, Symbols, WalkItem, Walker, read_bytes,
};
use highwater_snapshots::symbols::{Asked, LookUp, Symbolizer, look_up};
use highwater_snapshots::tables::SourceLine;
use highwater_snapshots::trace::TraceParts;
use highwater_snapshots::{FrameId, StringId, Trace};

use crate::library::Library;
use crate::made::{Ending, recording, without_lines};

/// The recording with all that can be found, and what that was.
fn amended(bytes: &[u8]) -> (Vec<u8>, LookUp) {
    let trace = read_bytes(bytes).unwrap();
    let found = look_up(&trace.tables, Asked::Bare, &mut Symbolizer::new(Vec::new()));
    let amendment = Amendment::new(bytes).unwrap();
    let known = trace.tables.strings.len();
    (amendment.write(Vec::new(), known, &found.strings, &found.symbols).unwrap(), found)
}

/// Expects that `after` differs from `before` by the lines of one frame, and gives these.
fn new_lines(before: &[u8], after: &[u8]) -> Vec<String> {
    let [before, after] = [before, after].map(|bytes| read_bytes(bytes).unwrap());
    let strings = before.tables.strings.len();
    assert!(without_lines(&before, strings) == without_lines(&after, strings));
    lines(&after, FrameId(1))
}

fn lines(trace: &Trace, frame: FrameId) -> Vec<String> {
    let names = trace.tables.frame_lines(frame).iter();
    names.map(|line| format!("{}:{}", trace.tables.string(line.function), line.line)).collect()
}

const LINES: [&str; 2] = ["inner:2", "outer:5"];

#[test]
fn a_finished_recording_stays_as_it_was_but_for_its_lines() {
    let library = Library::new();
    let before = recording(&library.path, library.address, Ending::Finished);
    let (after, _) = amended(&before);
    assert_eq!(new_lines(&before, &after), LINES);
    let index = Index::from_bytes(&after).expect("a whole footer");
    assert_eq!(index.events(), 6);
    let sections: Vec<(u16, u64)> = Walker::new(&after, PREAMBLE_BYTES)
        .filter_map(|found| match found {
            WalkItem::Section(section) => Some((section.header.kind, section.offset)),
            _ => None,
        })
        .collect();
    let named: Vec<(u16, u64)> = index.rows.iter().map(|row| (row.kind, row.offset)).collect();
    let (footer, others) = sections.split_last().unwrap();
    assert_eq!((footer.0, others), (SectionKind::Footer.code(), &named[..]));
    // With nothing to add, the file is the same to the byte.
    let (again, found) = amended(&after);
    assert_eq!((again == after, found.resolved()), (true, 0));
}

#[test]
fn a_recording_of_a_killed_program_stays_unfinished_and_loses_only_what_nobody_can_read() {
    let library = Library::new();
    let whole = recording(&library.path, library.address, Ending::Killed);
    let (after, _) = amended(&whole);
    let before = read_bytes(&whole).unwrap();
    let read = read_bytes(&after).unwrap();
    assert!(before.trust.unfinished && read.trust.unfinished);
    assert_eq!(after[..whole.len()], whole, "nothing that was there moves");
    assert_eq!(lines(&read, FrameId(1)), LINES);
    let strings = before.tables.strings.len();
    let but_problems = |trace: &Trace| {
        let trace = trace.clone().edited(|trace| trace.problems.clear());
        without_lines(&trace, strings)
    };
    assert!(but_problems(&before) == but_problems(&read));

    // Cut anywhere after the stacks, all that could be read still can.
    let starts = |kind: SectionKind| {
        Walker::new(&whole, PREAMBLE_BYTES).filter_map(move |found| match found {
            WalkItem::Section(section) if section.header.kind() == Some(kind) => Some(section.offset as usize),
            _ => None,
        })
    };
    let first = starts(SectionKind::Events).next().unwrap();
    for cut in first..whole.len() {
        let cut_off = &whole[..cut];
        let (after, _) = amended(cut_off);
        let [before, read] = [cut_off, &after].map(|bytes| read_bytes(bytes).unwrap());
        assert!(but_problems(&before) == but_problems(&read), "cut at byte {cut}");
        assert_eq!(lines(&read, FrameId(1)), LINES, "cut at byte {cut}");
        let torn = Amendment::new(cut_off).unwrap().torn_bytes();
        assert_eq!(after[..cut - torn as usize], cut_off[..cut - torn as usize]);
    }
}

#[test]
fn damage_stays_where_it_is_and_new_texts_count_past_those_that_it_took() {
    let library = Library::new();
    let before = recording(&library.path, library.address, Ending::Finished);
    let mut sections = 0;
    for found in Walker::new(&before, PREAMBLE_BYTES) {
        let WalkItem::Section(section) = found else { continue };
        let kind = section.header.kind().unwrap();
        if matches!(kind, SectionKind::Footer | SectionKind::Modules | SectionKind::Frames) {
            continue;
        }
        let mut damaged = before.clone();
        damaged[section.offset as usize + HEADER_BYTES] ^= 0x55;
        let (after, found) = amended(&damaged);
        let [was, is] = [&damaged, &after].map(|bytes| read_bytes(bytes).unwrap());
        let strings = was.tables.strings.len();
        let described = |trace: &Trace| without_lines(trace, strings);
        if kind == SectionKind::Strings {
            // Module paths are lost with it: nothing is found, and nothing is written over what was.
            assert_eq!((found.resolved(), after.len()), (0, damaged.len()));
            let symbol = Symbols { frame: FrameId(1), lines: vec![line(0)] };
            let texts = ["found".to_owned()];
            let with_texts = Amendment::new(&damaged).unwrap().write(Vec::new(), 0, &texts, &[symbol]).unwrap();
            let read = read_bytes(&with_texts).unwrap();
            assert_eq!(lines(&read, FrameId(1)), ["found:1"]);
            assert_eq!(read.tables.strings, ["", "", "", "found"], "three texts were lost");
        } else {
            assert_eq!(lines(&is, FrameId(1)), LINES, "{kind:?}");
            // Without its end section the recording stops where the file does, which has moved.
            let stop = |trace: Trace| {
                trace.edited(|TraceParts { problems, .. }| {
                    let end = problems.iter_mut().filter(|problem| problem.what.starts_with("the recording stops"));
                    end.for_each(|problem| problem.offset = None);
                })
            };
            assert!(described(&stop(was)) == described(&stop(is)), "{kind:?}");
        }
        sections += 1;
    }
    assert!(sections > 8, "{sections}");
}

fn line(function: u32) -> SourceLine {
    SourceLine { function: StringId(function), file: StringId::NONE, line: 1 }
}

#[test]
fn sections_of_a_newer_program_are_kept() {
    let library = Library::new();
    let before = recording(&library.path, library.address, Ending::Finished);
    let payload = b"what only a newer program reads";
    let header = SectionHeader {
        kind: 999,
        flags: 0,
        compression: 0,
        stored: payload.len() as u32,
        raw: payload.len() as u32,
        count: 1,
        first: 0,
        payload_crc: crc32fast::hash(payload),
    };
    let strange = [&header.to_bytes()[..], payload].concat();
    let end = Walker::new(&before, PREAMBLE_BYTES)
        .find_map(|found| match found {
            WalkItem::Section(section) if section.header.kind() == Some(SectionKind::End) => {
                Some(section.offset as usize)
            }
            _ => None,
        })
        .unwrap();
    let with_strange = [&before[..end], &strange, &before[end..]].concat();
    let (after, _) = amended(&with_strange);
    assert!(after.windows(strange.len()).any(|bytes| bytes == strange));
    assert_eq!(new_lines(&with_strange, &after), LINES);
}

#[test]
fn the_last_word_on_a_frame_wins() {
    let library = Library::new();
    let (bytes, _) = amended(&recording(&library.path, library.address, Ending::Finished));
    let trace = read_bytes(&bytes).unwrap();
    let known = trace.tables.strings.len();
    let symbol = Symbols { frame: FrameId(1), lines: vec![line(known as u32)] };
    let texts = ["renamed".to_owned()];
    let after = Amendment::new(&bytes).unwrap().write(Vec::new(), known, &texts, &[symbol]).unwrap();
    assert_eq!(new_lines(&bytes, &after), ["renamed:1"]);
}

#[test]
fn what_is_no_recording_is_refused() {
    for bytes in [&b""[..], b"\x80\x04}.", b"\x89HWS\r\n\x1a\n"] {
        assert!(Amendment::new(bytes).is_err(), "{bytes:?}");
    }
}
