//! What can go wrong with recording. Nothing of it reaches the training loop before it asks.

use std::path::PathBuf;

/// Why a recording could not start, or could not be finished.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// One recording runs at a time.
    #[error("a recording is running already: finish it before starting another")]
    AlreadyRecording,
    /// The file cannot be written.
    #[error("cannot write the recording: {source}; path: {}", path.display())]
    Write {
        /// The operating system's reason.
        source: std::io::Error,
        /// The file.
        path: PathBuf,
    },
    /// Somebody else is writing to the file.
    #[error("another process or recording is writing to {}: name another file, or a folder, in which each process has its own", path.display())]
    InUse {
        /// The file.
        path: PathBuf,
    },
    /// The recording could not be encoded or read back.
    #[error(transparent)]
    Snapshot(#[from] highwater_snapshots::Error),
    /// A fault of ours in the collector thread.
    #[error("the recorder's thread failed by a fault of its own; the file is valid up to there")]
    Collector,
    /// The process that began the recording has forked, and this is its child.
    #[error("this recording belongs to the process that began it; a forked child has to begin its own")]
    OfParent,
    /// No thread for the recorder.
    #[error("cannot start the recorder's thread: {0}")]
    Thread(std::io::Error),
    /// An option that cannot be met.
    #[error("{0}")]
    Options(String),
    /// The recorded program failed. The recording up to there was finished all the same.
    #[error("the recorded program failed: {source}{}", file.as_ref().map_or(String::new(), |file| format!("; its recording: {}", file.display())))]
    Body {
        /// The program's own error.
        source: Box<dyn std::error::Error + Send + Sync>,
        /// The finished recording.
        file: Option<PathBuf>,
    },
}

/// This crate's results.
pub type Result<T, E = Error> = std::result::Result<T, E>;
