//! Finds the sections of a file, with its index or by a scan, and reads individual sections.

use std::io;
use std::sync::Arc;

use serde::de::DeserializeOwned;

use crate::byte_source::ByteSource;
use crate::error::{Error, Result};
use crate::format::index::{IndexRow, TAIL_BYTES, TAIL_MARKER, read_tail};
use crate::format::kind::SectionKind;
use crate::format::section::{HEADER_BYTES, Section, SectionHeader, Unpacker};
use crate::format::sniff::{PREAMBLE_BYTES, check_preamble};
use crate::format::tables_codec::rows_from_bytes;

/// Number of bytes read at a time while scanning sections.
const LOOK_BYTES: usize = 1 << 12;

/// The sections of a file, in order, without the footer.
#[derive(Debug)]
pub(super) struct Sections {
    source: Arc<dyn ByteSource>,
    pub(super) rows: Vec<IndexRow>,
    /// The offset of the end of the last section.
    pub(super) end: u64,
    pub(super) has_index: bool,
    /// The length of the file in bytes.
    pub(super) length: u64,
}

#[derive(Debug)]
pub(super) struct Found {
    offset: u64,
    pub(super) header: SectionHeader,
    stored: Vec<u8>,
}

impl Found {
    pub(super) fn section(&self) -> Section<'_> {
        Section { offset: self.offset, header: self.header, stored: &self.stored }
    }

    pub(super) fn rows<T: DeserializeOwned>(&self, unpacker: &mut Unpacker) -> Result<Vec<T>> {
        let raw = unpacker.unpack(&self.section());
        let rows = raw.and_then(|raw| rows_from_bytes(raw, self.header.count));
        rows.map_err(|what| Error::Damaged { offset: self.offset, what })
    }
}

impl Sections {
    /// Locates the sections.
    ///
    /// # Errors
    /// Fails if the file cannot be read, is not a recording, or is damaged in a part that is read.
    pub(super) fn locate(source: Arc<dyn ByteSource>) -> Result<Self> {
        let length = source.length().map_err(Error::from_input)?;
        let mut preamble = vec![0; (length as usize).min(PREAMBLE_BYTES)];
        source.read_into(0, &mut preamble).map_err(Error::from_input)?;
        if check_preamble(&preamble)?.is_some() {
            return Err(Error::Damaged { offset: 8, what: "the version does not fit its checksum".to_owned() });
        }
        let mut sections = Self { source, rows: Vec::new(), end: PREAMBLE_BYTES as u64, has_index: false, length };
        if !sections.take_index()? {
            sections.scan()?;
        }
        Ok(sections)
    }

    pub(super) fn read(&self, range: std::ops::Range<u64>) -> Result<Vec<u8>> {
        let length = usize::try_from(range.end.saturating_sub(range.start)).map_err(io::Error::other);
        let mut bytes = vec![0; length.map_err(Error::from_input)?];
        self.source.read_into(range.start, &mut bytes).map_err(Error::from_input)?;
        Ok(bytes)
    }

    pub(super) fn header(&self, offset: u64) -> Result<SectionHeader> {
        let bytes = self.read(offset..offset.saturating_add(HEADER_BYTES as u64))?;
        SectionHeader::parse(&bytes)
            .ok_or_else(|| Error::Damaged { offset, what: "the index lists a section where none begins".to_owned() })
    }

    /// Reads the section at `offset` and verifies its checksum.
    pub(super) fn section(&self, offset: u64) -> Result<Found> {
        let header = self.header(offset)?;
        let start = offset + HEADER_BYTES as u64;
        let end = start + u64::from(header.stored);
        if end > self.length {
            return Err(Error::Damaged { offset, what: "the file ends within a section".to_owned() });
        }
        let stored = self.read(start..end)?;
        if crc32fast::hash(&stored) != header.payload_crc {
            let what = format!("the {} section does not fit its checksum", header.kind_text());
            return Err(Error::Damaged { offset, what });
        }
        Ok(Found { offset, header, stored })
    }

    pub(super) fn of_kind(&self, kind: SectionKind) -> impl Iterator<Item = &IndexRow> {
        self.rows.iter().filter(move |row| row.kind == kind.code())
    }

    /// Reads the index at the end of the file. Returns whether there is one.
    fn take_index(&mut self) -> Result<bool> {
        let Some(tail) = self.length.checked_sub(TAIL_BYTES as u64) else { return Ok(false) };
        let Some(offset) = read_tail(&self.read(tail..self.length)?) else { return Ok(false) };
        let Ok(footer) = self.section(offset) else { return Ok(false) };
        let rows = footer.rows::<IndexRow>(&mut Unpacker::new());
        let is_ordered = |rows: &[IndexRow]| {
            rows.is_sorted_by(|a, b| a.offset < b.offset && a.events_before <= b.events_before)
                && rows.last().is_none_or(|row| row.offset < offset)
        };
        match rows {
            Ok(rows) if is_ordered(&rows) => {
                (self.rows, self.end, self.has_index) = (rows, offset, true);
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Scans the sections up to the end of the file, or to the point of truncation.
    fn scan(&mut self) -> Result<()> {
        let (mut bytes, mut base, mut events) = (Vec::new(), 0_u64, 0);
        loop {
            let offset = self.end;
            let left = self.length - offset;
            if left < HEADER_BYTES as u64 {
                // The tail without its footer, or the beginning of a section.
                return Ok(());
            }
            let mut at = offset.checked_sub(base).map_or(usize::MAX, |at| at as usize);
            if bytes.len() < HEADER_BYTES || at > bytes.len() - HEADER_BYTES {
                bytes = self.read(offset..offset + left.min(LOOK_BYTES as u64))?;
                (base, at) = (offset, 0);
            }
            let Some(header) = SectionHeader::parse(&bytes[at..]) else {
                if bytes[at..].starts_with(&TAIL_MARKER) {
                    return Ok(());
                }
                return Err(Error::Damaged { offset, what: "no section begins here".to_owned() });
            };
            let end = offset + HEADER_BYTES as u64 + u64::from(header.stored);
            if end > self.length {
                return Ok(());
            }
            if header.kind() != Some(SectionKind::Footer) {
                self.rows.push(IndexRow { kind: header.kind, offset, events_before: events });
            }
            if header.kind() == Some(SectionKind::Events) {
                if header.first != events {
                    return Err(Error::Damaged { offset, what: "events before this are missing".to_owned() });
                }
                events += u64::from(header.count);
            }
            self.end = end;
        }
    }
}
