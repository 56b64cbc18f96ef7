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
    /// The recording could not be encoded or read back.
    #[error(transparent)]
    Snapshot(#[from] highwater_snapshots::Error),
    /// A fault of ours in the writer thread.
    #[error("the writer thread failed by a fault of its own; the file is valid up to there")]
    Writer,
    /// No thread for the writer.
    #[error("cannot start the writer thread: {0}")]
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
