//! Encodes events and writes them incrementally, so that few are in memory at a time.

use std::io::{self, Write};
use std::path::PathBuf;

use highwater_snapshots::{Error, Result};
use rayon::prelude::*;

use super::tracks::Track;

/// Number of counter values that each thread encodes at a time.
const RUN: usize = 1 << 13;

/// Number of encoded bytes that triggers writing the buffer.
const MAX_BYTES: usize = 1 << 18;

/// The kind of an event on a track.
#[derive(Clone, Copy, Debug)]
pub(super) enum What<'a> {
    Begin(&'a str),
    /// The innermost slice ends.
    End,
    Instant(&'a str),
    /// The value of a counter changes to a number of bytes.
    Count(u64),
}

pub(super) trait Encoding: Copy + Sync {
    /// Appends the description of a track, which must precede the track's events, to `bytes`.
    fn describe(self, bytes: &mut Vec<u8>, track: Track, name: &str);
    /// Appends an event. The time is in nanoseconds since the recording's origin.
    fn event(self, bytes: &mut Vec<u8>, time_ns: u64, track: Track, what: What<'_>);
}

pub(super) struct Output<'w, E> {
    out: &'w mut dyn Write,
    encoding: E,
    /// Encoded events that are not written yet.
    bytes: Vec<u8>,
    /// Counter values to encode, each with time and track.
    values: Vec<(u64, Track, u64)>,
}

impl<'w, E: Encoding> Output<'w, E> {
    pub(super) fn new(out: &'w mut dyn Write, encoding: E) -> Self {
        Self { out, encoding, bytes: Vec::new(), values: Vec::new() }
    }

    pub(super) fn describe(&mut self, track: Track, name: &str) {
        self.encoding.describe(&mut self.bytes, track, name);
    }

    pub(super) fn event(&mut self, time_ns: u64, track: Track, what: What<'_>) -> Result<()> {
        self.encoding.event(&mut self.bytes, time_ns, track, what);
        if self.bytes.len() < MAX_BYTES { Ok(()) } else { self.flush() }
    }

    /// Adds a counter value, which may be written after later events of other tracks.
    pub(super) fn value(&mut self, time_ns: u64, track: Track, bytes: u64) -> Result<()> {
        self.values.push((time_ns, track, bytes));
        if self.values.len() < RUN * rayon::current_num_threads() { Ok(()) } else { self.flush() }
    }

    pub(super) fn flush(&mut self) -> Result<()> {
        let encoded = |run: &[(u64, Track, u64)]| {
            let mut bytes = Vec::new();
            run.iter().for_each(|(time, track, n)| self.encoding.event(&mut bytes, *time, *track, What::Count(*n)));
            bytes
        };
        let runs: Vec<Vec<u8>> = self.values.par_chunks(RUN).map(encoded).collect();
        self.values.clear();
        // The descriptions of tracks must precede their values.
        std::iter::once(&self.bytes).chain(&runs).try_for_each(|part| self.out.write_all(part)).map_err(unwritable)?;
        self.bytes.clear();
        Ok(())
    }
}

pub(super) fn unwritable(source: io::Error) -> Error {
    Error::Io { doing: "write", source, path: PathBuf::new() }
}
