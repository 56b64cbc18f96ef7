//! Pickle: reads a snapshot that Python or PyTorch's C++ pickled, in one pass, and calls nothing.
//!
//! ```text
//!   Source ──bytes──►  Machine ──values──►  Store ──rows──►  Intake
//!   memory, stream     stack, marks, memo   lists, dicts     texts, frames, stacks, events
//! ```
//!
//! The machine builds values only: an instruction that would import or call something ends reading with
//! [`Error::Refused`](highwater_snapshots::Error::Refused). A dict whose keys are those of an event, a frame, a segment or a block
//! becomes a row of fixed size as soon as it is filled, so that what is kept stays small; a list of frames becomes the
//! number of a stack. Everything kept is bounded by the bytes read, whatever a length or a number in the file claims.

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

/// Reads the snapshot that `bytes` begin with. `watch` is told from time to time how far reading has come, and stops it
/// with [`ControlFlow::Break`].
pub fn read_pickle(bytes: &[u8], watch: &mut dyn FnMut(Progress) -> ControlFlow<()>) -> Result<RawSnapshot> {
    let (store, root) = Machine::new(InMemory::new(bytes)).run(Some(bytes.len() as u64), watch)?;
    store.snapshot(root)
}

/// As [`read_pickle`], from a stream. `watch` is told as many bytes as were read where their number is not known.
pub fn read_pickle_from(
    input: impl Read,
    length: Option<u64>,
    watch: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<RawSnapshot> {
    let (store, root) = Machine::new(Stream::new(input)).run(length, watch)?;
    store.snapshot(root)
}
