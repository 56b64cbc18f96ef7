//! Reads files in parts, so that reading a file of gigabytes needs little memory.

use std::fmt::Debug;
#[cfg(any(unix, windows))]
use std::fs::File;
use std::io;
use std::sync::Arc;

/// Random access to bytes, from several threads at once.
pub trait ByteSource: Debug + Send + Sync {
    /// Returns the current length in bytes, which increases if the file grows.
    fn length(&self) -> io::Result<u64>;

    /// Fills `out` with the bytes starting at `offset`.
    fn read_into(&self, offset: u64, out: &mut [u8]) -> io::Result<()>;
}

/// The name of one of a recording's files, and its bytes.
pub type NamedSource = (String, Arc<dyn ByteSource>);

impl ByteSource for Arc<[u8]> {
    fn length(&self) -> io::Result<u64> {
        Ok(self.len() as u64)
    }

    fn read_into(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let start = usize::try_from(offset).map_err(io::Error::other)?;
        let end = start.checked_add(out.len());
        let bytes = end.and_then(|end| self.get(start..end)).ok_or(io::ErrorKind::UnexpectedEof)?;
        out.copy_from_slice(bytes);
        Ok(())
    }
}

#[cfg(unix)]
impl ByteSource for File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_into(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(self, out, offset)
    }
}

#[cfg(windows)]
impl ByteSource for File {
    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn read_into(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < out.len() {
            let read = std::os::windows::fs::FileExt::seek_read(self, &mut out[done..], offset + done as u64)?;
            if read == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            done += read;
        }
        Ok(())
    }
}
