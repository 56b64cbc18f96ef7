//! Prints the report on a recording as text, as a JSON object, or as the CSV of its table.

use std::io;
use std::path::Path;
use std::process::ExitCode;

use highwater_app::report::{Facts, Table};
use highwater_snapshots::{Error, Trace};

use crate::args::Form;
use crate::output::caveats;
use crate::output::page::Page;

/// The report of a command, which can be printed as text, JSON or CSV.
pub trait Report {
    /// Returns the facts of the JSON object.
    fn facts(&self) -> Facts<'_>;

    /// Returns the main table, which has no columns if the report has no table.
    fn table(&self) -> Table<'_> {
        Table::new(0, [])
    }

    /// Prints the report as text.
    fn print(&self, page: &mut Page<'_>) -> io::Result<()>;

    /// Prints the report in a format.
    ///
    /// # Errors
    /// Fails if the page cannot be written.
    fn write(&self, form: Form, page: &mut Page<'_>) -> Result<(), Failure> {
        if form.json {
            return Ok(page.json(self.facts())?);
        }
        if form.csv {
            return Ok(self.table().write_csv(page.raw())?);
        }
        page.keep(|| self.facts());
        Ok(self.print(page)?)
    }
}

/// Prints the `report` on `trace` in a format; text is preceded by warnings about incomplete data.
///
/// # Errors
/// Fails if standard output cannot be written.
pub(crate) fn answer(trace: &Trace, form: Form, page: &mut Page<'_>, report: &impl Report) -> Result<Status, Failure> {
    if form.is_text() {
        caveats::lead(trace, "", page)?;
    }
    report.write(form, page)?;
    Ok(Status::Fine)
}

pub use highwater_app::files::failure::Failure;

/// Adds the subject of an error to its text, such as the side A or B, or an option, if its text permits.
pub(crate) fn about(subject: &str, failure: Failure) -> Failure {
    match failure {
        Failure::Usage(text) => Failure::Usage(format!("{subject}: {text}")),
        other => other,
    }
}

pub(crate) fn unreadable(path: &Path, source: io::Error) -> Failure {
    let source = Error::Io { doing: "read", source, path: path.to_owned() };
    Failure::Read { file: path.to_owned(), source }
}

/// The result of a command that did not fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Success. The exit status is 0.
    Fine,
    /// A budget was exceeded or cannot be confirmed, something does not fit, or nothing was found. The exit status is
    /// 1.
    Broken,
    /// The recording is inconsistent or could not be read in full, its run failed, or the result is unknown. The exit
    /// status is 2.
    Unsound,
    /// The exit status of the program that was run.
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
