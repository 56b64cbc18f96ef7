//! A command line and a desktop app that show where GPU memory goes.
//!
//! Everything shown is computed from an immutable [`Trace`](highwater_snapshots::Trace) by the pure functions of
//! [`highwater_analysis`]; command line and app print the same structs. Modules are declared in layer order: each uses
//! only modules declared above it.

#[cfg_attr(not(any(feature = "engine", test)), expect(dead_code, reason = "only runs of a plan estimate times"))]
mod gpu;
mod args;
mod output;
mod input;
mod embedded_files;
mod python_package;
mod browser;
mod commands;

pub use args::Form;
pub use commands::check::budgets::Budgets;
pub use commands::check::report::CheckReport;
pub use commands::diff::DiffReport;
pub use commands::events::EventsListing;
pub use commands::explain::ExplainReport;
pub use commands::growth::GrowthReport;
pub use commands::info::InfoReport;
pub use commands::oom::OomReport;
pub use commands::peak::PeakReport;
pub use commands::phases::PhasesReport;
pub use commands::verify::VerifyReport;
pub use commands::{Arguments, Command, plan, record, top, whatif};
pub use input::source::Input;
pub use output::answer::{Failure, Report, Status};
pub use output::page::{Page, versioned};

use std::ffi::OsString;
use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};

use crate::commands::next_command::quoted;
use crate::commands::without_command::{Summary, open};
use crate::output::{message, usage_error};

/// Runs the command line `words`, which start with the program's name, and returns the exit code.
pub fn run(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let words: Vec<OsString> = words.into_iter().collect();
    if let Some(text) = late_command(&words) {
        message::print(&format!("error: {text}"));
        return ExitCode::from(2);
    }
    let arguments = match Arguments::try_parse_from(words) {
        Ok(arguments) => arguments,
        Err(error) => return refuse(&error),
    };
    match execute(&arguments) {
        Ok(status) => status.into(),
        Err(failure) => {
            if !failure.is_closed_pipe() {
                message::print(&format!("error: {failure}"));
            }
            failure.exit_code()
        }
    }
}

fn execute(arguments: &Arguments) -> Result<Status, Failure> {
    let mut out = io::BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let page = &mut Page::for_stdout(&mut out);
    let status = match &arguments.command {
        None => open(&arguments.files, Summary::Whole, page),
        Some(command) => command.run(page),
    }?;
    out.flush()?;
    Ok(status)
}

/// Returns the error for a command after a file; `None` if the first word is not a file, or the command is a file too.
fn late_command(words: &[OsString]) -> Option<String> {
    let commands = Arguments::command();
    let is_command = |word: &OsString| {
        let is_name = word.to_str().is_some_and(|word| commands.find_subcommand(word).is_some());
        is_name && !Path::new(word).exists()
    };
    let (file, rest) = words.get(1..)?.split_first()?;
    if is_command(file) || file == "help" || file.to_string_lossy().starts_with('-') {
        return None;
    }
    let at = rest.iter().position(is_command)?;
    let before = std::iter::once(file).chain(&rest[..at]);
    let in_order = std::iter::once(&rest[at]).chain(before).chain(&rest[at + 1..]);
    let in_order: Vec<String> = in_order.map(|word| quoted(&word.to_string_lossy())).collect();
    Some(format!("commands come first: `highwater {}`", in_order.join(" ")))
}

/// Prints help or version, or the error in the command line in two lines.
fn refuse(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // If the reader has closed the pipe, the failure cannot be reported.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    message::print(&usage_error(error));
    let commands = Arguments::command();
    let command = std::env::args().nth(1).filter(|word| commands.find_subcommand(word).is_some());
    match command {
        Some(command) => message::print(&format!("Try `highwater {command} --help`.")),
        None => message::print("Try `highwater --help`, or `highwater COMMAND --help` for its options."),
    }
    ExitCode::from(2)
}
