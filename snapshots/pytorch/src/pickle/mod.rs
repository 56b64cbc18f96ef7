//! Reads snapshots pickled by Python or PyTorch's C++, in one pass and without calling anything.
//!
//! ```text
//!   Source ──bytes──►  Machine ──values──►  Store ──rows──►  Intake
//!   memory, stream     stack, marks, memo   lists, dicts     strings, frames, stacks, events
//! ```
//!
//! The machine only builds values: an instruction that would import or call something stops reading with
//! [`Error::Refused`](highwater_snapshots::Error::Refused). A dict with the keys of an event, a frame, a segment or a
//! block becomes a row of fixed size as soon as it is filled, which keeps memory use small; a list of frames becomes
//! the index of a stack. Memory use is bounded by the number of bytes read, whatever lengths and numbers the file
//! claims.

mod opcode;
mod source;
mod value;
mod shape;
mod store;
mod rows;
mod whole;
mod runs;
mod machine;

#[cfg(test)]
mod tests;

use std::io::Read;
use std::ops::ControlFlow;

use super::RawSnapshot;
use highwater_snapshots::error::Result;
use highwater_snapshots::format::Progress;
use machine::Machine;
use source::{InMemory, Stream};

/// Reads the snapshot at the start of `bytes`. `watch` is called from time to time with the progress and stops reading
/// by returning [`ControlFlow::Break`].
///
/// # Errors
///
/// Returns an error if the pickle is damaged, is not a snapshot or has an instruction that is refused, and
/// [`Error::Cancelled`](highwater_snapshots::Error::Cancelled) if `watch` stops reading.
pub fn read_pickle(bytes: &[u8], watch: &mut dyn FnMut(Progress) -> ControlFlow<()>) -> Result<RawSnapshot> {
    let (store, root) = Machine::new(InMemory::new(bytes)).run(Some(bytes.len() as u64), watch)?;
    store.snapshot(root)
}

/// Like [`read_pickle`], but reads from a stream. If `length` is unknown, the progress reports the number of bytes read
/// as the total.
///
/// # Errors
///
/// Returns an error if reading `input` fails, or in the cases of [`read_pickle`].
pub fn read_pickle_from(
    input: impl Read,
    length: Option<u64>,
    watch: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<RawSnapshot> {
    let (store, root) = Machine::new(Stream::new(input)).run(length, watch)?;
    store.snapshot(root)
}
