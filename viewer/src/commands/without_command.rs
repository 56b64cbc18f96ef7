//! `highwater FILE…`: opens the app, or prints a summary if it cannot be shown.

use std::path::{Path, PathBuf};

use clap::CommandFactory as _;
use highwater_snapshots::format::Windows;
use highwater_snapshots::suggest::did_you_mean;

use super::Arguments;
use super::record::{self, RecordArguments};
use crate::args::{CategoryChoice, arguments_of_file};
use crate::commands::info::{InfoReport, ranks};
use crate::commands::peak::PeakReport;
use crate::input::Input;
use crate::output::{Failure, Page, Report as _, Status, caveats, message};

#[cfg(feature = "gui")]
use super::plan;
#[cfg(feature = "gui")]
use crate::input::source::resident_events;
#[cfg(feature = "gui")]
use highwater_app::example::Examples;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Summary {
    /// The contents of the file, and the memory in use at the peak.
    Whole,
    /// The memory in use at the peak.
    Peak,
    /// Nothing, since standard output is in use.
    None,
}

/// Opens the app, or prints the reason it cannot be shown and a summary.
pub(crate) fn open(files: &[PathBuf], summary: Summary, page: &mut Page<'_>) -> Result<Status, Failure> {
    // A shell expands `run.*.snap` to the files of a rotation.
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
        return Err(Failure::Usage(format!("{why}, and no file was given: `highwater --help` lists the commands")));
    }
    message::print(&format!("{why}: here is a summary instead of the app"));
    if summary == Summary::None { Ok(Status::Fine) } else { print(files, summary, page) }
}

/// Returns whether `file` looks like a mistyped command, which is a plain word that does not name a file.
fn is_mistyped_command(file: &Path) -> bool {
    let is_word =
        file.to_str().is_some_and(|text| text != "-" && text.chars().all(|c| c.is_alphanumeric() || c == '-'));
    is_word && !file.exists()
}

/// Shows the app until it is closed. Returns the reason if the app cannot be shown.
///
/// # Errors
/// Fails if the app fails.
#[cfg(feature = "gui")]
fn show_app(files: &[PathBuf]) -> Result<Option<String>, Failure> {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let needs_server = cfg!(all(unix, not(target_os = "macos")));
    if needs_server && !is_set("DISPLAY") && !is_set("WAYLAND_DISPLAY") {
        return Ok(Some("there is no display (neither DISPLAY nor WAYLAND_DISPLAY is set)".to_owned()));
    }
    let examples = Examples { list: record::EXAMPLES, record: record::example, rerun: plan::RERUN };
    let most_resident = resident_events()?;
    Ok(highwater_app::gui::run(files.to_vec(), examples, most_resident)?
        .map(|why| format!("the app cannot be shown ({why})")))
}

/// Returns the reason: this build does not include the app.
#[cfg(not(feature = "gui"))]
fn show_app(_files: &[PathBuf]) -> Result<Option<String>, Failure> {
    Ok(Some("this build has no app".to_owned()))
}

/// Records a built-in training step, and opens the recording if requested.
///
/// # Errors
/// Fails if the recording or the app fails.
pub(crate) fn record(arguments: &RecordArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    let status = record::run(arguments, page)?;
    if let Some(file) = arguments.to_open() {
        page.raw().flush()?;
        open(&[file], if arguments.form.is_text() { Summary::Peak } else { Summary::None }, page)?;
    }
    Ok(status)
}

/// Prints the report of `peak` for each file, after that of `info` in a whole summary; for a folder, the report on its
/// ranks.
fn print(files: &[PathBuf], summary: Summary, page: &mut Page<'_>) -> Result<Status, Failure> {
    for (position, file) in files.iter().enumerate() {
        if position > 0 {
            page.gap()?;
        }
        if file.is_dir() {
            // With many ranks, the peak of one is not informative.
            ranks::info(&arguments_of_file(file), page)?;
            continue;
        }
        let input = Input::open(file, &CategoryChoice::default())?;
        caveats::lead(input.facts(), "", page)?;
        if summary == Summary::Whole {
            InfoReport::of(&input, &arguments_of_file(file))?.print_facts(page)?;
            page.gap()?;
        }
        PeakReport::of(&input, &arguments_of_file(file))?.print(page)?;
    }
    Ok(Status::Fine)
}
