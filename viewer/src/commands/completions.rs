//! `highwater completions`: prints the completions of commands and options for a shell.

use clap::{Args, CommandFactory as _};
use clap_complete::Shell;

use super::Arguments;
use crate::output::{Failure, Page, Status};

/// Arguments of `highwater completions`.
#[derive(Clone, Copy, Debug, Args)]
#[command(after_help = "The shell must load the output: highwater completions bash > \
                        ~/.local/share/bash-completion/completions/highwater")]
pub struct CompletionsArguments {
    /// The shell
    pub shell: Shell,
}

pub(crate) fn run(arguments: &CompletionsArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    // `generate` panics if it cannot write, as when the reader of a pipe has closed it.
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "highwater", &mut script);
    page.raw().write_all(&script)?;
    Ok(Status::Fine)
}
