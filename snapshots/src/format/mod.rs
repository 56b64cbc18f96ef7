//! The `.snap` file format. `SPEC.md` next to the crate's manifest describes its bytes; this is the map of the code.
//!
//! ```text
//!   preamble   magic, version, checksum                                    16 bytes
//!   section    header (36 bytes: kind, lengths, counts, checksums), payload    any number
//!   …
//!   end        what the numbers rest on: the recording was finished
//!   footer     where every section lies; only speeds up opening
//!   tail       where the footer lies                                       16 bytes
//! ```
//!
//! Every section is complete on its own and is found again after damage by its marker and checksum: a file cut
//! anywhere opens up to the cut, and a damaged section costs itself alone.
//!
//! - [`SnapWriter`] appends to a recording as it happens; [`write_trace`] writes a whole trace; [`Amendment`] copies a
//!   recording and adds symbols, with everything else as it was.
//! - [`read_file`], [`read_bytes`] and [`read_bytes_with`] read; [`Follower`] reads a recording that still grows.
//! - [`Walker`] finds the sections, damaged ones too, and decodes nothing.

mod kind;
mod varint;
mod section;
mod tables_codec;
mod index;
mod walk;
mod columns;
mod events_encode;
mod events_decode;
mod sniff;
mod writer;
mod whole;
mod amend;
mod part;
mod owners;
mod assemble;
mod parallel;
mod reader;
mod follow;
mod open;

#[cfg(test)]
mod events_tests;

pub use amend::{Amendment, amend_file};
pub use columns::Column;
pub use follow::Follower;
pub use index::{Index, IndexRow, TAIL_BYTES, TAIL_MARKER};
pub use kind::SectionKind;
pub use open::read_file;
pub use reader::{Progress, read_bytes, read_bytes_with};
pub use section::{
    CHUNK_EVENTS, COMPRESSION_NONE, COMPRESSION_ZSTD, FLAG_MUST_UNDERSTAND, HEADER_BYTES, MARKER, MOST_EXPANSION,
    MOST_RAW_BYTES, Section, SectionHeader,
};
pub use sniff::{MAGIC, PREAMBLE_BYTES, VERSION_MAJOR, VERSION_MINOR, is_snap, sniff};
pub use tables_codec::{EndFacts, Symbols};
pub use walk::{WalkItem, Walker};
pub use whole::write_trace;
pub use whole::{block_keys, recorded_event, starting_states};
pub use writer::SnapWriter;
