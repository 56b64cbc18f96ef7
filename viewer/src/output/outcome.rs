//! The result of a command: its exit status, or why it failed.

use std::process::ExitCode;

pub use highwater_app::files::failure::Failure;

/// The result of a command that could do its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Success: status 0.
    Fine,
    /// A budget was exceeded, or what was looked up was not found: status 1.
    Broken,
    /// The recording is inconsistent, or its run failed: status 2.
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
