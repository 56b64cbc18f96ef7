//! Reads snapshots pickled by Python or PyTorch's C++, in one pass and without calling anything.
//!
//! ```text
//!   Source ──bytes──►  Machine ──values──►  Store ──rows──►  Intake
//!   memory, stream     stack, marks, memo   objects
//!      └──►  ParallelDecoder ──events──┘
//!            several threads
//! ```
//!
//! The machine only builds values. An instruction that would import or call something stops reading with
//! [`Error::Refused`]. A dict with the keys of an event, a frame, a segment or a
//! block becomes a row of fixed size as soon as it is filled, which keeps memory use small; a list of frames becomes
//! the index of a stack. Of a file in memory, the events of traces are decoded ahead of the machine (`ahead`). Memory
//! use is bounded by the number of bytes read, whatever lengths and numbers the file claims.

mod opcode;
mod source;
mod memo;
mod runs;
mod known;
mod portion;
mod events;
mod machine;
mod ahead;

#[cfg(test)]
mod tests;
#[cfg(test)]
mod ahead_tests;

use std::io::Read;
use std::ops::ControlFlow;

use super::RawSnapshot;
use ahead::{Division, ParallelDecoder};
use highwater_snapshots::error::{Error, Result};
use highwater_snapshots::format::Progress;
use machine::{Machine, Next};
use source::{InMemory, Source, Stream};

/// Number of instructions between two progress reports.
const INSTRUCTIONS_A_LOOK: u32 = 1 << 16;

/// Number of instructions executed in search of the end of an event.
const MAX_TO_EVENT: u32 = 1 << 12;

/// Called with the progress; stops reading by returning [`ControlFlow::Break`].
type Watch<'w> = &'w mut dyn FnMut(Progress) -> ControlFlow<()>;

/// Reads the snapshot at the start of `bytes`. `watch` is called from time to time with the progress and stops reading
/// by returning [`ControlFlow::Break`].
///
/// # Errors
/// Returns an error if the pickle is damaged, is not a snapshot or has an instruction that is refused, and
/// [`Error::Cancelled`] if `watch` stops reading.
pub fn read_pickle(bytes: &[u8], watch: &mut dyn FnMut(Progress) -> ControlFlow<()>) -> Result<RawSnapshot> {
    read_divided(bytes, Division::for_threads(), INSTRUCTIONS_A_LOOK, watch)
}

/// Like [`read_pickle`], with events decoded ahead after every `look` instructions, using the given division.
fn read_divided(bytes: &[u8], division: Division, look: u32, watch: Watch<'_>) -> Result<RawSnapshot> {
    let mut machine = Machine::new(InMemory::new(bytes));
    let mut ahead = ParallelDecoder::new(bytes, division);
    let length = Some(bytes.len() as u64);
    let root = 'read: loop {
        for _ in 0..look {
            if let Next::End(root) = machine.next()? {
                break 'read root;
            }
        }
        report(&mut machine, length, watch)?;
        for _ in 0..MAX_TO_EVENT {
            match machine.next()? {
                Next::End(root) => break 'read root,
                Next::Executed(opcode::SETITEMS) => {
                    let mut report = |machine: &mut Machine<_>| report(machine, length, watch);
                    if let Some(root) = ahead.run(&mut machine, &mut report)? {
                        break 'read root;
                    }
                }
                Next::Executed(_) => {}
            }
        }
    };
    machine.store.snapshot(root, "pickled")
}

/// Like [`read_pickle`], but reads from a stream. If `length` is unknown, the progress reports the number of bytes read
/// as the total.
///
/// # Errors
/// Returns an error if reading `input` fails, or in the cases of [`read_pickle`].
pub fn read_pickle_from(
    input: impl Read,
    length: Option<u64>,
    watch: &mut dyn FnMut(Progress) -> ControlFlow<()>,
) -> Result<RawSnapshot> {
    let mut machine = Machine::new(Stream::new(input));
    loop {
        for _ in 0..INSTRUCTIONS_A_LOOK {
            if let Next::End(root) = machine.next()? {
                return machine.store.snapshot(root, "pickled");
            }
        }
        report(&mut machine, length, watch)?;
    }
}

fn report(machine: &mut Machine<impl Source>, bytes: Option<u64>, watch: Watch<'_>) -> Result<()> {
    let bytes_read = machine.source.position();
    let progress = Progress {
        bytes_read,
        bytes: bytes.unwrap_or(bytes_read),
        events: machine.store.events.len() as u64,
        events_in_all: None,
        levels: Some(machine.store.intake.take_levels()),
    };
    if watch(progress).is_break() { Err(Error::Cancelled) } else { Ok(()) }
}
