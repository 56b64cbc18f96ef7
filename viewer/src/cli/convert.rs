//! `highwater convert`: writes a recording in another format.

use std::io;
use std::ops::ControlFlow;
use std::path::Path;

use highwater_analysis::Metric;
use highwater_analysis::folded::write_folded;
use highwater_analysis::long::{WindowedMoment, peak};
use highwater_app::figures::moment::count_of;
use highwater_app::files::destination::{Destination, Kind, io_error};
use highwater_app::files::is_stdin;
use highwater_pytorch::export::{Exported, write_json, write_pickle};
use highwater_pytorch::open::{FileFormat, FileKind};
use highwater_snapshots::Trace;
use highwater_snapshots::format::{Progress, Windows, write_trace};
use highwater_snapshots::units::format_bytes;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::args::ConvertArguments;
use crate::cli::input::categories::read_with;
use crate::cli::input::long::{self, open_long, read_part};
use crate::cli::input::recording::{Recording, reading_bar, show, spinner};
use crate::cli::output::caveats;
use crate::cli::output::outcome::{Failure, Status};
use crate::cli::output::page::Page;
use crate::cli::output::shell::{next_command, quoted};
use crate::cli::output::table::{Column, Table};

/// Returns the error if only one path is given.
pub fn out_is_missing() -> Failure {
    Failure::Usage("OUT is missing: name the file to write after the recording".to_owned())
}

/// Reads the recording, writes it in another format, and prints the result.
pub fn run(arguments: &ConvertArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    let (files, out) = arguments.files_and_out().ok_or_else(out_is_missing)?;
    let [input] = files else {
        let text = "only --to parquet (into a folder) and .html (two, to compare) take several recordings; convert one at a time";
        return Err(Failure::Usage(text.to_owned()));
    };
    if arguments.table.is_some() {
        let text = "--table is for an OUT with the ending .parquet";
        return Err(Failure::Usage(text.to_owned()));
    }
    let destination = Destination::new(out, input)?;
    let (recording, (exported, bytes)) = match write_parts(input, &destination, arguments)? {
        Some(written) => written,
        None => {
            let recording = read_trimmed(input, arguments)?;
            let written = write_to(&destination, &recording.trace)?;
            (recording, written)
        }
    };
    let answer = Answer { input, recording: &recording, destination: &destination, exported, bytes };
    if arguments.json {
        page.json(&answer.figures())?;
    } else {
        answer.print(page)?;
    }
    Ok(Status::Fine)
}

/// What was written, and its bytes.
type Written = (Exported, u64);

/// Writes a recording that is too long to be held in memory, where the format needs only a part of it at a time. Returns
/// a window of it, what was written, and its bytes; `None` if it must be read as a whole, or is damaged.
fn write_parts(
    input: &Path,
    destination: &Destination,
    arguments: &ConvertArguments,
) -> Result<Option<(Recording, Written)>, Failure> {
    let is_partial = matches!(destination.kind, Kind::Snap | Kind::Folded);
    if !is_partial || arguments.events.is_some() || arguments.no_stacks {
        return Ok(None);
    }
    let Some(windows) = open_long(input, &arguments.categories)? else { return Ok(None) };
    let events = windows.events();
    let window = in_parts(input, &windows, destination.kind)?;
    let Some(trace) = window else { return Ok(None) };
    let bar = reading_bar(&format!("writing {}", destination.path.display()));
    let mut watch = |now: Progress| {
        show(&bar, now);
        ControlFlow::Continue(())
    };
    let written = destination.write(|out| match destination.kind {
        Kind::Folded => write_folded(out, &trace).map(|lost| vec![lost]).map_err(io_error),
        _ => windows.copy(out, &mut watch).map(|_| Vec::new()),
    });
    bar.finish_and_clear();
    let (lost, bytes) = match written {
        Err(Failure::Damaged(_)) => return Ok(None),
        written => written?,
    };
    let format = FileFormat { kind: FileKind::Snap, is_gzipped: false };
    Ok(Some((Recording { trace, format }, (Exported { events, lost }, bytes))))
}

/// The window that a format needs: the peak of requested bytes on the main device, or no events. `None` if it is
/// damaged.
fn in_parts(input: &Path, windows: &Windows, kind: Kind) -> Result<Option<Trace>, Failure> {
    long::in_parts(windows, input, |_| match kind {
        Kind::Folded => {
            let (device, metric) = (windows.main_device(), Metric::Requested);
            let peak = peak(windows, device, metric)?;
            Ok(WindowedMoment::at(windows, device, metric, peak.number())?.window)
        }
        _ => windows.window(0..0),
    })
}

/// Reads what the options ask for of a recording; of one that is too long to be held in memory, only these events.
///
/// # Errors
///
/// Fails if the recording cannot be read, or does not have all of the events.
pub(crate) fn read_trimmed(file: &Path, arguments: &ConvertArguments) -> Result<Recording, Failure> {
    let events = arguments.events.as_ref().map(|events| events.start as u64..events.end as u64);
    let mut recording = match events.map(|events| read_part(file, &arguments.categories, events)).transpose()?.flatten()
    {
        Some(part) => part,
        None => read_with(file, &arguments.categories)?,
    };
    recording.trace = arguments.trim(recording.trace)?;
    Ok(recording)
}

/// Writes `trace` in the format of `destination`. Returns what was written, and its bytes.
pub(super) fn write_to(destination: &Destination, trace: &Trace) -> Result<Written, Failure> {
    let progress = progress_bar(destination, trace);
    let written = destination.write(|out| {
        let mut tell = |events: u64| {
            progress.set_position(events);
            ControlFlow::Continue(())
        };
        match destination.kind {
            Kind::Snap => {
                write_trace(out, trace).map(|_| Exported { events: trace.events.len() as u64, lost: Vec::new() })
            }
            Kind::Pickle => write_pickle(out, trace, &mut tell),
            Kind::Json => write_json(out, trace, &mut tell),
            Kind::Folded => {
                let lost = write_folded(out, trace).map_err(io_error)?;
                Ok(Exported { events: trace.events.len() as u64, lost: vec![lost] })
            }
        }
    });
    progress.finish_and_clear();
    written
}

/// Returns a progress bar on a terminal; it counts events if the format does.
fn progress_bar(destination: &Destination, trace: &Trace) -> ProgressBar {
    let spinner = spinner(&format!("writing {}", destination.path.display()));
    let is_counted = matches!(destination.kind, Kind::Pickle | Kind::Json);
    if spinner.is_hidden() || !is_counted {
        return spinner;
    }
    let style =
        ProgressStyle::with_template("{spinner} {msg} {wide_bar} {human_pos} of {human_len} events ({elapsed})");
    spinner.set_style(style.expect("the template is well formed"));
    spinner.set_length(trace.events.len() as u64);
    spinner
}

/// The report about one recording.
struct Answer<'a> {
    input: &'a Path,
    recording: &'a Recording,
    destination: &'a Destination,
    exported: Exported,
    bytes: u64,
}

impl Answer<'_> {
    fn figures(&self) -> ConvertFigures<'_> {
        ConvertFigures {
            file: self.destination.path.display().to_string(),
            events: self.exported.events,
            bytes: self.bytes,
            lost: &self.exported.lost,
        }
    }

    fn print(&self, page: &mut Page<'_>) -> io::Result<()> {
        let Self { input, recording, destination, exported, .. } = self;
        let out = &destination.path;
        let events = count_of(exported.events, "event");
        caveats::lead(&recording.trace, "", page)?;
        page.headline(&format!("Wrote {} ({}): {events}.", out.display(), format_bytes(self.bytes)))?;
        page.gap()?;
        let mut table = Table::new(vec![Column::text("file").cut(), Column::text("format"), Column::number("size")]);
        let in_bytes = std::fs::metadata(input).ok().filter(|facts| facts.is_file()).map(|facts| facts.len());
        let name = if is_stdin(input) { "standard input".to_owned() } else { input.display().to_string() };
        let in_bytes = in_bytes.map_or_else(String::new, format_bytes);
        table.push(vec![name, recording.format.name().to_owned(), in_bytes]);
        let packed = if destination.is_gzipped { ", gzipped" } else { "" };
        let format = format!("{}{packed}", destination.kind.name());
        table.push(vec![out.display().to_string(), format, format_bytes(self.bytes)]);
        page.table(&table)?;
        page.gap()?;
        if exported.lost.is_empty() {
            page.line("Nothing was lost.")?;
        }
        for what in &exported.lost {
            page.warning(&format!("Lost: {what}."))?;
        }
        caveats::print(&recording.trace, page)?;
        page.gap()?;
        if destination.kind == Kind::Json && !destination.is_gzipped {
            page.line(
                "JSON has no references: the stack of each event is written in full. A .pickle has each stack once, and \
                 .json.gz is a fraction of the size.",
            )?;
        }
        match destination.kind {
            Kind::Folded => {
                let file = quoted(&out.display().to_string());
                page.hint(&format!("Next: inferno-flamegraph {file} > flames.svg   or any flame graph program"))
            }
            Kind::Snap => page.hint(&next_command(&["info"], out, &[], "for what is in it")),
            Kind::Pickle | Kind::Json => {
                page.hint(&next_command(&["peak"], out, &[], "or open it in PyTorch's viewer, pytorch.org/memory_viz"))
            }
        }
    }
}

/// The object that `convert --json` prints.
#[derive(Debug, Serialize)]
struct ConvertFigures<'a> {
    file: String,
    events: u64,
    bytes: u64,
    lost: &'a [String],
}
