//! The commands that need no display. Each reads its file, queries [`highwater_analysis`], and prints one report, as
//! text or as one JSON object.

pub mod output;
pub mod input;
pub mod peaks;
pub mod info;
mod pools;
pub mod ranks;
pub mod peak;
pub mod phases;
mod idle;
pub mod explain;
pub mod diff_blocks;
mod diff_figures;
pub mod diff;
pub mod ranks_diff;
mod growth_figures;
mod growth_query;
pub mod growth;
pub mod oom;
pub mod budgets;
mod check_advice;
mod check_figures;
pub mod check_input;
mod check_doubt;
pub mod check;
pub mod events;
pub mod verify;
pub mod convert;
pub mod symbolize;
pub mod join;
pub mod whatif;
mod plan_figures;
pub mod plan;
pub mod summary;

use std::io::Write as _;

use highwater_snapshots::format::Windows;

use self::diff::DiffReport;
use self::events::EventsListing;
use self::growth::GrowthReport;
use self::info::InfoReport;
use self::input::categories::read_with;
use self::input::long::open_long;
use self::input::recording::{keep_only, read_any};
use self::output::answer::answer;
use self::output::caveats;
use self::output::outcome::{Failure, Status};
use self::output::page::Page;
use self::peak::PeakReport;
use self::phases::PhasesReport;
use self::verify::VerifyReport;
use crate::args::{
    DiffArguments, EventsArguments, GrowthArguments, InfoArguments, PeakArguments, PhasesArguments, VerifyArguments,
};

/// Lets `write` write a page to standard output, buffered and with its width.
pub fn on_stdout(write: impl FnOnce(&mut Page<'_>) -> Result<Status, Failure>) -> Result<Status, Failure> {
    let mut out = std::io::BufWriter::with_capacity(1 << 16, std::io::stdout().lock());
    let status = write(&mut Page::for_stdout(&mut out))?;
    out.flush()?;
    Ok(status)
}

/// `highwater info`.
pub fn info(arguments: &InfoArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    if arguments.source.file.is_dir() && Windows::find_rotated(&arguments.source.file).is_none() {
        return ranks::info(arguments, page);
    }
    let file = &arguments.source.file;
    let is_whole = arguments.blocks.filter.filter.is_empty();
    if let Some(windows) = open_long(file, &arguments.categories)?.filter(|_| is_whole)
        && let Some(found) = InfoReport::find(&windows, arguments)?
    {
        let report = InfoReport::of_found(&found, arguments);
        return answer(&found.window, arguments.source.json, page, || report.figures(), |page| report.print(page));
    }
    let mut recording = read_with(file, &arguments.categories)?;
    keep_only(&mut recording.trace, &arguments.blocks.filter.filter);
    let report = InfoReport::of(&recording, arguments)?;
    answer(&recording.trace, arguments.source.json, page, || report.figures(), |page| report.print(page))
}

/// `highwater peak`.
pub fn peak(arguments: &PeakArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    if let Some(windows) = open_long(&arguments.source.file, &arguments.categories)?
        && let Some(found) = PeakReport::find(&windows, arguments)?
    {
        let report = PeakReport::of_found(&found, arguments);
        return answer(&found.at.window, arguments.source.json, page, || report.figures(), |page| report.print(page));
    }
    let recording = read_with(&arguments.source.file, &arguments.categories)?;
    let report = PeakReport::of(&recording.trace, arguments)?;
    answer(&recording.trace, arguments.source.json, page, || report.figures(), |page| report.print(page))
}

/// `highwater phases`.
pub fn phases(arguments: &PhasesArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    if let Some(windows) = open_long(&arguments.source.file, &arguments.categories)?
        && let Some(found) = PhasesReport::find(&windows, arguments)?
    {
        let (report, trace) = (PhasesReport::of_found(&found, arguments), &found.peak.window);
        return answer(trace, arguments.source.json, page, || report.figures(), |page| report.print(page));
    }
    let mut recording = read_with(&arguments.source.file, &arguments.categories)?;
    keep_only(&mut recording.trace, &arguments.blocks.filter.filter);
    let report = PhasesReport::of(&recording.trace, arguments)?;
    answer(&recording.trace, arguments.source.json, page, || report.figures(), |page| report.print(page))
}

/// `highwater diff`.
pub fn diff(arguments: &DiffArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    if arguments.a.is_dir() || arguments.b.as_ref().is_some_and(|b| b.is_dir()) {
        return ranks_diff::run(arguments, page);
    }
    let first = read_with(&arguments.a, &arguments.categories)?;
    let second = arguments.b.as_ref().map(|file| read_with(file, &arguments.categories)).transpose()?;
    let traces = [&first.trace, second.as_ref().map_or(&first.trace, |recording| &recording.trace)];
    let report = DiffReport::of(traces, arguments)?;
    if arguments.json {
        page.json(&report.figures())?;
    } else {
        match &second {
            Some(second) => {
                caveats::lead(&first.trace, "A", page)?;
                caveats::lead(&second.trace, "B", page)?;
            }
            None => caveats::lead(&first.trace, "", page)?,
        }
        report.print(page)?;
    }
    Ok(Status::Fine)
}

/// `highwater growth`.
pub fn growth(arguments: &GrowthArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    if let Some(windows) = open_long(&arguments.source.file, &arguments.categories)?
        && let Some(found) = GrowthReport::find(&windows, arguments)?
    {
        let report = GrowthReport::of_found(&found, arguments)?;
        return answer(&found.window, arguments.source.json, page, || report.figures(), |page| report.print(page));
    }
    let recording = read_with(&arguments.source.file, &arguments.categories)?;
    let report = GrowthReport::of(&recording.trace, arguments)?;
    answer(&recording.trace, arguments.source.json, page, || report.figures(), |page| report.print(page))
}

/// `highwater events`.
pub fn events(arguments: &EventsArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    let file = &arguments.source.file;
    if let Some(windows) = open_long(file, &arguments.categories)?
        && let Some(first) = EventsListing::first(&windows, arguments)?
    {
        return list(&EventsListing::in_parts(&windows, &first, arguments)?, arguments, page);
    }
    let mut recording = read_with(file, &arguments.categories)?;
    let listing = EventsListing::of(&mut recording.trace, arguments)?;
    list(&listing, arguments, page)
}

fn list(listing: &EventsListing<'_>, arguments: &EventsArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    if arguments.source.json {
        listing.write_json(page)?;
    } else {
        caveats::lead(listing.trace(), "", page)?;
        listing.print(page)?;
    }
    Ok(Status::Fine)
}

/// `highwater verify`.
pub fn verify(arguments: &VerifyArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    let file = &arguments.source.file;
    let report = match read_any(file) {
        Ok(recording) => VerifyReport::of(&recording, arguments)?,
        Err(failure) => {
            // With --json, an unreadable file is reported as JSON too.
            if let (Failure::Read { source, .. }, true) = (&failure, arguments.source.json) {
                page.json(&VerifyReport::of_unreadable(source))?;
            }
            return Err(failure);
        }
    };
    if arguments.source.json {
        page.json(&report)?;
    } else {
        report.print(file, page)?;
    }
    Ok(report.status())
}
