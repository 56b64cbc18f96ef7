//! A file that is read while it grows. Detects that it was replaced, truncated or overwritten.

use std::fs::{File, Metadata};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

/// Number of bytes at the start of a file that identify the file.
const START: u64 = 4096;

/// The reason a file cannot be read further.
#[derive(Debug)]
pub enum Lost {
    /// The file no longer exists.
    Missing,
    /// Another file has replaced it.
    Replaced,
    /// The file is shorter than the part already read; the value is its length.
    Truncated(u64),
    /// The first bytes of the file have changed.
    Overwritten,
    /// The system cannot read the file.
    Unreadable(io::Error),
}

/// A file that grows.
#[derive(Debug)]
pub struct GrowingFile {
    path: PathBuf,
    file: File,
    start: Vec<u8>,
}

impl GrowingFile {
    /// Opens the file at `path`.
    ///
    /// # Errors
    /// Fails like [`File::open`].
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), file: File::open(path)?, start: Vec::new() })
    }

    /// Returns the metadata, after checking that the path still refers to the opened file, with at least `read` bytes.
    ///
    /// # Errors
    /// Fails if the file is missing, was replaced or truncated, or if the system cannot read its metadata.
    pub fn facts(&self, read: u64) -> Result<Metadata, Lost> {
        let facts = self.file.metadata().map_err(Lost::Unreadable)?;
        let now = std::fs::metadata(&self.path).map_err(|_| Lost::Missing)?;
        match facts.len() {
            _ if !is_same_file(&facts, &now) => Err(Lost::Replaced),
            length if length < read => Err(Lost::Truncated(length)),
            _ => Ok(facts),
        }
    }

    /// Checks that the start of the file has not changed, which happens if its program was restarted.
    ///
    /// # Errors
    /// Fails if the start has changed or cannot be read.
    pub fn recognize(&mut self) -> Result<(), Lost> {
        let mut now = Vec::new();
        self.file.seek(SeekFrom::Start(0)).map_err(Lost::Unreadable)?;
        (&self.file).take(START).read_to_end(&mut now).map_err(Lost::Unreadable)?;
        if !now.starts_with(&self.start) {
            return Err(Lost::Overwritten);
        }
        self.start = now;
        Ok(())
    }

    /// Reads at most `most` bytes, starting at offset `from`.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn read(&mut self, from: u64, most: usize) -> Result<Vec<u8>, Lost> {
        let mut portion = Vec::new();
        self.file.seek(SeekFrom::Start(from)).map_err(Lost::Unreadable)?;
        (&self.file).take(most as u64).read_to_end(&mut portion).map_err(Lost::Unreadable)?;
        Ok(portion)
    }
}

#[cfg(unix)]
fn is_same_file(one: &Metadata, other: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

#[cfg(not(unix))]
fn is_same_file(one: &Metadata, other: &Metadata) -> bool {
    one.created().ok() == other.created().ok()
}
