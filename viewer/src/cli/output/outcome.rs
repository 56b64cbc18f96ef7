//! How a command ends: its exit status, or why it failed.

use std::process::ExitCode;

pub use highwater_app::files::failure::Failure;

/// How a command that did its work ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// All is well: status 0.
    Fine,
    /// A budget was broken: status 1.
    Broken,
    /// The recording is not sound, or its run went wrong: status 2.
    Unsound,
    /// The status of the program that was run.
    Program(u8),
}

impl From<Status> for ExitCode {
    fn from(status: Status) -> Self {
        match status {
            Status::Fine => Self::SUCCESS,
            Status::Broken => Self::from(1),
            Status::Unsound => Self::from(2),
            Status::Program(code) => Self::from(code),
        }
    }
}
