//! Reads a recording while it is still being written.

pub use super::assemble::Passed;

use super::assemble::Assembler;
use super::part::Part;
use super::section::Unpacker;
use super::sniff::{PREAMBLE_BYTES, check_preamble};
use super::walk::{WalkItem, Walker};
use crate::error::Result;
use crate::ids::DeviceId;
use crate::live_state::LiveState;
use crate::trace::{DeviceUse, Header, Start, Trace};

/// Reads a growing file incrementally, and returns the trace read up to now. Does not access the file: the caller reads
/// it from offset [`bytes_fed`](Self::bytes_fed), and passes the new bytes to `feed`.
#[derive(Debug, Default)]
pub struct Follower {
    assembler: Assembler,
    /// Bytes that were fed but do not yet form a complete section.
    pending: Vec<u8>,
    fed: u64,
    has_preamble: bool,
}

impl Follower {
    /// Creates a follower at the start of a file.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a follower, at the start of a file, that does not add events to its trace. The caller takes them instead
    /// with [`take_passed`](Self::take_passed).
    pub fn passing() -> Self {
        Self { assembler: Assembler::passing(), ..Self::default() }
    }

    /// Returns the starting state and the events in the bytes fed since the last call, for a follower made by
    /// [`passing`](Self::passing).
    pub fn take_passed(&mut self) -> Passed {
        self.assembler.take_passed()
    }

    /// Returns the recording's header as read so far.
    pub fn header(&self) -> &Header {
        self.assembler.header()
    }

    /// Creates a recording without events, whose baseline is the state `live` of each device, as a window that begins
    /// at `start`; `uses` contains the devices. The time is proportional to the number of live blocks and to the size
    /// of the tables without operations.
    pub fn window(&mut self, live: &[(DeviceId, &LiveState)], start: Start, uses: &[DeviceUse]) -> Trace {
        self.assembler.window(live, start, uses)
    }

    /// Adds the next bytes of the file. Returns the number of events that were added to the trace: 0 for a follower
    /// made by [`passing`](Self::passing). Fails if the preamble is not that of a supported recording.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<usize> {
        self.pending.extend_from_slice(bytes);
        self.fed += bytes.len() as u64;
        if !self.has_preamble {
            if self.pending.len() < PREAMBLE_BYTES {
                return Ok(0);
            }
            check_preamble(&self.pending)?.into_iter().for_each(|problem| self.assembler.note(problem));
            self.pending.drain(..PREAMBLE_BYTES);
            self.has_preamble = true;
        }
        let before = self.assembler.events();
        let mut unpacker = Unpacker::new();
        let mut walker = Walker::over_part(&self.pending, self.fed - self.pending.len() as u64);
        for found in walker.by_ref() {
            match found {
                WalkItem::Cut { .. } => break,
                WalkItem::Section(section) => {
                    self.assembler.take(&found, Some(Part::from_section(&mut unpacker, &section)));
                }
                _ => self.assembler.take(&found, None),
            }
        }
        let used = walker.offset();
        self.pending.drain(..used);
        Ok(self.assembler.events() - before)
    }

    /// Number of bytes fed so far.
    pub fn bytes_fed(&self) -> u64 {
        self.fed
    }

    /// Number of events in the trace; 0 for a follower made by [`passing`](Self::passing).
    pub fn events(&self) -> usize {
        self.assembler.events()
    }

    /// Whether the recording was marked as finished.
    pub fn is_finished(&self) -> bool {
        self.assembler.is_finished()
    }

    /// Whether the file is complete, including the index after the end of the recording.
    pub fn is_whole(&self) -> bool {
        self.assembler.is_whole()
    }

    /// Returns a copy of the trace read so far. Takes time and memory proportional to its number of events.
    pub fn trace(&self) -> Trace {
        self.assembler.clone().finish(self.fed, false)
    }
}
