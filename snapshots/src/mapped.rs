//! Memory-mapped files.
#![expect(unsafe_code, reason = "a mapped file's bytes are used without a copy")]

use std::cell::Cell;
use std::fs::File;
use std::ops::Deref;
use std::path::Path;

use crate::error::{Error, Result};

/// The mapped bytes of a regular file.
#[derive(Debug)]
pub struct Map {
    map: memmap2::Mmap,
    /// The number of bytes whose memory was released.
    forgotten: Cell<usize>,
}

/// A file opened for reading.
#[derive(Debug)]
pub enum Mapped {
    /// A regular file, memory-mapped.
    Bytes(Map),
    /// Any other file, such as a pipe, a terminal or an empty file, which is read to its end.
    Stream(File),
}

impl Mapped {
    /// Opens `path`. A regular file is mapped; if another program truncates it, this process ends with a bus error, as
    /// with any mapping. The recorder only ever appends.
    pub fn open(path: &Path) -> Result<Self> {
        let io_error = |doing, source| Error::Io { doing, source, path: path.to_owned() };
        let file = File::open(path).map_err(|error| io_error("open the recording", error))?;
        let facts = file.metadata().map_err(|error| io_error("open the recording", error))?;
        if !facts.is_file() || facts.len() == 0 {
            return Ok(Self::Stream(file));
        }
        // SAFETY: the map is private to this program and only read; the bytes are checked, never trusted, so a
        // recorder that appends to the file meanwhile can only make the new part look damaged or cut.
        let map = unsafe { memmap2::Mmap::map(&file) }.map_err(|error| io_error("map the recording", error))?;
        Ok(Self::Bytes(Map { map, forgotten: Cell::new(0) }))
    }
}

/// Bytes shared by several readers: a mapped file, or memory.
#[cfg(all(feature = "symbols", target_os = "linux"))]
#[derive(Clone, Debug)]
pub(crate) struct SharedBytes(Shared);

#[cfg(all(feature = "symbols", target_os = "linux"))]
#[derive(Clone, Debug)]
enum Shared {
    File(std::sync::Arc<memmap2::Mmap>),
    Memory(std::sync::Arc<[u8]>),
}

#[cfg(all(feature = "symbols", target_os = "linux"))]
impl SharedBytes {
    pub(crate) fn map(path: &Path) -> std::io::Result<Self> {
        let file = File::open(path)?;
        // SAFETY: the map is private to this program and read-only; data read from it is checked, never trusted.
        let map = unsafe { memmap2::Mmap::map(&file) }?;
        Ok(Self(Shared::File(std::sync::Arc::new(map))))
    }
}

#[cfg(all(feature = "symbols", target_os = "linux"))]
impl Default for SharedBytes {
    fn default() -> Self {
        Vec::new().into()
    }
}

#[cfg(all(feature = "symbols", target_os = "linux"))]
impl From<Vec<u8>> for SharedBytes {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Shared::Memory(bytes.into()))
    }
}

#[cfg(all(feature = "symbols", target_os = "linux"))]
impl Deref for SharedBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Shared::File(map) => map,
            Shared::Memory(bytes) => bytes,
        }
    }
}

// SAFETY: the bytes stay where they are while any clone lives: a map and the content of an Arc do not move.
#[cfg(all(feature = "symbols", target_os = "linux"))]
unsafe impl gimli::StableDeref for SharedBytes {}

// SAFETY: a clone shares the map or the Arc, so that it has the very same bytes.
#[cfg(all(feature = "symbols", target_os = "linux"))]
unsafe impl gimli::CloneStableDeref for SharedBytes {}

const PORTION: usize = 32 << 20;

impl Map {
    /// Releases the memory of the bytes before `end`, so that only a portion of a large file is in memory. The bytes
    /// remain readable; the system loads them from the file again.
    pub fn forget_before(&self, end: u64) {
        let end = usize::try_from(end).map_or(self.map.len(), |end| end.min(self.map.len()));
        let first = self.forgotten.get();
        let whole = end - end % PORTION;
        if whole <= first {
            return;
        }
        #[cfg(unix)]
        // SAFETY: the pages map a file that is only read: reading them again gives the same bytes.
        let _ = unsafe {
            // Refused advice costs memory, nothing else.
            self.map.unchecked_advise_range(memmap2::UncheckedAdvice::DontNeed, first, whole - first)
        };
        self.forgotten.set(whole);
    }
}

impl Deref for Map {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_were_forgotten_are_still_those_of_the_file() {
        let path = std::env::temp_dir().join(format!("highwater-mapped-{}", std::process::id()));
        let bytes = [vec![0x5a; 2 * PORTION], vec![7; 77]].concat();
        std::fs::write(&path, &bytes).unwrap();
        let Ok(Mapped::Bytes(map)) = Mapped::open(&path) else { panic!("not mapped") };
        assert_eq!(map.last(), bytes.last());
        map.forget_before(PORTION as u64 + 5);
        assert_eq!(map.forgotten.get(), PORTION);
        map.forget_before(u64::MAX);
        assert!(*map == *bytes);
        std::fs::remove_file(&path).unwrap();
    }
}
