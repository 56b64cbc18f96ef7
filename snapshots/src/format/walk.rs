//! Iterates over the sections of a file, skipping damaged parts, up to the end or the point of truncation.

use super::index::{TAIL_BYTES, TAIL_MARKER, read_tail};
use super::section::{HEADER_BYTES, MARKER, Section, SectionHeader};

/// The content of a file at one offset.
#[derive(Clone, Copy, Debug)]
pub enum WalkItem<'a> {
    /// A section with an intact header and payload.
    Section(Section<'a>),
    /// A section with an intact header but a damaged payload.
    Damaged {
        /// Offset of the section's header.
        offset: u64,
        /// The header of the damaged section.
        header: SectionHeader,
    },
    /// Bytes that do not belong to any readable section.
    Stray {
        /// Offset of the first byte.
        offset: u64,
        /// Number of bytes.
        bytes: u64,
    },
    /// The file ends within a section or the tail. This is always the last item.
    Cut {
        /// Offset of the section.
        offset: u64,
        /// Number of bytes of the section in the file.
        bytes: u64,
        /// The header, if it is complete.
        header: Option<SectionHeader>,
    },
    /// The tail after the footer.
    Tail {
        /// Offset of the tail.
        offset: u64,
    },
}

/// Finds the sections of a file in order, without decoding them. The time is proportional to the file's length.
#[derive(Clone, Debug)]
pub struct Walker<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Offset of `bytes` within the file.
    base: u64,
    /// Number of further bytes that may be checksummed without finding a section; `None` once exhausted. Bounds the
    /// time spent on overlapping sections in a malicious file.
    doubt: Option<usize>,
}

impl<'a> Walker<'a> {
    /// Creates a walker over `bytes` that starts at `offset`, the end of the preamble or of the last section read.
    pub fn new(bytes: &'a [u8], offset: usize) -> Self {
        Self {
            bytes,
            at: offset.min(bytes.len()),
            base: 0,
            doubt: Some(bytes.len().saturating_mul(4).saturating_add(1 << 20)),
        }
    }

    /// Creates a walker over a part of a file that starts at byte `base`, the start of a section.
    pub(crate) fn over_part(bytes: &'a [u8], base: u64) -> Self {
        Self { base, ..Self::new(bytes, 0) }
    }

    /// Offset, within the walker's bytes, at which the next section is searched. After [`WalkItem::Cut`], the start of
    /// the incomplete section, at which to continue when the file has grown.
    pub fn offset(&self) -> usize {
        self.at
    }

    /// Returns the section with this header at the current offset: intact, damaged or truncated.
    fn take_section(&mut self, header: SectionHeader) -> Option<WalkItem<'a>> {
        let offset = self.base + self.at as u64;
        let payload = self.at + HEADER_BYTES;
        let Some(stored) = self.bytes[payload..].get(..header.stored as usize) else {
            // Either the file ends here, or bytes were lost from its middle.
            let Some(next) = self.next_start(payload) else {
                let bytes = (self.bytes.len() - self.at) as u64;
                return Some(WalkItem::Cut { offset, bytes, header: Some(header) });
            };
            self.at = next;
            return Some(WalkItem::Damaged { offset, header });
        };
        let end = payload + stored.len();
        if crc32fast::hash(stored) == header.payload_crc {
            self.at = end;
            return Some(WalkItem::Section(Section { offset, header, stored }));
        }
        if end == self.bytes.len() || self.begins(end) {
            self.at = end;
        } else {
            // The length in the header may be wrong: search from the start of the payload.
            self.at = self.next_start(payload).unwrap_or(self.bytes.len());
            self.doubt = self.doubt.and_then(|left| left.checked_sub(stored.len()));
        }
        Some(WalkItem::Damaged { offset, header })
    }

    /// Whether a section or the tail starts at `at`.
    fn begins(&self, at: usize) -> bool {
        let rest = &self.bytes[at..];
        SectionHeader::parse(rest).is_some() || read_tail(rest).is_some()
    }

    /// The first offset at or after `from` at which a section or the tail starts; `None` if there is none.
    fn next_start(&self, from: usize) -> Option<usize> {
        let mut at = from;
        while at < self.bytes.len() {
            at += self.bytes[at..].iter().position(|byte| *byte == MARKER[0] || *byte == TAIL_MARKER[0])?;
            if self.begins(at) {
                return Some(at);
            }
            at += 1;
        }
        None
    }
}

impl<'a> Iterator for Walker<'a> {
    type Item = WalkItem<'a>;

    fn next(&mut self) -> Option<WalkItem<'a>> {
        let offset = self.base + self.at as u64;
        let rest = &self.bytes[self.at..];
        if rest.is_empty() {
            return None;
        }
        if self.doubt.is_none() {
            self.at = self.bytes.len();
            return Some(WalkItem::Stray { offset, bytes: rest.len() as u64 });
        }
        if let Some(header) = SectionHeader::parse(rest) {
            let found = self.take_section(header);
            if matches!(found, Some(WalkItem::Cut { .. })) {
                self.bytes = &self.bytes[..self.at];
            }
            return found;
        }
        if read_tail(rest).is_some() {
            self.at += TAIL_BYTES;
            return Some(WalkItem::Tail { offset });
        }
        let next = self.next_start(self.at + 1);
        if next.is_none() && is_beginning(rest) {
            self.bytes = &self.bytes[..self.at];
            return Some(WalkItem::Cut { offset, bytes: rest.len() as u64, header: None });
        }
        self.at = next.unwrap_or(self.bytes.len());
        Some(WalkItem::Stray { offset, bytes: self.base + self.at as u64 - offset })
    }
}

/// Whether `rest`, the last bytes of a file, are the beginning of a section's header or of the tail.
fn is_beginning(rest: &[u8]) -> bool {
    let starts = |marker: &[u8]| rest.iter().zip(marker).all(|(a, b)| a == b);
    (rest.len() < HEADER_BYTES && starts(&MARKER)) || (rest.len() < TAIL_BYTES && starts(&TAIL_MARKER))
}
