//! `highwater FILE…`: opens the app, or prints a summary if it cannot be shown.

mod summary;

use std::path::{Path, PathBuf};

use clap::CommandFactory as _;
#[cfg(feature = "gui")]
use highwater_app::example::Examples;
use highwater_snapshots::format::Windows;
use highwater_snapshots::suggest::did_you_mean;

use super::Arguments;
#[cfg(feature = "gui")]
use super::plan;
use super::record::{self, RecordArguments};
#[cfg(feature = "gui")]
use crate::input::source::resident_events;
use crate::output::message;
use crate::output::outcome::{Failure, Status};
use crate::output::page::Page;

/// The summary that is printed if the app cannot be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Summary {
    /// The contents of the file, and the memory in use at the peak.
    Whole,
    /// The memory in use at the peak.
    Peak,
    /// Nothing, since standard output is in use.
    None,
}

/// Opens the app, or prints why not and a summary.
pub(crate) fn open(files: &[PathBuf], summary: Summary, page: &mut Page<'_>) -> Result<Status, Failure> {
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
        return Err(Failure::Usage(format!("{why}, and no file was given: `highwater --help` lists the commands")));
    }
    message::print(&format!("{why}: here is a summary instead of the app"));
    match summary {
        Summary::Whole => summary::print(files, page),
        Summary::Peak => summary::print_peaks(files, page),
        Summary::None => Ok(Status::Fine),
    }
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
    let most_resident = resident_events()?;
    Ok(highwater_app::gui::run(files.to_vec(), examples, most_resident)?
        .map(|why| format!("the app cannot be shown ({why})")))
}

/// Returns that this build has no app.
#[cfg(not(feature = "gui"))]
fn show_app(_files: &[PathBuf]) -> Result<Option<String>, Failure> {
    Ok(Some("this build has no app".to_owned()))
}

/// Records a built-in training step, and opens the recording if the options ask for it.
///
/// # Errors
///
/// As recording, or the app.
pub fn record(arguments: &RecordArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    let status = record::run(arguments, page)?;
    if let Some(file) = arguments.to_open() {
        page.raw().flush()?;
        open(&[file], if arguments.form.is_text() { Summary::Peak } else { Summary::None }, page)?;
    }
    Ok(status)
}
