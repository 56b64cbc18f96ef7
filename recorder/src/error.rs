//! Errors of recordings, which a program gets only when it starts, finishes or dumps one.

use std::fmt;
use std::path::PathBuf;

/// The error type of recordings.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Another recording is running. There can be only one at a time.
    AlreadyRecording,
    /// The file cannot be written.
    Write {
        /// Error from the operating system.
        source: std::io::Error,
        /// Path of the file.
        path: PathBuf,
    },
    /// Another process or recording is writing to the file.
    InUse {
        /// Path of the file.
        path: PathBuf,
    },
    /// The recording could not be encoded or read back.
    Snapshot(highwater_snapshots::Error),
    /// An internal error in the collector thread.
    Collector,
    /// The recording belongs to the parent process, and this is a forked child.
    OfParent,
    /// A thread of the recorder could not be started.
    Thread(std::io::Error),
    /// An invalid option, or a call that the recording's options do not allow.
    Options(String),
    /// The recorded program failed. The recording up to that point was finished.
    Body {
        /// Error returned by the program.
        source: Box<dyn std::error::Error + Send + Sync>,
        /// Path of the finished recording; `None` if there is no file.
        file: Option<PathBuf>,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AlreadyRecording => f.write_str("a recording is running already: finish it before starting another"),
            Self::Write { source, path } => {
                write!(f, "cannot write the recording: {source}; path: {}", path.display())
            }
            Self::InUse { path } => write!(
                f,
                "another process or recording is writing to {}: name another file, or a folder, in which each process \
                 has its own",
                path.display()
            ),
            Self::Snapshot(error) => error.fmt(f),
            Self::Collector => f.write_str(
                "internal error in the recorder's thread (please report it); the file is valid up to that point",
            ),
            Self::OfParent => f.write_str(
                "this recording belongs to the process that started it; start another one in the forked child",
            ),
            Self::Thread(source) => write!(f, "cannot start the recorder's thread: {source}"),
            Self::Options(what) => f.write_str(what),
            Self::Body { source, file } => {
                write!(f, "the recorded program failed: {source}")?;
                file.as_ref().map_or(Ok(()), |file| write!(f, "; its recording: {}", file.display()))
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Write { source, .. } | Self::Thread(source) => Some(source),
            Self::Snapshot(error) => error.source(),
            Self::Body { source, .. } => Some(source.as_ref()),
            _ => None,
        }
    }
}

impl From<highwater_snapshots::Error> for Error {
    fn from(error: highwater_snapshots::Error) -> Self {
        Self::Snapshot(error)
    }
}

/// The result type of this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;
