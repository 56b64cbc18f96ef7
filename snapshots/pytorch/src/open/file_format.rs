//! Detects the format of a file from its first bytes.

use crate::tools::{jax, nccl, nsys, rmm};
use highwater_snapshots::format::is_snap;

highwater_snapshots::vocabulary!(
    /// The kind of a recording.
    FileKind {
        /// This project's `.snap` format.
        Snap = "snap",
        /// A snapshot pickled by Python or PyTorch.
        Pickle = "pickle",
        /// A snapshot as JSON text.
        Json = "json",
        /// A web page that contains a snapshot, as saved by PyTorch's `trace_plot` or `segment_plot`.
        Page = "html",
        /// A device memory profile of JAX.
        Jax = "jax",
        /// An SQLite export of Nsight Systems.
        Nsys = "nsys",
        /// A log of RMM's allocations.
        Rmm = "rmm",
        /// A debug log of NCCL.
        Nccl = "nccl",
    }
);

/// The format of the file from which a recording was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileFormat {
    /// Kind of the recording.
    pub kind: FileKind,
    /// Whether the file is compressed with gzip.
    pub is_gzipped: bool,
}

impl FileFormat {
    /// Returns the name of the kind, followed by `+gzip` if compressed.
    pub fn name(self) -> String {
        format!("{}{}", self.kind, if self.is_gzipped { "+gzip" } else { "" })
    }
}

/// The kind of content indicated by the first bytes of a file, or of the data inside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// A recording.
    Kind(FileKind),
    /// A gzip file.
    Gzip,
    /// A pickle of an unsupported protocol.
    Protocol(u8),
    /// Unrecognized content.
    Unknown,
}

/// Number of leading bytes needed to detect the format.
pub(super) const START_BYTES: usize = 4096;

/// UTF-8 byte order mark, which some editors write at the start of a text file.
pub(super) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

impl Start {
    pub(super) fn of(bytes: &[u8]) -> Self {
        match bytes {
            [0x80, 2..=5, ..] => return Self::Kind(FileKind::Pickle),
            // The second byte of a pickle is small; in other files it may be anything.
            [0x80, protocol @ (0..=1 | 6..=31), ..] => return Self::Protocol(*protocol),
            [0x1f, 0x8b, ..] => return Self::Gzip,
            // Pickles before protocol 2 have no marker: they start with a dict or list that is memoized under 0.
            [b'(', b'd' | b'l', b'p', b'0' | b'1', b'\n', ..] => return Self::Protocol(0),
            [b'}' | b']', b'q', 0 | 1, ..] => return Self::Protocol(1),
            _ if is_snap(bytes) => return Self::Kind(FileKind::Snap),
            _ if nsys::is_database(bytes) => return Self::Kind(FileKind::Nsys),
            _ if jax::is_profile(bytes) => return Self::Kind(FileKind::Jax),
            _ => {}
        }
        let text = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
        if rmm::is_log(text) {
            return Self::Kind(FileKind::Rmm);
        }
        // With timestamps, its lines begin with a bracket, as JSON may.
        if nccl::is_log(&text[..text.len().min(START_BYTES)]) {
            return Self::Kind(FileKind::Nccl);
        }
        match text.iter().find(|byte| !byte.is_ascii_whitespace()) {
            Some(b'{' | b'[') => Self::Kind(FileKind::Json),
            Some(b'<') => Self::Kind(FileKind::Page),
            _ => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_detected_by_the_first_bytes() {
        let cases: [(&[u8], Start); 23] = [
            (b"\x89HWS\r\n\x1a\n\x01\0", Start::Kind(FileKind::Snap)),
            (b"\x80\x02}", Start::Kind(FileKind::Pickle)),
            (b"\x80\x05\x95", Start::Kind(FileKind::Pickle)),
            (b"\x80\x01}", Start::Protocol(1)),
            (b"\x80\x06}", Start::Protocol(6)),
            (b"\x80\xd5}", Start::Unknown),
            (b"\x80", Start::Unknown),
            (b"(dp0\nS'segments'\n", Start::Protocol(0)),
            (b"(lp0\n(dp1\n", Start::Protocol(0)),
            (b"}q\0X", Start::Protocol(1)),
            (b"\x1f\x8b\x08", Start::Gzip),
            (b" \n\t{\"a\"", Start::Kind(FileKind::Json)),
            (b"\xef\xbb\xbf[]", Start::Kind(FileKind::Json)),
            (b"\n<!DOCTYPE html>", Start::Kind(FileKind::Page)),
            (b"\x0a\x04\x08\x01\x10\x02\x0a\x04\x08\x03\x10\x04\x12\x08", Start::Kind(FileKind::Jax)),
            (b"SQLite format 3\0", Start::Kind(FileKind::Nsys)),
            (b"Thread,Time,Action,Pointer,Size,Stream\n", Start::Kind(FileKind::Rmm)),
            (b"hello\nnode:7:8 [0] NCCL INFO Bootstrap", Start::Kind(FileKind::Nccl)),
            (b"[2026-08-01 12:00:00] node:7:8 [0] NCCL INFO Bootstrap", Start::Kind(FileKind::Nccl)),
            (b"\x89PNG\r\n\x1a\n", Start::Unknown),
            (b"}", Start::Unknown),
            (b"Dear all", Start::Unknown),
            (b"", Start::Unknown),
        ];
        for (bytes, start) in cases {
            assert_eq!(Start::of(bytes), start, "{bytes:?}");
        }
    }
}
