//! Copies a recorded file byte for byte and adds symbols.
//!
//! ```text
//!   preamble  section … section  │ end  footer  tail      as it was; damage is copied too
//!   preamble  section … section  │ strings  symbols  end  footer  tail
//! ```
//!
//! Sections of unknown kinds keep their position. A truncated recording stays truncated; only the bytes of its
//! incomplete last section are omitted.

use std::io::Write;
use std::ops::Range;
use std::path::{Path, PathBuf};

use super::kind::SectionKind;
use super::section::SectionHeader;
use super::sniff::{PREAMBLE_BYTES, check_preamble};
use super::tables_codec::Symbols;
use super::walk::{WalkItem, Walker};
use super::writer::SnapWriter;
use crate::error::{Error, Result};
use crate::ids::StringId;
use crate::mapped::Mapped;
use crate::tables::SourceLine;

/// The bytes of a recording to which symbols are added.
#[derive(Debug)]
pub struct Amendment<'a> {
    bytes: &'a [u8],
    /// The copied ranges, in order.
    kept: Vec<Piece>,
    /// The sections that mark the recording as finished.
    ends: Vec<Piece>,
    /// Number of rows of the string table, including those lost to damage.
    strings: u64,
    torn_bytes: u64,
}

/// Bytes to copy, and their section header if they begin with one.
#[derive(Debug)]
struct Piece {
    range: Range<usize>,
    header: Option<SectionHeader>,
}

impl<'a> Amendment<'a> {
    /// Finds the sections of a recording. Fails where [`read_bytes`](super::read_bytes) does.
    pub fn new(bytes: &'a [u8]) -> Result<Self> {
        check_preamble(bytes)?;
        let mut amendment = Self { bytes, kept: Vec::new(), ends: Vec::new(), strings: 0, torn_bytes: 0 };
        amendment.kept.push(Piece { range: 0..PREAMBLE_BYTES, header: None });
        let mut walker = Walker::new(bytes, PREAMBLE_BYTES);
        let mut start = PREAMBLE_BYTES;
        while let Some(found) = walker.next() {
            let range = start..walker.offset();
            start = range.end;
            match found {
                WalkItem::Section(section) => amendment.take(range, section.header, true),
                WalkItem::Damaged { header, .. } => amendment.take(range, header, false),
                WalkItem::Stray { .. } => amendment.kept.push(Piece { range, header: None }),
                WalkItem::Cut { bytes, .. } => amendment.torn_bytes = bytes,
                // `write` adds a new footer and tail.
                WalkItem::Tail { .. } => {}
            }
        }
        Ok(amendment)
    }

    fn take(&mut self, range: Range<usize>, header: SectionHeader, is_whole: bool) {
        let kind = header.kind();
        if kind == Some(SectionKind::Strings) {
            // Rows of a damaged section have ids too.
            self.strings = self.strings.max(header.first.saturating_add(u64::from(header.count)));
        }
        let piece = Piece { range, header: Some(header) };
        match kind {
            Some(SectionKind::Footer) => {}
            Some(SectionKind::End) if is_whole => self.ends.push(piece),
            _ => self.kept.push(piece),
        }
    }

    /// Returns the bytes of the incomplete section at the end of a truncated file. They are not copied, since they
    /// could not be distinguished from the sections after them.
    pub fn torn_bytes(&self) -> u64 {
        self.torn_bytes
    }

    /// Writes the recording with `strings` and `symbols` added. `known` is the number of strings in the recording;
    /// `symbols` may refer to these and to the new ones. Fails if `out` cannot be written, or if the string table would
    /// have 2^32 rows.
    pub fn write<W: Write>(&self, out: W, known: usize, strings: &[String], symbols: &[Symbols]) -> Result<W> {
        // Rows lost to damage at the end of a table are not in the tables, but have numbers.
        let lost = self.strings.saturating_sub(known as u64);
        let symbols = symbols.iter().map(|symbols| shifted(symbols, known, lost)).collect::<Result<Vec<Symbols>>>()?;
        let mut writer = SnapWriter::empty(out, PathBuf::from("(a stream)"))?;
        for piece in &self.kept {
            writer.copy(&self.bytes[piece.range.clone()], piece.header.as_ref())?;
        }
        writer.append_strings(strings)?;
        writer.append_symbols(&symbols)?;
        for end in &self.ends {
            writer.copy(&self.bytes[end.range.clone()], end.header.as_ref())?;
        }
        if !self.ends.is_empty() {
            writer.write_footer()?;
        }
        writer.into_stream()
    }
}

/// Returns the symbols with the row numbers of new strings increased by `lost`.
fn shifted(symbols: &Symbols, known: usize, lost: u64) -> Result<Symbols> {
    let row = |id: StringId| match id.index() {
        Some(row) if row >= known => {
            let row = u32::try_from(row as u64 + lost).ok().filter(|row| *row < u32::MAX);
            row.map(StringId).ok_or_else(|| Error::Encode { what: "more than 2^32 rows of strings".to_owned() })
        }
        _ => Ok(id),
    };
    let line =
        |line: &SourceLine| Ok(SourceLine { function: row(line.function)?, file: row(line.file)?, line: line.line });
    let lines = symbols.lines.iter().map(line).collect::<Result<Vec<SourceLine>>>()?;
    Ok(Symbols { frame: symbols.frame, lines })
}

/// Calls `use_it` with the recording at `path`, which must be a regular file that is not empty. Fails if the file
/// cannot be opened, is not a recording, or `use_it` fails.
pub fn amend_file<T>(path: &Path, use_it: impl FnOnce(&Amendment<'_>) -> Result<T>) -> Result<T> {
    match Mapped::open(path)? {
        Mapped::Bytes(map) => use_it(&Amendment::new(&map)?),
        Mapped::Stream(_) => {
            let source = std::io::Error::other("it is empty or not a regular file");
            Err(Error::Io { doing: "read the recording", source, path: path.to_owned() })
        }
    }
}
