//! Opens a recording on disk by mapping it into memory.

use std::io::Read;
use std::path::Path;

use super::reader::read_bytes;
use crate::error::{Error, Result};
use crate::mapped::Mapped;
use crate::trace::Trace;

/// Reads the recording at `path` like [`read_bytes`]. A regular file is mapped; any other file, such as a pipe, is read
/// to its end. If another program truncates a mapped file, this process ends with a bus error, as with any mapping; the
/// recorder only ever appends.
pub fn read_file(path: &Path) -> Result<Trace> {
    match Mapped::open(path)? {
        Mapped::Bytes(map) => read_bytes(&map),
        Mapped::Stream(mut file) => {
            let mut bytes = Vec::new();
            let read = file.read_to_end(&mut bytes);
            read.map_err(|source| Error::Io { doing: "read the recording", source, path: path.to_owned() })?;
            read_bytes(&bytes)
        }
    }
}
