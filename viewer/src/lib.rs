//! A command line and a desktop app that show where GPU memory goes.
//!
//! Everything shown is computed from an immutable [`Trace`](highwater_snapshots::Trace) by the pure functions of
//! [`highwater_analysis`]; command line and app print the same structs. Modules are declared in layer order: each uses
//! only modules declared above it.

pub mod gpu;
pub mod args;
pub mod output;
pub mod input;
mod python_package;
pub mod browser;
pub mod commands;

use std::ffi::OsString;
use std::io::{IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};
#[cfg(feature = "gui")]
use highwater_app::example::Examples;
use highwater_app::report::wrapped;
use highwater_snapshots::format::Windows;
use highwater_snapshots::shown::{MAX_SHOWN, shown};
use highwater_snapshots::suggest::did_you_mean;

use crate::args::{Arguments, Command};
use crate::commands::next::quoted;
use crate::commands::on_stdout;
use crate::commands::{attach, check, convert, plan, record, render, run, serve, simulate, whatif};
use crate::output::outcome::{Failure, Status};
use crate::output::terminal::columns;

/// Indents the lines of a message after its first.
const CONTINUATION: &str = "  ";

/// Runs the command line `words`, program name first, and returns the exit code.
pub fn run(words: impl IntoIterator<Item = OsString>) -> ExitCode {
    let words: Vec<OsString> = words.into_iter().collect();
    if let Some(text) = late_command(&words) {
        say(&format!("error: {text}"));
        return ExitCode::from(2);
    }
    let arguments = match Arguments::try_parse_from(words) {
        Ok(arguments) => arguments,
        Err(error) => return refuse(&error),
    };
    match execute(arguments) {
        Ok(status) => status.into(),
        Err(failure) => {
            if !failure.is_closed_pipe() {
                say(&format!("error: {failure}"));
            }
            failure.exit_code()
        }
    }
}

fn execute(arguments: Arguments) -> Result<Status, Failure> {
    match arguments.command {
        None => open(&arguments.files, Summary::Whole),
        Some(Command::Info(arguments)) => on_stdout(|page| commands::info(&arguments, page)),
        Some(Command::Peak(arguments)) => on_stdout(|page| commands::peak(&arguments, page)),
        Some(Command::Phases(arguments)) => on_stdout(|page| commands::phases(&arguments, page)),
        Some(Command::Explain(arguments)) => on_stdout(|page| commands::explain(&arguments, page)),
        Some(Command::Plan(arguments)) => on_stdout(|page| plan::run(&arguments, page)),
        Some(Command::Diff(arguments)) => on_stdout(|page| commands::diff(&arguments, page)),
        Some(Command::WhatIf(arguments)) => on_stdout(|page| whatif::run(&arguments, page)),
        Some(Command::Growth(arguments)) => on_stdout(|page| commands::growth(&arguments, page)),
        Some(Command::Oom(arguments)) => on_stdout(|page| commands::oom(&arguments, page)),
        Some(Command::Check(arguments)) => on_stdout(|page| check::run(&arguments, page)),
        Some(Command::Events(arguments)) => on_stdout(|page| commands::events(&arguments, page)),
        Some(Command::Verify(arguments)) => on_stdout(|page| commands::verify(&arguments, page)),
        Some(Command::Convert(arguments)) if arguments.wants_tables() => {
            on_stdout(|page| convert::dataset::run(&arguments, page))
        }
        Some(Command::Convert(arguments)) if arguments.wants_page() => {
            on_stdout(|page| convert::page::convert(&arguments, page))
        }
        Some(Command::Convert(arguments)) => on_stdout(|page| convert::run(&arguments, page)),
        Some(Command::Join(arguments)) => on_stdout(|page| commands::join::run(&arguments, page)),
        Some(Command::Symbolize(arguments)) => on_stdout(|page| commands::symbolize::run(&arguments, page)),
        Some(Command::Render(arguments)) => on_stdout(|page| render::run(&arguments, page)),
        Some(Command::Serve(arguments)) => on_stdout(|page| serve::run(&arguments, page)),
        Some(Command::Completions(arguments)) => on_stdout(|page| {
            // It panics if it cannot write, as when the reader of a pipe has closed it.
            let mut script = Vec::new();
            clap_complete::generate(arguments.shell, &mut Arguments::command(), "highwater", &mut script);
            page.raw().write_all(&script)?;
            Ok(Status::Fine)
        }),
        Some(Command::Run(arguments)) => run::run(&arguments),
        Some(Command::Attach(arguments)) => on_stdout(|page| attach::run(&arguments, page)),
        Some(Command::Simulate(arguments)) => on_stdout(|page| simulate::run(&arguments, page)),
        Some(Command::Record(arguments)) => {
            let status = on_stdout(|page| record::run(&arguments, page))?;
            if let Some(file) = arguments.to_open() {
                let summary = if arguments.json { Summary::None } else { Summary::Peak };
                open(&[file], summary)?;
            }
            Ok(status)
        }
    }
}

/// The summary that is printed if the app cannot be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Summary {
    /// What the file contains, and what is using memory at the peak.
    Whole,
    /// What is using memory at the peak.
    Peak,
    /// Nothing, since standard output is in use.
    None,
}

/// Opens the app, or prints why not and a summary.
fn open(files: &[PathBuf], summary: Summary) -> Result<Status, Failure> {
    // As a shell expands `run.*.snap`.
    let recording = Windows::rotated_of(files);
    let files = recording.as_ref().map_or(files, std::slice::from_ref);
    if let Some(file) = files.iter().find(|file| is_mistyped_command(file)) {
        let commands = Arguments::command();
        let hint = did_you_mean(&file.to_string_lossy(), commands.get_subcommands().map(|command| command.get_name()));
        let text = format!(
            "'{}' is neither a command nor a file{hint}: `highwater --help` lists the commands",
            file.display()
        );
        return Err(Failure::Usage(text));
    }
    let Some(why) = show_app(files)? else {
        return Ok(Status::Fine);
    };
    if files.is_empty() {
        let text = format!("{why}, and no file was given: `highwater --help` lists the commands");
        return Err(Failure::Usage(text));
    }
    say(&format!("{why}: here is a summary instead of the app"));
    match summary {
        Summary::Whole => on_stdout(|page| commands::open::summary::print(files, page)),
        Summary::Peak => on_stdout(|page| commands::open::summary::print_peaks(files, page)),
        Summary::None => Ok(Status::Fine),
    }
}

/// Returns the error if a command comes after a file; `None` if the first word is not a file, or the command is a file
/// too.
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

/// Returns whether `file` is a bare word that names no file.
fn is_mistyped_command(file: &Path) -> bool {
    let is_word =
        file.to_str().is_some_and(|text| text != "-" && text.chars().all(|c| c.is_alphanumeric() || c == '-'));
    is_word && !file.exists()
}

/// Shows the app until it is closed; returns the reason if it cannot be shown.
///
/// # Errors
///
/// Fails if the app does.
#[cfg(feature = "gui")]
fn show_app(files: &[PathBuf]) -> Result<Option<String>, Failure> {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let needs_server = cfg!(all(unix, not(target_os = "macos")));
    if needs_server && !is_set("DISPLAY") && !is_set("WAYLAND_DISPLAY") {
        return Ok(Some("there is no display (neither DISPLAY nor WAYLAND_DISPLAY is set)".to_owned()));
    }
    let examples = Examples { list: record::EXAMPLES, record: record::example, rerun: plan::RERUN };
    let most_resident = input::source::resident_events()?;
    Ok(highwater_app::gui::run(files.to_vec(), examples, most_resident)?
        .map(|why| format!("the app cannot be shown ({why})")))
}

/// Returns that this build has no app.
#[cfg(not(feature = "gui"))]
fn show_app(_files: &[PathBuf]) -> Result<Option<String>, Failure> {
    Ok(Some("this build has no app".to_owned()))
}

/// Prints help or version, or what is wrong with the command line, in two lines.
fn refuse(error: &clap::Error) -> ExitCode {
    if !error.use_stderr() {
        // If the reader has closed the pipe, there is nobody to tell.
        let _ = error.print();
        return ExitCode::SUCCESS;
    }
    let text = error.render().to_string();
    // An unknown option is a mistake, and not meant as a value.
    let is_useful = |line: &&str| {
        !line.is_empty()
            && !line.starts_with("For more information")
            && !line.contains("as a value, use")
            && !is_far_fetched(line, error)
    };
    let mut lines = text.lines().map(str::trim).filter(is_useful);
    let what: Vec<&str> = lines.by_ref().take_while(|line| !line.starts_with("Usage:")).collect();
    say(&what.join(" ").replace(" tip: ", "; tip: "));
    let commands = Arguments::command();
    let command = std::env::args().nth(1).filter(|word| commands.find_subcommand(word).is_some());
    match command {
        Some(command) => say(&format!("Try `highwater {command} --help`.")),
        None => say("Try `highwater --help`, or `highwater COMMAND --help` for its options."),
    }
    ExitCode::from(2)
}

/// Returns whether `line` suggests an option that is not spelt almost as the unknown one.
fn is_far_fetched(line: &str, error: &clap::Error) -> bool {
    use clap::error::{ContextKind, ContextValue};
    let text = |kind: ContextKind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    let (given, suggested) = (text(ContextKind::InvalidArg), text(ContextKind::SuggestedArg));
    let is_near = |(given, known): (&str, &str)| !did_you_mean(given, [known]).is_empty();
    line.contains("a similar argument exists") && !given.zip(suggested).is_some_and(is_near)
}

/// Prints `text` to standard error, wrapped on a terminal. A failure to print cannot be reported.
fn say(text: &str) {
    let mut out = std::io::stderr().lock();
    let width = if out.is_terminal() { columns() } else { usize::MAX };
    for line in text.lines().flat_map(|line| lines_within(line, width)) {
        let _ = writeln!(out, "{}", shown(&line, MAX_SHOWN));
    }
}

/// Splits `line` into lines of at most `width` characters, unless words are longer; those after the first are indented.
fn lines_within(line: &str, width: usize) -> Vec<String> {
    if line.chars().count() <= width {
        return vec![line.to_owned()];
    }
    let mut lines = wrapped(line, width.saturating_sub(CONTINUATION.len()));
    lines.iter_mut().skip(1).for_each(|line| line.insert_str(0, CONTINUATION));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_message_is_wrapped_between_words_and_a_short_one_is_left_as_it_is() {
        assert_eq!(lines_within("  libx11-6  libegl1", 100), ["  libx11-6  libegl1"]);
        let long = "error: unknown scenario 'perpetual-motion'; the scenarios are vit-l-16, tiny-nerf, fcn";
        let lines = lines_within(long, 40);
        assert!(lines.len() == 3 && lines.iter().all(|line| line.chars().count() <= 40), "{lines:?}");
        assert!(lines[1..].iter().all(|line| line.starts_with("  ")), "{lines:?}");
        assert_eq!(lines.iter().map(|line| line.trim_start()).collect::<Vec<_>>().join(" "), long);
    }
}
