//! The footer and the tail, which locate every section. Files can be read without these.

use serde::{Deserialize, Serialize};

use super::kind::SectionKind;
use super::section::{Section, SectionHeader, Unpacker};
use super::tables_codec;
use super::varint::Cursor;

/// The first four bytes of the tail.
pub const TAIL_MARKER: [u8; 4] = [0xf7, b'E', b'N', b'D'];

/// The length of the tail in bytes: marker, CRC-32 of the rest, the footer's offset.
pub const TAIL_BYTES: usize = 16;

/// The location of one section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IndexRow {
    /// The code of the section's kind.
    pub kind: u16,
    /// Offset of the section's header in the file.
    pub offset: u64,
    /// Number of events before the section.
    pub events_before: u64,
}

/// The location of every section of a finished file, in order, except for the footer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Index {
    /// One row per section.
    pub rows: Vec<IndexRow>,
}

impl Index {
    /// Reads the index of a complete file from its tail and footer; `None` if the file is unfinished or its index is
    /// damaged.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let tail = bytes.get(bytes.len().checked_sub(TAIL_BYTES)?..)?;
        let offset = read_tail(tail)?;
        let rest = bytes.get(usize::try_from(offset).ok()?..)?;
        let header = SectionHeader::parse(rest)?;
        let stored = rest.get(super::section::HEADER_BYTES..)?.get(..header.stored as usize)?;
        if header.kind() != Some(SectionKind::Footer) || crc32fast::hash(stored) != header.payload_crc {
            return None;
        }
        let mut unpacker = Unpacker::new();
        let raw = unpacker.unpack(&Section { offset, header, stored }).ok()?;
        let rows = tables_codec::rows_from_bytes(raw, header.count).ok()?;
        Some(Self { rows })
    }

    /// Returns the number of events in the whole file, according to the index.
    pub fn events(&self) -> u64 {
        self.rows.last().map_or(0, |row| row.events_before)
    }
}

pub(super) fn tail_bytes(offset: u64) -> [u8; TAIL_BYTES] {
    let mut out = [0; TAIL_BYTES];
    out[..4].copy_from_slice(&TAIL_MARKER);
    out[8..].copy_from_slice(&offset.to_le_bytes());
    let crc = crc32fast::hash(&out[8..]);
    out[4..8].copy_from_slice(&crc.to_le_bytes());
    out
}

/// Reads the footer's offset in the file from the tail at the start of `bytes`; `None` if there is no intact tail.
pub(super) fn read_tail(bytes: &[u8]) -> Option<u64> {
    let bytes = bytes.get(..TAIL_BYTES)?;
    let mut cursor = Cursor::new(bytes);
    if cursor.take(4)? != TAIL_MARKER {
        return None;
    }
    let crc = cursor.u32()?;
    (crc == crc32fast::hash(&bytes[8..])).then(|| cursor.u64())?
}
