//! A file that is read while it grows, and recognized after it was replaced, truncated or overwritten.

use std::fs::{File, Metadata};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

/// First bytes of the file by which it is recognized.
const START: u64 = 4096;

/// The reason that a file cannot be read further.
#[derive(Debug)]
pub enum Lost {
    /// There is no file at its path.
    Missing,
    /// Another file is at its path.
    Replaced,
    /// The file is shorter than the part already read; the value is its length.
    Truncated(u64),
    /// The file now begins with other bytes.
    Overwritten,
    /// The system does not read it.
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
    ///
    /// As [`File::open`].
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { path: path.to_owned(), file: File::open(path)?, start: Vec::new() })
    }

    /// Returns the metadata. It must be the file that was opened, and not shorter than the bytes that were `read`.
    ///
    /// # Errors
    ///
    /// Fails if it is not, or the system does not tell.
    pub fn facts(&self, read: u64) -> Result<Metadata, Lost> {
        let facts = self.file.metadata().map_err(Lost::Unreadable)?;
        let now = std::fs::metadata(&self.path).map_err(|_| Lost::Missing)?;
        match facts.len() {
            _ if !is_same_file(&facts, &now) => Err(Lost::Replaced),
            length if length < read => Err(Lost::Truncated(length)),
            _ => Ok(facts),
        }
    }

    /// Checks that the file still begins as it did the last time: its program may have been restarted.
    ///
    /// # Errors
    ///
    /// Fails if it does not, or cannot be read.
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

    /// Reads the bytes from `from` on, at most as many as `most`.
    ///
    /// # Errors
    ///
    /// Fails if it cannot be read.
    pub fn read(&mut self, from: u64, most: usize) -> Result<Vec<u8>, Lost> {
        let mut portion = Vec::new();
        self.file.seek(SeekFrom::Start(from)).map_err(Lost::Unreadable)?;
        (&self.file).take(most as u64).read_to_end(&mut portion).map_err(Lost::Unreadable)?;
        Ok(portion)
    }
}

/// Whether both describe the same file, as reported by the system.
#[cfg(unix)]
fn is_same_file(one: &Metadata, other: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Whether both describe the same file, as reported by the system.
#[cfg(not(unix))]
fn is_same_file(one: &Metadata, other: &Metadata) -> bool {
    one.created().ok() == other.created().ok()
}
