//! The framing of every part of a file: header, checksums and compression.

use super::compression::{Compressor, Decompressor};
use super::kind::{SectionKind, kind_text};
use super::varint::Cursor;
use crate::error::{Error, Result};

/// The first four bytes of every section. Readers search for them to find the next section after damage.
pub const MARKER: [u8; 4] = [0xf7, b'S', b'E', b'C'];

/// The length of a section's header in bytes.
pub const HEADER_BYTES: usize = 36;

/// Maximum number of bytes of a decompressed section.
pub const MAX_RAW_BYTES: usize = 64 << 20;

/// Maximum number of events in a section.
pub const CHUNK_EVENTS: usize = 65_536;

/// Maximum number of bytes to which a stored byte may expand, so that a small file cannot require much memory.
pub const MAX_EXPANSION: usize = 32;

/// Flag for sections that readers must report if they do not support the section kind.
pub const FLAG_MUST_UNDERSTAND: u8 = 1;

/// The code for a payload that is stored uncompressed.
pub const COMPRESSION_NONE: u8 = 0;

/// The code for a payload that is a zstd frame, optionally followed by a skippable frame.
pub const COMPRESSION_ZSTD: u8 = 1;

/// Payloads shorter than this, in bytes, are stored uncompressed.
const MIN_TO_COMPRESS: usize = 128;

/// The magic number of zstd's first kind of skippable frame, which decoders skip.
const SKIPPABLE_FRAME: [u8; 4] = [0x50, 0x2a, 0x4d, 0x18];

/// The header of a section: its kind, its sizes and its checksums.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SectionHeader {
    /// The code of a [`SectionKind`], or one that this version does not know.
    pub kind: u16,
    /// [`FLAG_MUST_UNDERSTAND`], or 0.
    pub flags: u8,
    /// [`COMPRESSION_NONE`] or [`COMPRESSION_ZSTD`].
    pub compression: u8,
    /// Bytes of payload in the file.
    pub stored: u32,
    /// Bytes of payload once decompressed.
    pub raw: u32,
    /// Number of rows or events in the section.
    pub count: u32,
    /// The index of the first row or event.
    pub first: u64,
    /// The CRC-32 of the stored payload.
    pub payload_crc: u32,
}

impl SectionHeader {
    /// Parses the header at the start of `bytes`; `None` if they are too short, or if the marker or the checksum is
    /// wrong.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..HEADER_BYTES)?;
        let mut cursor = Cursor::new(bytes);
        if cursor.take(4)? != MARKER {
            return None;
        }
        let header = Self {
            kind: cursor.u16()?,
            flags: cursor.byte()?,
            compression: cursor.byte()?,
            stored: cursor.u32()?,
            raw: cursor.u32()?,
            count: cursor.u32()?,
            first: cursor.u64()?,
            payload_crc: cursor.u32()?,
        };
        (cursor.u32()? == crc32fast::hash(&bytes[..HEADER_BYTES - 4])).then_some(header)
    }

    /// Encodes the header.
    pub fn to_bytes(self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[0..4].copy_from_slice(&MARKER);
        out[4..6].copy_from_slice(&self.kind.to_le_bytes());
        out[6] = self.flags;
        out[7] = self.compression;
        out[8..12].copy_from_slice(&self.stored.to_le_bytes());
        out[12..16].copy_from_slice(&self.raw.to_le_bytes());
        out[16..20].copy_from_slice(&self.count.to_le_bytes());
        out[20..28].copy_from_slice(&self.first.to_le_bytes());
        out[28..32].copy_from_slice(&self.payload_crc.to_le_bytes());
        let crc = crc32fast::hash(&out[..32]);
        out[32..].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// Returns the section kind; `None` if this version does not support it.
    pub fn kind(&self) -> Option<SectionKind> {
        SectionKind::from_code(self.kind)
    }

    pub(crate) fn kind_text(&self) -> String {
        kind_text(self.kind)
    }
}

/// A section as stored in a file, with a valid payload checksum.
#[derive(Clone, Copy, Debug)]
pub struct Section<'a> {
    /// Offset of the section's header in the file.
    pub offset: u64,
    /// The header of the section, already checked.
    pub header: SectionHeader,
    /// The payload as stored, compressed or not.
    pub stored: &'a [u8],
}

/// The fields of a section's header that its writer sets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Label {
    pub(super) kind: SectionKind,
    pub(super) count: u32,
    pub(super) first: u64,
}

pub(super) struct Packer {
    zstd: Compressor,
    compressed: Vec<u8>,
    out: Vec<u8>,
}

impl Packer {
    pub(super) fn new() -> Result<Self> {
        let zstd = Compressor::new().map_err(|why| Error::Encode { what: format!("zstd cannot start: {why}") })?;
        Ok(Self { zstd, compressed: Vec::new(), out: Vec::new() })
    }

    /// Returns a complete section with `raw` as its payload, compressed if that is smaller.
    pub(super) fn pack(&mut self, label: Label, raw: &[u8]) -> Result<&[u8]> {
        if raw.len() > MAX_RAW_BYTES {
            let (name, bytes) = (label.kind.name(), raw.len());
            let what =
                format!("one part of the {name} section takes {bytes} bytes; at most {MAX_RAW_BYTES} are possible");
            return Err(Error::Encode { what });
        }
        let compressed = raw.len() >= MIN_TO_COMPRESS && self.compress(raw)?;
        let stored = if compressed { &self.compressed } else { raw };
        let header = SectionHeader {
            kind: label.kind.code(),
            flags: 0,
            compression: if compressed { COMPRESSION_ZSTD } else { COMPRESSION_NONE },
            stored: stored.len() as u32,
            raw: raw.len() as u32,
            count: label.count,
            first: label.first,
            payload_crc: crc32fast::hash(stored),
        };
        self.out.clear();
        self.out.extend_from_slice(&header.to_bytes());
        self.out.extend_from_slice(stored);
        Ok(&self.out)
    }

    /// Compresses `raw`, padded if the result would exceed the maximum expansion. Returns whether this saved space.
    fn compress(&mut self, raw: &[u8]) -> Result<bool> {
        let compressed = self.zstd.compress(raw, &mut self.compressed);
        compressed.map_err(|why| Error::Encode { what: format!("zstd cannot compress a section: {why}") })?;
        let least = raw.len().div_ceil(MAX_EXPANSION);
        if let Some(missing) = least.checked_sub(self.compressed.len()).filter(|missing| *missing > 0) {
            let zeros = missing.saturating_sub(8);
            self.compressed.extend_from_slice(&SKIPPABLE_FRAME);
            self.compressed.extend_from_slice(&(zeros as u32).to_le_bytes());
            self.compressed.resize(self.compressed.len() + zeros, 0);
        }
        Ok(self.compressed.len() < raw.len())
    }
}

/// Unpacks the payloads of sections. Use one per thread.
#[derive(Default)]
pub(super) struct Unpacker {
    zstd: Option<Decompressor>,
    raw: Vec<u8>,
}

impl Unpacker {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Returns the section's decompressed payload, or the reason that it is invalid. Rejects a compressed payload if
    /// the length in the header exceeds [`MAX_RAW_BYTES`], or [`MAX_EXPANSION`] times the stored length.
    pub(super) fn unpack<'a>(&'a mut self, section: &Section<'a>) -> Result<&'a [u8], String> {
        let (stored, raw) = (section.stored.len(), section.header.raw as usize);
        match section.header.compression {
            COMPRESSION_NONE if stored == raw => return Ok(section.stored),
            COMPRESSION_NONE => {
                return Err(format!("it stores {stored} uncompressed bytes but declares {raw}"));
            }
            COMPRESSION_ZSTD => {}
            other => {
                return Err(format!("its compression {other} is unknown to this program"));
            }
        }
        if raw > MAX_RAW_BYTES || raw > stored.saturating_mul(MAX_EXPANSION) {
            return Err(format!("its {stored} bytes claim to expand to {raw}, more than a section may contain"));
        }
        let zstd = self.zstd.get_or_insert_with(Decompressor::new);
        match zstd.decompress(section.stored, raw, &mut self.raw).map(|()| self.raw.len()) {
            Ok(got) if got == raw => Ok(&self.raw),
            Ok(got) => Err(format!("it decompresses to {got} bytes but declares {raw}")),
            Err(why) => Err(format!("it cannot be decompressed: {why}")),
        }
    }
}
