//! Tests files that are read in parts, with every byte changed and checksums that match.

use std::ops::ControlFlow;
use std::sync::Arc;

use highwater_snapshots::format::{HEADER_BYTES, Index, SectionHeader, Windows, count_steps};

use crate::made::write_summarized_step;

/// Reads `bytes` in every way in which parts are read; returns whether they open.
fn read_in_parts(bytes: &[u8]) -> bool {
    let go_on = &mut |_| ControlFlow::Continue(());
    let source: Arc<[u8]> = bytes.into();
    let Ok(windows) = Windows::open(Arc::new(source), go_on) else { return false };
    let count = windows.events();
    let devices = windows.device_ids();
    let _ = count_steps(windows.summaries(), &devices);
    let _ = (windows.has_stages(), windows.main_device(), windows.checkpoints(), windows.count_operations());
    let _ = windows.read(0..count, &mut |_, _| ControlFlow::Continue(()));
    for range in [0..0, 0..count, count / 2..count, count / 3..count / 3 + 7, count..count] {
        if let Ok(window) = windows.window(range) {
            let _ = windows.number_blocks(window);
        }
    }
    windows.whole().is_ok()
}

/// `header` and `payload` as a section with checksums that fit.
fn section(header: &[u8], payload: &[u8]) -> Vec<u8> {
    let word = |at: usize| u32::from_le_bytes(header[at..at + 4].try_into().unwrap());
    let header = SectionHeader {
        kind: u16::from_le_bytes([header[4], header[5]]),
        flags: header[6],
        compression: header[7],
        stored: word(8),
        raw: word(12),
        count: word(16),
        first: u64::from(word(20)) | u64::from(word(24)) << 32,
        payload_crc: crc32fast::hash(payload),
    };
    [&header.to_bytes()[..], payload].concat()
}

#[test]
fn a_file_that_is_changed_anywhere_is_read_in_parts_or_refused_without_a_panic() {
    let bytes = write_summarized_step();
    let index = Index::from_bytes(&bytes).unwrap();
    let (mut changed, mut opened) = (0, 0);
    for row in &index.rows {
        let start = row.offset as usize;
        let stored = SectionHeader::parse(&bytes[start..]).unwrap().stored as usize;
        let end = start + HEADER_BYTES + stored;
        // The kind and what follows it; the marker and the checksums are made to fit. All places take a minute.
        let places = (start + 4..start + 28).chain(start + HEADER_BYTES..end).skip(row.offset as usize % 9).step_by(9);
        for (place, change) in places.zip([0x01, 0xff, 0x80, 0x10].into_iter().cycle()) {
            let mut file = bytes.clone();
            file[place] ^= change;
            let with_checksums = section(&file[start..start + HEADER_BYTES], &file[start + HEADER_BYTES..end]);
            file[start..end].copy_from_slice(&with_checksums);
            changed += 1;
            opened += usize::from(read_in_parts(&file));
        }
    }
    assert!(read_in_parts(&bytes));
    assert!(changed > 300 && opened > changed / 4, "{opened} of {changed} open");
}
