//! What can go wrong with recording. Nothing of it reaches the training loop before it asks.

use std::fmt;
use std::path::PathBuf;

/// Why a recording could not start, or could not be finished.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// One recording runs at a time.
    AlreadyRecording,
    /// The file cannot be written.
    Write {
        /// The operating system's reason.
        source: std::io::Error,
        /// The file.
        path: PathBuf,
    },
    /// Somebody else is writing to the file.
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The recording could not be encoded or read back.
    Snapshot(highwater_snapshots::Error),
    /// A fault of ours in the collector thread.
    Collector,
    /// The process that began the recording has forked, and this is its child.
    OfParent,
    /// No thread for the recorder.
    Thread(std::io::Error),
    /// An option that cannot be met.
    Options(String),
    /// The recorded program failed. The recording up to there was finished all the same.
    Body {
        /// The program's own error.
        source: Box<dyn std::error::Error + Send + Sync>,
        /// The finished recording.
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
            Self::Collector => {
                f.write_str("internal error in the recorder's thread (please report it); the file is valid up to there")
            }
            Self::OfParent => {
                f.write_str("this recording belongs to the process that began it; a forked child has to begin its own")
            }
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

/// This crate's results.
pub type Result<T, E = Error> = std::result::Result<T, E>;
