//! Failures of a command or of the app.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// A failure of a command, with a message that states the problem, its location and a remedy. The exit status is 2; 128
/// plus the signal number, as in shells, if the user stopped the program; and 0 if the reader of the output closed it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// A recording could not be read.
    #[error("{}", unreadable(file, source))]
    Read {
        /// The path as given.
        file: PathBuf,
        /// The reason the file could not be read.
        source: highwater_snapshots::Error,
    },
    /// A file was opened, but no event of it could be read.
    #[error("{}: no event could be read: {why}; record again, or see `highwater verify`", file.display())]
    Unreadable {
        /// The path as given.
        file: PathBuf,
        /// The reason no event could be read.
        why: String,
    },
    /// The options refer to something that the recording does not have, or contradict each other.
    #[error("{0}")]
    Usage(String),
    /// A file could not be written; no incomplete file is left.
    #[error("{0}")]
    Write(String),
    /// A file could not be written because the original recording is damaged. No incomplete file remains.
    #[error("{0}")]
    Damaged(String),
    /// The user stopped the program; no incomplete file is left.
    #[error("stopped: {} was not written", file.display())]
    Stopped {
        /// The file being written.
        file: PathBuf,
        /// The signal number.
        signal: u8,
    },
    /// The output cannot be written, or the terminal cannot be used.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
    /// A run could not be recorded.
    #[error("{0}")]
    Record(String),
    /// The app failed after it was shown.
    #[error("the app failed: {0}; every command works without it, see `highwater --help`")]
    App(String),
}

impl Failure {
    /// Returns the exit status of a command with this failure.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            _ if self.is_closed_pipe() => ExitCode::SUCCESS,
            Self::Stopped { signal, .. } => ExitCode::from(128_u8.saturating_add(*signal)),
            _ => ExitCode::from(2),
        }
    }

    /// Returns whether the reader of the output closed it, as `head` does.
    pub fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::Output(error.into())
    }
}

/// Returns the error's text, prefixed with the file name if it lacks one.
fn unreadable(file: &Path, source: &highwater_snapshots::Error) -> String {
    match source {
        highwater_snapshots::Error::Io { .. } => source.to_string(),
        _ => format!("{}: {source}", file.display()),
    }
}
