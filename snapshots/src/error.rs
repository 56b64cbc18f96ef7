//! What can go wrong with a recording: errors that stop reading, and problems that do not.

use std::path::PathBuf;

/// Why a file could not be read or written: what, where, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused.
    #[error("cannot {doing}: {source}; path: {}", path.display())]
    Io {
        /// What was being done: "open", "write" …
        doing: &'static str,
        /// The operating system's reason.
        source: std::io::Error,
        /// The file.
        path: PathBuf,
    },
    /// Nothing in the file.
    #[error("the file is empty: was the recording finished, and was the disk full?")]
    Empty,
    /// The first bytes are those of no format that we read.
    #[error("this is no recording: it starts with {found}; expected a .snap file (made by `highwater record`)")]
    UnknownFormat {
        /// What it looks like instead.
        found: String,
    },
    /// Written by a newer program than this.
    #[error(
        "this .snap file has format version {found}; this program reads up to version {supported}: install a newer highwater"
    )]
    Version {
        /// The file's major version.
        found: u16,
        /// The newest that we read.
        supported: u16,
    },
    /// The bytes contradict themselves.
    #[error("damaged at byte {offset}: {what}")]
    Damaged {
        /// Offset in the file.
        offset: u64,
        /// What was wrong there.
        what: String,
    },
    /// The file asks for more than its values to be read.
    #[error(
        "refused at byte {offset}: {what}; nothing was run. A memory snapshot, as torch.cuda.memory._dump_snapshot \
         makes it, holds plain values only: is this another kind of file, such as a checkpoint?"
    )]
    Refused {
        /// Offset in the file.
        offset: u64,
        /// What was asked for.
        what: String,
    },
    /// Some part could not be encoded.
    #[error("cannot write the recording: {what}")]
    Encode {
        /// The part, and the encoder's reason.
        what: String,
    },
    /// The caller asked for reading to stop.
    #[error("reading was stopped before its end")]
    Cancelled,
    /// A line of the text notation that means nothing.
    #[error("line {line}: {what}")]
    Text {
        /// From 1.
        line: usize,
        /// What was wrong with it.
        what: String,
    },
}

/// Something a reader should know about a recording that was read all the same.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Problem {
    /// Where in the file, when it has a place.
    pub offset: Option<u64>,
    /// What is wrong, in a sentence.
    pub what: String,
}

impl Problem {
    /// A problem of the whole recording.
    pub fn new(what: impl Into<String>) -> Self {
        Self { offset: None, what: what.into() }
    }

    /// A problem at byte `offset` of the file.
    pub fn at(offset: u64, what: impl Into<String>) -> Self {
        Self { offset: Some(offset), what: what.into() }
    }
}

impl std::fmt::Display for Problem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.offset {
            Some(offset) => write!(f, "at byte {offset}: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

/// This crate's results.
pub type Result<T, E = Error> = std::result::Result<T, E>;
