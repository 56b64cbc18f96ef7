//! Reads and writes the `.snap` file format, which is specified in `SPEC.md`, next to the crate's manifest.
//!
//! ```text
//!   preamble   magic, version, checksum                                    16 bytes
//!   section    header (36 bytes: kind, lengths, counts, checksums), payload    any number
//!   …
//!   end        facts about the accuracy; its presence means that the recording is complete
//!   footer     the offset of every section; only speeds up opening
//!   tail       the offset of the footer                                    16 bytes
//! ```
//!
//! Every section is independent, and can be found after damage by its marker and checksum. Therefore a truncated file
//! is readable up to the cut, and damage to one section does not affect the others.
//!
//! - [`SnapWriter`] appends to a recording while it is being made; [`write_trace`] writes a whole trace; [`Amendment`]
//!   copies a recording and adds symbols, with everything else unchanged.
//! - [`read_file`], [`read_bytes`] and [`read_bytes_with`] read; [`Follower`] reads a recording that is still growing.
//! - [`Walker`] finds the sections, including damaged ones, without decoding them.

mod kind;
mod varint;
#[cfg(all(feature = "zstd", not(target_family = "wasm")))]
mod compression;
#[cfg(all(not(feature = "zstd"), not(target_family = "wasm")))]
#[path = "compression_none.rs"]
mod compression;
#[cfg(target_family = "wasm")]
#[path = "compression_web.rs"]
mod compression;
mod section;
mod tables_codec;
mod index;
mod walk;
mod columns;
mod events_encode;
mod events_decode;
mod foreign;
mod sniff;
mod step_activity;
mod summary;
mod step_rows;
mod checkpoint;
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
mod windows;

#[cfg(test)]
mod events_tests;

pub use amend::{Amendment, amend_file};
pub use checkpoint::Checkpoint;
pub use columns::Column;
pub use follow::{Follower, Passed};
pub use foreign::{Foreign, SNAPSHOT};
pub use index::{Index, IndexRow, TAIL_BYTES, TAIL_MARKER};
pub use kind::SectionKind;
pub use open::read_file;
pub use reader::{Progress, read_bytes, read_bytes_with};
pub use section::{
    CHUNK_EVENTS, COMPRESSION_NONE, COMPRESSION_ZSTD, FLAG_MUST_UNDERSTAND, HEADER_BYTES, MARKER, MAX_EXPANSION,
    MAX_RAW_BYTES, Section, SectionHeader,
};
pub use sniff::{MAGIC, PREAMBLE_BYTES, VERSION_MAJOR, VERSION_MINOR, is_snap};
pub use step_activity::{ActiveSteps, StepActivity};
pub use step_rows::count_steps;
pub use summary::{DeviceSummary, EndedBlock, Extreme, STRIDE, Summarizer, Summary};
pub use tables_codec::{EndFacts, Symbols};
pub use walk::{WalkItem, Walker};
pub use whole::write_trace;
pub use whole::{block_keys, recorded_event, starting_states};
pub use windows::{ComputedStore, Windows};
pub use writer::SnapWriter;
