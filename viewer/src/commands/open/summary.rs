//! The summary that is printed if the app cannot be shown.

use std::path::{Path, PathBuf};

use crate::args::{CategoryChoice, arguments_of_file};
use crate::commands::info::InfoReport;
use crate::commands::info::ranks;
use crate::commands::peak::PeakReport;
use crate::input::source::Input;
use crate::output::answer::Report as _;
use crate::output::caveats;
use crate::output::outcome::{Failure, Status};
use crate::output::page::Page;

/// Prints the reports of `info` and `peak` for each file.
pub(crate) fn print(files: &[PathBuf], page: &mut Page<'_>) -> Result<Status, Failure> {
    each(files, page, |file, input, page| {
        InfoReport::of(input, &arguments_of_file(file))?.print_facts(page)?;
        page.gap()?;
        print_peak(file, input, page)
    })
}

/// Prints the report of `peak` for each file.
pub(crate) fn print_peaks(files: &[PathBuf], page: &mut Page<'_>) -> Result<Status, Failure> {
    each(files, page, print_peak)
}

fn each(
    files: &[PathBuf],
    page: &mut Page<'_>,
    print: impl Fn(&Path, &Input, &mut Page<'_>) -> Result<(), Failure>,
) -> Result<Status, Failure> {
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
        print(file, &input, page)?;
    }
    Ok(Status::Fine)
}

fn print_peak(file: &Path, input: &Input, page: &mut Page<'_>) -> Result<(), Failure> {
    Ok(PeakReport::of(input, &arguments_of_file(file))?.print(page)?)
}
