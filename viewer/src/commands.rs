//! The commands. Each that needs no display reads its file, queries [`highwater_analysis`], and prints one report, as text
//! or as one JSON object.

pub mod next;
pub mod info;
pub mod peak;
pub mod phases;
pub mod explain;
pub mod diff;
pub mod growth;
pub mod oom;
pub mod events;
pub mod verify;
pub mod convert;
pub mod symbolize;
pub mod join;
pub mod whatif;
#[cfg(feature = "engine")]
pub mod record;
#[cfg(not(feature = "engine"))]
#[path = "commands/record_disabled.rs"]
pub mod record;
pub mod run;
pub mod attach;
pub mod simulate;
pub mod plan;
#[cfg(feature = "gui")]
pub mod render;
#[cfg(not(feature = "gui"))]
#[path = "commands/render_disabled.rs"]
pub mod render;
pub mod check;
pub mod serve;
pub mod open;

use std::io::Write as _;

use highwater_snapshots::format::Windows;

use self::diff::DiffReport;
use self::events::EventsListing;
use self::explain::ExplainReport;
use self::growth::GrowthReport;
use self::info::InfoReport;
use self::oom::OomReport;
use self::peak::PeakReport;
use self::phases::PhasesReport;
use self::verify::VerifyReport;
use crate::args::{
    DiffArguments, EventsArguments, ExplainArguments, GrowthArguments, InfoArguments, OomArguments, PeakArguments,
    PhasesArguments, VerifyArguments,
};
use crate::input::recording::{read_any, spinner};
use crate::input::source::{Input, answer_counting, answer_from};
use crate::output::answer::{Report as _, answer};
use crate::output::caveats;
use crate::output::outcome::{Failure, Status};
use crate::output::page::Page;

/// Lets `write` write a page to standard output, buffered and with its width.
pub fn on_stdout(write: impl FnOnce(&mut Page<'_>) -> Result<Status, Failure>) -> Result<Status, Failure> {
    let mut out = std::io::BufWriter::with_capacity(1 << 16, std::io::stdout().lock());
    let status = write(&mut Page::for_stdout(&mut out))?;
    out.flush()?;
    Ok(status)
}

/// `highwater info`.
pub fn info(arguments: &InfoArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    let file = &arguments.source.file;
    if file.is_dir() && Windows::find_rotated(file).is_none() {
        return info::ranks::info(arguments, page);
    }
    answer_counting(file, &arguments.categories, &arguments.blocks.filter.filter, |input| {
        let report = InfoReport::of(input, arguments)?;
        answer(input.facts(), arguments.source.form, page, &report)
    })
}

/// `highwater peak`.
pub fn peak(arguments: &PeakArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    answer_from(&arguments.source.file, &arguments.categories, |input| {
        let report = PeakReport::of(input, arguments)?;
        answer(input.facts(), arguments.source.form, page, &report)
    })
}

/// `highwater phases`.
pub fn phases(arguments: &PhasesArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    let filter = &arguments.blocks.filter.filter;
    answer_counting(&arguments.source.file, &arguments.categories, filter, |input| {
        let report = PhasesReport::of(input, arguments)?;
        answer(input.facts(), arguments.source.form, page, &report)
    })
}

/// `highwater explain`.
pub fn explain(arguments: &ExplainArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    answer_from(&arguments.source.file, &arguments.categories, |input| {
        let report = ExplainReport::of(input, arguments)?;
        answer(input.facts(), arguments.source.form, page, &report)
    })
}

/// `highwater diff`.
pub fn diff(arguments: &DiffArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    if arguments.a.is_dir() || arguments.b.as_ref().is_some_and(|b| b.is_dir()) {
        return diff::ranks::run(arguments, page);
    }
    answer_from(&arguments.a, &arguments.categories, |first| {
        let Some(b) = &arguments.b else { return diff_of([first, first], arguments, page) };
        answer_from(b, &arguments.categories, |second| diff_of([first, second], arguments, page))
    })
}

fn diff_of(inputs: [&Input; 2], arguments: &DiffArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    let report = DiffReport::of(inputs, arguments)?;
    if arguments.form.is_text() {
        let is_one = arguments.b.is_none();
        caveats::lead(inputs[0].facts(), if is_one { "" } else { "A" }, page)?;
        if !is_one {
            caveats::lead(inputs[1].facts(), "B", page)?;
        }
    }
    report.write(arguments.form, page)?;
    Ok(Status::Fine)
}

/// `highwater growth`.
pub fn growth(arguments: &GrowthArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    answer_from(&arguments.source.file, &arguments.categories, |input| {
        let report = GrowthReport::of(input, arguments)?;
        answer(input.facts(), arguments.source.form, page, &report)
    })
}

/// `highwater oom`.
pub fn oom(arguments: &OomArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    answer_from(&arguments.source.file, &arguments.categories, |input| {
        let turning = spinner("replaying");
        let report = OomReport::of(input, arguments);
        turning.finish_and_clear();
        let report = report?;
        answer(input.facts(), arguments.source.form, page, &report)
    })
}

/// `highwater events`.
pub fn events(arguments: &EventsArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    answer_from(&arguments.source.file, &arguments.categories, |input| {
        let listing = EventsListing::of(input, arguments)?;
        // Once events are written, a damaged one ends the list.
        Ok(list(input, &listing, arguments, page))
    })?
}

fn list(
    input: &Input,
    listing: &EventsListing<'_>,
    arguments: &EventsArguments,
    page: &mut Page<'_>,
) -> Result<Status, Failure> {
    if arguments.source.form.json {
        listing.write_json(page)?;
    } else if arguments.source.form.csv {
        listing.write_csv(page)?;
    } else {
        caveats::lead(input.facts(), "", page)?;
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
