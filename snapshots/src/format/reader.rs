//! Reads a whole file into a trace. Decodes sections in parallel while earlier sections are assembled.

use std::ops::ControlFlow;

use super::assemble::Assembler;
use super::index::Index;
use super::parallel;
use super::part::Part;
use super::section::Unpacker;
use super::sniff::{PREAMBLE_BYTES, check_preamble};
use super::walk::{WalkItem, Walker};
use crate::error::{Error, Result};
use crate::live_bytes::LiveBytes;
use crate::trace::Trace;

/// The progress of reading a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the file read so far.
    pub bytes_read: u64,
    /// Total bytes of the file; `u64::MAX` if unknown, such as for a pipe.
    pub bytes: u64,
    /// Events read so far.
    pub events: u64,
    /// Number of events in the file; `None` if the file has no intact index.
    pub events_in_all: Option<u64>,
    /// Minimum and maximum of live bytes during the events since the previous report; `None` if there were no events.
    pub levels: Option<LiveBytes>,
}

/// Decompressed bytes per thread after which a batch ends. Limits the memory of sections that wait to be assembled.
const BATCH_BYTES_PER_THREAD: usize = 1 << 20;

/// Decompressed bytes below which a batch is decoded by the calling thread alone.
const SMALL_BATCH_BYTES: usize = 256 << 10;

const BATCH_SECTIONS: usize = 1024;

/// Reads a recording. Damaged or missing parts are skipped and listed in [`problems`](crate::trace::TraceParts::problems).
///
/// # Errors
/// Fails if the bytes are not a recording, if its major version is not supported, or if its preamble is damaged.
pub fn read_bytes(bytes: &[u8]) -> Result<Trace> {
    read_bytes_with(bytes, &mut |_| ControlFlow::Continue(()))
}

/// Like [`read_bytes`], but calls `progress` regularly; reading stops if it returns [`ControlFlow::Break`].
///
/// # Errors
/// Fails like [`read_bytes`]. Returns [`Error::Cancelled`] if stopped.
pub fn read_bytes_with(bytes: &[u8], progress: &mut dyn FnMut(Progress) -> ControlFlow<()>) -> Result<Trace> {
    let problem = check_preamble(bytes)?;
    let events_in_all = Index::from_bytes(bytes).map(|index| index.events());
    // The index's counts are trusted only up to the maximum for a file of this size.
    let room = usize::try_from(events_in_all.unwrap_or(0)).unwrap_or(usize::MAX).min(bytes.len());
    let mut assembler = Assembler::with_capacity(room);
    assembler.measure();
    problem.into_iter().for_each(|problem| assembler.note(problem));
    let mut walker = Walker::new(bytes, PREAMBLE_BYTES);
    let mut was_cut = false;
    let mut decoded = Vec::new();
    loop {
        let batch = Batch::next(&mut walker);
        let is_last = batch.found.is_empty();
        was_cut |= matches!(batch.found.last(), Some(WalkItem::Cut { .. }));
        let ready = std::mem::take(&mut decoded);
        let assemble = || {
            for (found, part) in ready {
                assembler.take(&found, part);
            }
        };
        if batch.is_small() {
            assemble();
            decoded = batch.decode_here();
        } else {
            ((), decoded) = parallel::join(assemble, || batch.decode_in_parallel());
        }
        let (bytes_read, length) = (walker.offset() as u64, bytes.len() as u64);
        let (events, measured) = (assembler.events() as u64, assembler.take_measured());
        let steps = measured.into_iter().map(|(events, levels)| (events, Some(levels)));
        // Progress is reported even without live bytes.
        for (events, levels) in steps.chain([(events, None)]) {
            if progress(Progress { bytes_read, bytes: length, events, events_in_all, levels }).is_break() {
                return Err(Error::Cancelled);
            }
        }
        if is_last {
            return Ok(assembler.finish(length, was_cut));
        }
    }
}

struct Batch<'a> {
    found: Vec<WalkItem<'a>>,
    raw_bytes: usize,
}

type Decoded<'a> = (WalkItem<'a>, Option<Result<Part, String>>);

impl<'a> Batch<'a> {
    /// Returns the next sections that fit into a batch, or an empty batch at the end of the file.
    fn next(walker: &mut Walker<'a>) -> Self {
        let most_bytes = BATCH_BYTES_PER_THREAD * parallel::threads();
        let mut batch = Self { found: Vec::new(), raw_bytes: 0 };
        while batch.raw_bytes < most_bytes && batch.found.len() < BATCH_SECTIONS {
            let Some(found) = walker.next() else { break };
            if let WalkItem::Section(section) = found {
                batch.raw_bytes += section.header.raw as usize;
            }
            batch.found.push(found);
        }
        batch
    }

    /// Returns whether distributing the work to threads would cost more than it saves.
    fn is_small(&self) -> bool {
        self.raw_bytes < SMALL_BATCH_BYTES
    }

    fn decode_here(&self) -> Vec<Decoded<'a>> {
        let mut unpacker = Unpacker::new();
        let decode = |found| decode_one(&mut unpacker, found);
        self.found.iter().map(decode).collect()
    }

    fn decode_in_parallel(&self) -> Vec<Decoded<'a>> {
        parallel::map(&self.found, Unpacker::new, decode_one)
    }
}

fn decode_one<'a>(unpacker: &mut Unpacker, found: &WalkItem<'a>) -> Decoded<'a> {
    let part = match found {
        WalkItem::Section(section) => Some(Part::from_section(unpacker, section)),
        _ => None,
    };
    (*found, part)
}
