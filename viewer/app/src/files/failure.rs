//! Why a command or the app could not do its work.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Why a command could not do its work: what, where, and what to do. All give status 2, but for a user who stopped it,
/// which gives 128 and the signal's number as shells do, and for a reader that went away, which is none of our business
/// and gives 0.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// A recording could not be read.
    #[error("{}", unreadable(file, source))]
    Read {
        /// The file as it was named.
        file: PathBuf,
        /// Why.
        source: highwater_snapshots::Error,
    },
    /// A file was opened, but no event of it could be read.
    #[error("{}: no event could be read: {why}; record again, or see `highwater verify`", file.display())]
    Unreadable {
        /// The file as it was named.
        file: PathBuf,
        /// Why.
        why: String,
    },
    /// The options ask for something that the recording does not have, or that does not go together.
    #[error("{0}")]
    Usage(String),
    /// A file could not be written; nothing of it is left.
    #[error("{0}")]
    Write(String),
    /// The user stopped it; nothing is left of what was being written.
    #[error("stopped: {} was not written", file.display())]
    Stopped {
        /// The file being written.
        file: PathBuf,
        /// The number of the signal.
        signal: u8,
    },
    /// Standard output takes no more.
    #[error("cannot write the answer: {0}")]
    Output(#[from] io::Error),
    /// A run that was to be recorded could not be.
    #[error("{0}")]
    Record(String),
    /// The app was shown, and then failed.
    #[error("the app failed: {0}; every command works without it, see `highwater --help`")]
    App(String),
}

impl Failure {
    /// The status to end with.
    pub fn exit_code(&self) -> ExitCode {
        match self {
            _ if self.is_closed_pipe() => ExitCode::SUCCESS,
            Self::Stopped { signal, .. } => ExitCode::from(128_u8.saturating_add(*signal)),
            _ => ExitCode::from(2),
        }
    }

    /// Whether the reader of the output closed it, as `head` does.
    pub fn is_closed_pipe(&self) -> bool {
        matches!(self, Self::Output(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::Output(error.into())
    }
}

/// The reader's reason, with the file's name where it does not name it.
fn unreadable(file: &Path, source: &highwater_snapshots::Error) -> String {
    match source {
        highwater_snapshots::Error::Io { .. } => source.to_string(),
        _ => format!("{}: {source}", file.display()),
    }
}
