//! `highwater convert` to a page for browsers.

use highwater_app::figures::moment::count_of;
use highwater_app::files::destination::{io_error, same, write_whole};
use highwater_snapshots::Trace;
use highwater_snapshots::format::write_trace;
use highwater_snapshots::units::format_bytes;
use serde::Serialize;

use super::{name_of, whole_page};
use crate::args::ConvertArguments;
use crate::cli::convert::out_is_missing;
use crate::cli::convert::read_trimmed;
use crate::cli::output::caveats;
use crate::cli::output::outcome::{Failure, Status};
use crate::cli::output::page::Page;

/// The object that `convert --json` prints.
#[derive(Debug, Serialize)]
struct PageFigures<'a> {
    file: String,
    events: u64,
    bytes: u64,
    lost: &'a [String],
}

/// Reads one recording, or two to compare, writes a page with them, and prints the result.
///
/// # Errors
///
/// Fails if a recording cannot be read or the page cannot be written, and in a build without the app for browsers.
pub fn convert(arguments: &ConvertArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    let (files, out) = arguments.files_and_out().ok_or_else(out_is_missing)?;
    if files.len() > 2 {
        let text = "a page shows one recording, or compares two; serve shows several: `highwater serve FILE…`";
        return Err(Failure::Usage(text.to_owned()));
    }
    if let Some(file) = files.iter().find(|file| same(file, out)) {
        return Err(Failure::Usage(format!("{} would be replaced by the page; name another OUT", file.display())));
    }
    if arguments.table.is_some() {
        let text = "--table is for an OUT with the ending .parquet";
        return Err(Failure::Usage(text.to_owned()));
    }
    super::module()?;
    let (mut recordings, mut traces): (Vec<(String, Vec<u8>)>, Vec<Trace>) = Default::default();
    for file in files {
        let trace = read_trimmed(file, arguments)?.trace;
        let content = write_trace(Vec::new(), &trace).map_err(|source| Failure::Read { file: file.clone(), source })?;
        let names: Vec<&str> = recordings.iter().map(|(name, _)| name.as_str()).collect();
        recordings.push((name_of(file, &names), content));
        traces.push(trace);
    }
    let html = whole_page(&recordings)?;
    let ((), bytes) = write_whole(out, |file| file.write_all(html.as_bytes()).map_err(io_error))?;
    let events: u64 = traces.iter().map(|trace| trace.events.len() as u64).sum();
    if arguments.json {
        page.json(&PageFigures { file: out.display().to_string(), events, bytes, lost: &[] })?;
        return Ok(Status::Fine);
    }
    for trace in &traces {
        caveats::lead(trace, "", page)?;
    }
    let (events, size) = (count_of(events, "event"), format_bytes(bytes));
    page.headline(&format!("Wrote {} ({size}): {events}.", out.display()))?;
    page.gap()?;
    let what = if traces.len() == 1 { "the recording" } else { "both recordings" };
    page.line(&format!("It contains the app and {what}, and opens in a browser without a server or network."))?;
    for trace in &traces {
        caveats::print(trace, page)?;
    }
    Ok(Status::Fine)
}
