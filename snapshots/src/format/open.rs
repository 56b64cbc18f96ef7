//! Open: a recording on disk, mapped into memory.
#![expect(unsafe_code, reason = "mapping a file hands out its bytes without a copy")]

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::reader::read_bytes;
use crate::error::{Error, Result};
use crate::trace::Trace;

/// Reads the recording at `path`, as [`read_bytes`] does. A regular file is mapped, anything else (a pipe) is read to
/// its end. A file that another program shortens meanwhile ends this one, as mapping does everywhere; a recorder only
/// ever appends.
pub fn read_file(path: &Path) -> Result<Trace> {
    let io_error = |doing, source| Error::Io { doing, source, path: path.to_owned() };
    let mut file = File::open(path).map_err(|error| io_error("open the recording", error))?;
    let facts = file.metadata().map_err(|error| io_error("open the recording", error))?;
    if facts.is_file() && facts.len() > 0 {
        // SAFETY: the map is private to this call and only read; the bytes are checked, never trusted, so a recorder
        // that appends to the file meanwhile can only make the new part look damaged or cut.
        let map = unsafe { memmap2::Mmap::map(&file) }.map_err(|error| io_error("map the recording", error))?;
        return read_bytes(&map);
    }
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).map_err(|error| io_error("read the recording", error))?;
    read_bytes(&bytes)
}
