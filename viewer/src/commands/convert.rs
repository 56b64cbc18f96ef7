//! `highwater convert`: writes a recording in another format.

#[cfg(feature = "parquet")]
pub(crate) mod dataset;
#[cfg(not(feature = "parquet"))]
#[path = "convert/dataset_disabled.rs"]
pub(crate) mod dataset;
pub(crate) mod page;

use std::io::{self, Read as _};
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use flate2::read::MultiGzDecoder;
use highwater_analysis::Source;
use highwater_analysis::excerpt::excerpt;
use highwater_analysis::peak_stacks::{StackFormat, write_peak_stacks};
use highwater_analysis::trace_events::{KinetoTrace, write_chrome, write_perfetto};
use highwater_app::files::destination::{Destination, Kind, same};
use highwater_app::files::is_stdin;
use highwater_app::report::{Column, Facts, Table};
use highwater_pytorch::export::{Exported, write_json, write_pickle};
use highwater_snapshots::{Trace, count_of, format_bytes, parse_range};
use indicatif::{ProgressBar, ProgressStyle};

use crate::args::{CategoryChoice, FilesAndOptions, Form};
use crate::commands::next_command::quoted;
use crate::input::recording::spinner;
use crate::input::{Input, answer_or_whole};
use crate::output::{Failure, Page, Report, Status, answer, caveats};

/// The format of a folder of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ConvertTo {
    /// Two tables, events and blocks, partitioned by rank
    Parquet,
}

/// The table to write, of the two that a recording has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ConvertTable {
    /// A row for each event, with the totals after it
    #[default]
    Events,
    /// A row for each block
    Blocks,
}

/// Arguments of `highwater convert`.
#[derive(Clone, Debug, Args)]
#[command(override_usage = "highwater convert [OPTIONS] <IN>... <OUT>")]
pub struct ConvertArguments {
    /// IN: recording; `-` is standard input. OUT: file to write; its extension sets the format. With --to, several
    /// recordings and folders of them, and the folder to write
    ///
    /// .snap is Highwater's own format; .pickle (or .pkl) and .json open in PyTorch's viewer, and keep the whole
    /// recording for this program; each may end in .gz. .folded has the stacks and bytes at the peak of requested
    /// bytes, for flame graph programs; .speedscope.json and .pb (or .pprof) have the same for speedscope and pprof.
    /// .perfetto-trace (or .pftrace) and .trace.json have totals, categories, steps, phases and regions over time, for
    /// Perfetto's viewer. .html is a page with the app and the recording in it, or two recordings to compare; it opens
    /// in a browser without a server or network. .parquet has one table of the recording, for query engines. An
    /// existing file is replaced once the new one is complete.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Only these events, from the first number to the one before the second; blocks live before them are the baseline
    #[arg(long, value_name = "FROM..TO", value_parser = events_of)]
    pub events: Option<Range<usize>>,
    /// torch.profiler trace to merge with the recording, on its clock; for an OUT with the extension .trace.json
    #[arg(long, value_name = "TRACE")]
    pub with: Option<PathBuf>,
    /// Leave out stacks, the program's arguments and the host name, so that no source paths and lines remain
    #[arg(long)]
    pub no_stacks: bool,
    /// Write a folder with two tables, OUT/events and OUT/blocks, partitioned by rank, for DuckDB and other readers of
    /// Parquet
    #[arg(long, value_name = "FORMAT")]
    pub to: Option<ConvertTo>,
    /// Table to write [default: events to a .parquet file, both with --to parquet]
    #[arg(long, value_name = "TABLE")]
    pub table: Option<ConvertTable>,
    /// The source of categories that were not recorded.
    #[command(flatten)]
    pub categories: CategoryChoice,
    /// The output format.
    #[command(flatten)]
    pub form: Form,
}

impl ConvertArguments {
    /// Returns the recordings to read, and the file or folder to write.
    ///
    /// # Errors
    /// Fails if only one path is given.
    pub(crate) fn files_and_out(&self) -> Result<(&[PathBuf], &Path), Failure> {
        match self.paths.split_last() {
            Some((out, files)) if !files.is_empty() => Ok((files, out)),
            _ => Err(Failure::Usage("OUT is missing: after the recording, name the file to write".to_owned())),
        }
    }

    pub(crate) fn wants_page(&self) -> bool {
        self.to.is_none() && self.has_ending("html")
    }

    fn has_ending(&self, wanted: &str) -> bool {
        self.paths.last().and_then(|path| path.extension()).is_some_and(|ending| ending.eq_ignore_ascii_case(wanted))
    }

    pub(crate) fn wants_tables(&self) -> bool {
        self.to.is_some() || self.has_ending("parquet")
    }
}

fn events_of(text: &str) -> Result<Range<usize>, String> {
    parse_range(text).ok_or_else(|| "expected FROM..TO with FROM less than TO, such as 1000..2000".to_owned())
}

pub(crate) fn run(arguments: &ConvertArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    if arguments.with.is_some() && (arguments.wants_tables() || arguments.wants_page()) {
        return Err(with_is_for_traces());
    }
    if arguments.wants_tables() {
        return dataset::run(arguments, page);
    }
    if arguments.wants_page() {
        return page::convert(arguments, page);
    }
    one_file(arguments, page)
}

fn one_file(arguments: &ConvertArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    let (files, out) = arguments.files_and_out()?;
    let [file] = files else {
        let text = "only --to parquet (into a folder) and .html (two, to compare) accept several recordings; convert one at a time";
        return Err(Failure::Usage(text.to_owned()));
    };
    if arguments.table.is_some() {
        return Err(Failure::Usage("--table needs an OUT with the extension .parquet, or --to parquet".to_owned()));
    }
    let destination = Destination::new(out, file)?;
    let beside = arguments.with.as_deref().map(|trace| read_kineto(trace, &destination)).transpose()?;
    let in_windows = destination.kind.is_streamed() && !(arguments.no_stacks && destination.kind == Kind::Snap);
    let (input, (exported, bytes)) = read_and(file, arguments, in_windows, |input| {
        Ok((input.clone(), write_to(&destination, &input.source, beside.as_ref())?))
    })?;
    let report = ConvertReport { file, input: &input, destination: &destination, exported, bytes };
    answer(input.facts(), arguments.form, page, &report)
}

/// The result of exporting, and the number of bytes written.
type Written = (Exported, u64);

/// Opens the part of a recording that the options select, and calls `write` with it. `in_windows` is whether `write`
/// supports recordings that are read in windows.
///
/// # Errors
/// Fails if the recording cannot be read or does not have all of the events, or if `write` fails.
pub(crate) fn read_and<T>(
    file: &Path,
    arguments: &ConvertArguments,
    in_windows: bool,
    write: impl FnMut(&Input) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let can_be_long = in_windows || arguments.events.is_some();
    let open = |is_whole: bool| {
        let open = if can_be_long && !is_whole { Input::open } else { Input::whole };
        trimmed(open(file, &arguments.categories)?, arguments)
    };
    answer_or_whole(open, write)
}

/// Returns the part with these events of a recording, which `trace` is or contains as a window.
///
/// # Errors
/// Fails if the recording does not have all of the events.
fn excerpt_of(trace: &Trace, events: &Range<usize>) -> Result<Trace, Failure> {
    if events.end as u64 > trace.event_count() {
        let (all, text) = (count_of(trace.event_count(), "event"), format!("{}..{}", events.start, events.end));
        let text = format!("invalid range {text} for --events: the recording has {all}");
        return Err(Failure::Usage(text));
    }
    let before = trace.start.events as usize;
    Ok(excerpt(trace, events.start.saturating_sub(before)..events.end.saturating_sub(before)))
}

fn trimmed(mut input: Input, arguments: &ConvertArguments) -> Result<Input, Failure> {
    if let Some(events) = &arguments.events {
        // The event before them gives the state at their start.
        let read = events.start.saturating_sub(1) as u64..events.end as u64;
        let part = excerpt_of(&input.ask(|source, _| source.window(read))?.trace, events)?;
        input.source = Source::in_memory(part);
    }
    if arguments.no_stacks {
        input.source = input.source.without_stacks();
    }
    Ok(input)
}

fn with_is_for_traces() -> Failure {
    Failure::Usage("--with needs an OUT with the extension .trace.json".to_owned())
}

fn read_kineto(path: &Path, destination: &Destination) -> Result<KinetoTrace, Failure> {
    if destination.kind != Kind::Chrome {
        return Err(with_is_for_traces());
    }
    if same(path, &destination.path) {
        return Err(Failure::Usage(format!("--with and OUT are the same file: {}; name another OUT", path.display())));
    }
    let unreadable = |why: &dyn std::fmt::Display| Failure::Usage(format!("--with {}: {why}", path.display()));
    let bytes = std::fs::read(path).map_err(|why| unreadable(&why))?;
    let mut text = String::new();
    let read = if bytes.starts_with(&[0x1f, 0x8b]) {
        MultiGzDecoder::new(&*bytes).read_to_string(&mut text)
    } else {
        (&*bytes).read_to_string(&mut text)
    };
    read.map_err(|why| unreadable(&why))?;
    KinetoTrace::parse(&text).map_err(|why| unreadable(&why))
}

/// Returns what was lost, and the number of bytes written. `beside` is merged into a Chrome trace, and otherwise
/// unused.
pub(super) fn write_to(
    destination: &Destination,
    source: &Source<'_>,
    beside: Option<&KinetoTrace>,
) -> Result<Written, Failure> {
    let events = source.count_events();
    let progress = progress_bar(destination, events);
    let written = destination.write(|out| {
        let mut tell = |events: u64| {
            progress.set_position(events);
            ControlFlow::Continue(())
        };
        match destination.kind {
            Kind::Snap => source.write(out, &mut tell).map(|_| Exported { events, lost: Vec::new() }),
            Kind::Stacks(format) => Ok(Exported { events, lost: vec![write_peak_stacks(out, source, format)?] }),
            Kind::Perfetto => Ok(Exported { events, lost: vec![write_perfetto(out, source, &mut tell)?] }),
            Kind::Chrome => Ok(Exported { events, lost: vec![write_chrome(out, source, beside, &mut tell)?] }),
            Kind::Pickle | Kind::Json => {
                let window = source.window(source.events())?;
                let write = if destination.kind == Kind::Json { write_json } else { write_pickle };
                write(out, &window.trace, &mut tell)
            }
        }
    });
    progress.finish_and_clear();
    written
}

/// Returns a progress bar that counts events, or a spinner for formats that are written at once; hidden without a
/// terminal.
fn progress_bar(destination: &Destination, events: u64) -> ProgressBar {
    let spinner = spinner(&format!("writing {}", destination.path.display()));
    if spinner.is_hidden() || matches!(destination.kind, Kind::Stacks(_)) {
        return spinner;
    }
    let style =
        ProgressStyle::with_template("{spinner} {msg} {wide_bar} {human_pos} of {human_len} events ({elapsed})");
    spinner.set_style(style.expect("the template is malformed"));
    spinner.set_length(events);
    spinner
}

struct ConvertReport<'a> {
    file: &'a Path,
    input: &'a Input,
    destination: &'a Destination,
    exported: Exported,
    bytes: u64,
}

impl Report for ConvertReport<'_> {
    fn facts(&self) -> Facts<'_> {
        Facts::new([
            ("file", self.destination.path.as_path().into()),
            ("events", self.exported.events.into()),
            ("bytes", self.bytes.into()),
            ("lost", self.exported.lost.clone().into()),
        ])
    }

    fn table(&self) -> Table<'_> {
        let Self { file, input, destination, .. } = self;
        let in_bytes = std::fs::metadata(file).ok().filter(|facts| facts.is_file()).map(|facts| facts.len());
        let name = if is_stdin(file) { "standard input".to_owned() } else { file.display().to_string() };
        let packed = if destination.is_gzipped { ", gzipped" } else { "" };
        let format = format!("{}{packed}", destination.kind.name());
        let names = [name, destination.path.display().to_string()];
        let formats = [input.format.name().to_owned(), format];
        let bytes = [in_bytes, Some(self.bytes)];
        let columns = [
            Column::text("file", "file", move |row| names[row].clone()).cut(),
            Column::text("format", "format", move |row| formats[row].clone()),
            Column::bytes("bytes", "size", move |row| bytes[row]),
        ];
        Table::new(2, columns)
    }

    fn print(&self, page: &mut Page<'_>) -> io::Result<()> {
        let Self { input, destination, exported, .. } = self;
        let out = &destination.path;
        let events = count_of(exported.events, "event");
        page.headline(&format!("Wrote {} ({}): {events}.", out.display(), format_bytes(self.bytes)))?;
        page.gap()?.table(&self.table())?;
        page.gap()?;
        if exported.lost.is_empty() {
            page.line("Nothing was lost.")?;
        }
        for what in &exported.lost {
            page.warning(&format!("Lost: {what}."))?;
        }
        caveats::print(input.facts(), page)?;
        page.gap()?;
        if destination.kind == Kind::Json && !destination.is_gzipped {
            page.line(
                "JSON has no references: the stack of each event is written in full. A .pickle has each stack once, and \
                 .json.gz is a fraction of the size.",
            )?;
        }
        match destination.kind {
            Kind::Stacks(format) => {
                let file = quoted(&out.display().to_string());
                page.hint(&match format {
                    StackFormat::Folded => {
                        format!("Next: inferno-flamegraph {file} > flames.svg   or any flame graph program")
                    }
                    StackFormat::Speedscope => "Next: open it in speedscope, www.speedscope.app".to_owned(),
                    StackFormat::Pprof => {
                        format!("Next: go tool pprof -http=: {file}   or -diff_base=FILE to compare with another file")
                    }
                })
            }
            Kind::Perfetto | Kind::Chrome => page.hint("Next: open it in Perfetto's viewer, ui.perfetto.dev"),
            Kind::Snap => page.hint(&FilesAndOptions::of(out).next("info", &[], "for its contents")),
            Kind::Pickle | Kind::Json => page.hint(&FilesAndOptions::of(out).next(
                "peak",
                &[],
                "or open it in PyTorch's viewer, pytorch.org/memory_viz",
            )),
        }
    }
}
