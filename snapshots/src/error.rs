//! Errors that prevent reading a recording, and problems that do not.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::units::format_count;

/// An error in reading or writing a file: what failed, where, and what to do.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A call of the operating system failed.
    Io {
        /// The operation that failed, such as "open" or "write".
        doing: &'static str,
        /// The operating system's error.
        source: std::io::Error,
        /// The path of the file.
        path: PathBuf,
    },
    /// The file is empty.
    Empty,
    /// The file is not a recording.
    NotRecording {
        /// The kind or content of the file, such as `a PNG picture` or `JSON with the keys 'a', 'b'`.
        found: String,
        /// Advice on how to get a recording.
        advice: &'static str,
    },
    /// A pickle with a protocol that memory snapshots do not use.
    Protocol {
        /// The protocol of the pickle.
        found: u8,
    },
    /// The file was written by a newer program than this one.
    Version {
        /// The file's major version.
        found: u16,
        /// The newest version that this program reads.
        supported: u16,
    },
    /// The file's bytes are inconsistent.
    Damaged {
        /// Offset in the file.
        offset: u64,
        /// A description of the inconsistency.
        what: String,
    },
    /// A file with annotations, or with attributes other than shapes, which cannot be read as one of several files of a
    /// recording.
    NotAPart {
        /// Name of the file.
        name: String,
    },
    /// The file contains code, which this crate never runs.
    Refused {
        /// Offset in the file.
        offset: u64,
        /// The refused code.
        what: String,
    },
    /// A part of the recording could not be encoded.
    Encode {
        /// The part, and the encoder's reason.
        what: String,
    },
    /// The recording is too long for an algorithm that needs all events in memory.
    TooLong {
        /// The number of events.
        events: u64,
    },
    /// The caller cancelled reading.
    Cancelled,
    /// A line of the text notation is invalid.
    Text {
        /// The line number, from 1.
        line: usize,
        /// A description of the error in the line.
        what: String,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io { doing, path, source } => write!(f, "{}: cannot {doing}: {source}", path.display()),
            Self::Empty => f.write_str(
                "the file is empty: the recording may not have been finished, or the disk was full; record again",
            ),
            Self::NotRecording { found, advice } => write!(f, "not a recording: {found}; {advice}"),
            Self::Protocol { found } => write!(
                f,
                "this is a Python pickle of protocol {found}, but only protocols 2 to 5 are supported: save it again \
                 with `pickle.dump(snapshot, file, protocol=4)`"
            ),
            Self::Version { found, supported } => write!(
                f,
                "this .snap file has format version {found}; this program reads up to version {supported}: install a \
                 newer highwater"
            ),
            Self::Damaged { offset, what } => write!(f, "damaged at byte {offset}: {what}"),
            Self::Refused { offset, what } => write!(
                f,
                "refused at byte {offset}: {what}; nothing was run. A memory snapshot written by \
                 torch.cuda.memory._dump_snapshot contains only plain values: this may be another kind of file, such \
                 as a checkpoint"
            ),
            Self::Encode { what } => write!(f, "cannot write the recording: {what}"),
            Self::NotAPart { name } => write!(
                f,
                "{name} has annotations, as in files of PyTorch programs, so it is a separate recording, not a part \
                 of one; open it by its name"
            ),
            Self::TooLong { events } => write!(
                f,
                "the recording is too long, with {} events: cut out a part with `highwater convert FILE part.snap \
                 --events FROM..TO`",
                format_count(*events)
            ),
            Self::Cancelled => f.write_str("reading was cancelled"),
            Self::Text { line, what } => write!(f, "line {line}: {what}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// The path shown for inputs that have none, such as standard input.
const NO_PATH: &str = "the input";

impl Error {
    /// Returns the cause of a failed read: a wrapped error of this crate, or the operating system's error.
    pub fn from_input(source: std::io::Error) -> Self {
        Self::Io { doing: "read the recording", source, path: NO_PATH.into() }.unwrapped()
    }

    /// Returns the error of this crate inside an I/O error, if there is one.
    pub fn unwrapped(self) -> Self {
        match self {
            Self::Io { doing, source, path } => match source.downcast::<Self>() {
                Ok(ours) => ours,
                Err(source) => Self::Io { doing, source, path },
            },
            other => other,
        }
    }

    /// Returns the error with the name of its file, for a recording of several files; errors that cannot have a name
    /// are unchanged.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        match self {
            Self::Damaged { offset, what } => Self::Damaged { offset, what: format!("{name}: {what}") },
            Self::NotAPart { .. } => Self::NotAPart { name: name.to_owned() },
            other => other,
        }
    }

    /// Returns the error with `path` as its file, if it has no path.
    pub fn with_path(self, path: &Path) -> Self {
        match self {
            Self::Io { doing, source, path: none } if none.as_os_str() == NO_PATH => {
                Self::Io { doing, source, path: path.to_owned() }
            }
            other => other,
        }
    }
}

/// A problem in a recording that could nevertheless be read.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Problem {
    /// Byte offset in the file, if the problem refers to one.
    pub offset: Option<u64>,
    /// The problem, as a sentence.
    pub what: String,
    /// Whether only the index or a summary is missing or damaged, so that the recording was read in full.
    #[serde(skip)]
    pub is_index_only: bool,
    /// Whether totals are inconsistent, because blocks do not fit into the segments, or sums in the file are wrong.
    /// Such problems are not stored in files, but found when a trace is built.
    #[serde(skip)]
    pub is_of_sums: bool,
    /// Whether the file ends within a section, which is possible while the file is being written.
    #[serde(skip)]
    pub is_cut: bool,
}

impl Problem {
    /// Creates a problem that concerns the whole recording.
    pub fn new(what: impl Into<String>) -> Self {
        Self { offset: None, what: what.into(), is_index_only: false, is_of_sums: false, is_cut: false }
    }

    /// Creates a problem at byte `offset` of the file.
    pub fn at(offset: u64, what: impl Into<String>) -> Self {
        Self { offset: Some(offset), ..Self::new(what) }
    }

    /// A problem of inconsistent totals.
    pub fn of_sums(what: impl Into<String>) -> Self {
        Self { is_of_sums: true, ..Self::new(what) }
    }

    /// Creates the problem that the index at the end of a file is missing or damaged at byte `offset`.
    pub(crate) fn of_index(offset: u64) -> Self {
        let what = "only the index at the end of the file is missing or damaged";
        Self { is_index_only: true, ..Self::at(offset, what) }
    }

    /// Creates the problem that a summary or a checkpoint of a file is damaged at byte `offset`; the events are intact.
    pub(crate) fn of_summary(offset: u64) -> Self {
        let what = "a summary or checkpoint of the events is damaged; the events are intact";
        Self { is_index_only: true, ..Self::at(offset, what) }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.offset {
            Some(offset) => write!(f, "at byte {offset}: {}", self.what),
            None => f.write_str(&self.what),
        }
    }
}

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
