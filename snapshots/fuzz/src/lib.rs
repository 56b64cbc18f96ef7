//! Checks that must hold for everything that was read, even from a malformed file.

use std::ops::ControlFlow;

use highwater_analysis::Source;
use highwater_analysis::guess::{Rules, guess};
use highwater_analysis::summary::summarize;
use highwater_analysis::verify::verify_trace;
use highwater_pytorch::{RawSnapshot, assemble};
use highwater_snapshots::format::{
    HEADER_BYTES, MARKER, PREAMBLE_BYTES, SectionHeader, SnapWriter, read_bytes, write_trace,
};
use highwater_snapshots::{Result, Trace};

/// A progress callback that never stops the operation.
pub fn go<P>(_: P) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// Checks that two readers return the same snapshot for the same bytes, or both an error, and checks the trace made
/// from it.
pub fn check_snapshot(whole: Result<RawSnapshot>, streamed: Result<RawSnapshot>) {
    let text = |read: &Result<RawSnapshot>| read.as_ref().map(|raw| format!("{raw:?}")).map_err(|_| ());
    assert_eq!(text(&whole), text(&streamed), "bytes and a stream of them are read alike");
    if let Ok(raw) = whole {
        check_trace(assemble(raw));
    }
}

/// Checks that the events add up to the block table, and that writing and reading the recording gives the same
/// recording, before and after categories and phases are guessed.
pub fn check_trace(trace: Trace) {
    check_sums_and_file(&trace);
    let trace = guess(trace, &Rules::default());
    if trace.trust.categories_guessed || trace.phases_are_guessed() {
        check_sums_and_file(&trace);
    }
}

fn check_sums_and_file(trace: &Trace) {
    let problems = verify_trace(trace);
    let sums = problems.iter().find(|problem| problem.what.contains("live blocks sum to"));
    assert_eq!(sums, None, "the events add up to the blocks");
    let bytes = write_trace(Vec::new(), trace).expect("what was read can be written");
    let again = read_bytes(&bytes).expect("what was written can be read");
    assert_eq!(again.events.len(), trace.events.len());
    let summaries = |trace: &Trace| {
        let watch = &mut |_| ControlFlow::Continue(());
        summarize(&Source::in_memory(trace), watch).expect("a recording in memory can be read")
    };
    assert_eq!(summaries(&again), summaries(trace), "the recording that was written is the one that is read");
}

/// Returns `bytes` with a valid preamble and correct checksums, so that the code after these checks is reached.
pub fn mended(bytes: &[u8]) -> Vec<u8> {
    let empty = SnapWriter::new(Vec::new(), &Default::default()).expect("a vector takes anything");
    let mut out = empty.get_ref()[..PREAMBLE_BYTES].to_vec();
    let mut rest = bytes.get(PREAMBLE_BYTES..).unwrap_or_default();
    while rest.len() >= HEADER_BYTES {
        if rest[..MARKER.len()] != MARKER {
            out.push(rest[0]);
            rest = &rest[1..];
            continue;
        }
        let (header, after) = rest.split_at(HEADER_BYTES);
        let word = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        let stored = word(8).min(after.len() as u32);
        let (payload, after) = after.split_at(stored as usize);
        let header = SectionHeader {
            kind: u16::from_le_bytes([header[4], header[5]]),
            flags: header[6],
            compression: header[7],
            stored,
            raw: if header[7] == 0 { stored } else { word(12) },
            count: word(16),
            first: u64::from(word(20)) | u64::from(word(24)) << 32,
            payload_crc: crc32(payload),
        };
        out.extend(header.to_bytes());
        out.extend(payload);
        rest = after;
    }
    out.extend(rest);
    out
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}
