//! Mapped: a file's bytes, lent out without a copy.
#![expect(unsafe_code, reason = "mapping a file hands out its bytes without a copy")]

use std::fs::File;
use std::path::Path;

use crate::error::{Error, Result};

/// A file that was opened for reading.
#[derive(Debug)]
pub(crate) enum Mapped {
    /// A regular file: its bytes.
    Bytes(memmap2::Mmap),
    /// Anything else (a pipe, a terminal, nothing): to be read to its end.
    Stream(File),
}

impl Mapped {
    /// Opens `path`. A regular file is mapped: another program that shortens it meanwhile ends this one, as mapping
    /// does everywhere; a recorder only ever appends.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let io_error = |doing, source| Error::Io { doing, source, path: path.to_owned() };
        let file = File::open(path).map_err(|error| io_error("open the recording", error))?;
        let facts = file.metadata().map_err(|error| io_error("open the recording", error))?;
        if !facts.is_file() || facts.len() == 0 {
            return Ok(Self::Stream(file));
        }
        // SAFETY: the map is private to this program and only read; the bytes are checked, never trusted, so a
        // recorder that appends to the file meanwhile can only make the new part look damaged or cut.
        let map = unsafe { memmap2::Mmap::map(&file) }.map_err(|error| io_error("map the recording", error))?;
        Ok(Self::Bytes(map))
    }
}
