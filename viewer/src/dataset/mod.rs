//! `highwater convert` to Parquet: recordings as two tables, of events and of blocks, for query engines.
//! `docs/ranks.md` has the schema and queries.

mod column;
mod texts;
mod identity;
mod events;
mod blocks;
mod table;
mod parts;
mod answer;

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};

use highwater_analysis::excerpt::remove_stacks;
use highwater_app::files::destination::{Partial, io_error, same, write_folder, write_whole};
use highwater_app::files::fleet::{Fleet, Origin, Rank, on_workers};
use highwater_app::files::is_stdin;
use highwater_snapshots::event::EventKind;
use highwater_snapshots::format::Windows;
use highwater_snapshots::{Error, Trace};
use parquet::errors::ParquetError;

use self::answer::{Answer, Written};
use self::column::{Column, Value};
use self::identity::Identity;
use self::parts::InParts;
use crate::args::{ConvertArguments, ConvertTable};
use crate::cli::convert::out_is_missing;
use crate::cli::convert::read_trimmed;
use crate::cli::input::categories::reader;
use crate::cli::input::long::{open_long, with_progress};
use crate::cli::input::recording::{counting_bar, list, nothing_to_read, read_inputs, spinner};
use crate::cli::output::caveats;
use crate::cli::output::outcome::{Failure, Status};
use crate::cli::output::page::Page;

/// The rows of a table, read column by column within a range that was entered.
trait Rows {
    /// The recording that they belong to.
    fn identity(&self) -> &Identity;
    /// Number of rows.
    fn len(&self) -> usize;
    /// Prepares `rows`, which follow those entered before.
    fn enter(&mut self, rows: Range<usize>);
}

/// Converts to a data set, or to a file with one table.
pub fn run(arguments: &ConvertArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    let answer = if arguments.to.is_some() { data_set(arguments)? } else { one_table(arguments, page)? };
    if arguments.json {
        page.json(&answer.figures())?;
    } else {
        answer.print(page)?;
    }
    Ok(if answer.unread.is_empty() { Status::Fine } else { Status::Unsound })
}

/// Writes one table of one recording as a file.
fn one_table<'a>(arguments: &'a ConvertArguments, page: &mut Page<'_>) -> Result<Answer<'a>, Failure> {
    let (files, out) = arguments.files_and_out().ok_or_else(out_is_missing)?;
    let [input] = files else {
        let text = "several recordings are written as a folder: --to parquet OUTDIR";
        return Err(Failure::Usage(text.to_owned()));
    };
    if input.is_dir() {
        let text = format!("{}: a folder of recordings is written as a folder: --to parquet OUTDIR", input.display());
        return Err(Failure::Usage(text));
    }
    if !is_stdin(input) && same(out, input) {
        return Err(Failure::Usage(format!("IN and OUT are the same file: {}", out.display())));
    }
    let parts = if arguments.events.is_some() { None } else { Source::in_parts(input, arguments)? };
    let whole = || read_trimmed(input, arguments).map(|recording| Source::Memory(Box::new(recording.trace)));
    let mut source = parts.map_or_else(whole, Ok)?;
    let mut written = write_one(&source, (input, out), arguments);
    if let Err(Failure::Damaged(_)) = written {
        // What is left of a damaged recording is known only when all of it is read.
        source = whole()?;
        written = write_one(&source, (input, out), arguments);
    }
    let (rank, bytes) = written?;
    if !arguments.json {
        caveats::lead(source.facts(), "", page)?;
    }
    let written = Written::of(rank, input.clone(), source.counts(), bytes);
    Ok(Answer { arguments, out, written: vec![written], unread: Vec::new(), skipped: 0, lost: lost(source.facts()) })
}

/// Writes the chosen table of the recording `input`. Returns the rank, and the file's length.
fn write_one(
    source: &Source,
    (input, out): (&Path, &Path),
    arguments: &ConvertArguments,
) -> Result<(Option<u32>, u64), Failure> {
    let facts = source.facts();
    let rank = facts.header.rank.map(|rank| (rank, Origin::Recorded));
    let identity = Identity::of(&name_of(input), rank, facts);
    let table = arguments.table.unwrap_or_default();
    let ((), bytes) = write_whole(out, |file| match source {
        Source::Memory(trace) => {
            let turning = spinner(&format!("writing {}", out.display()));
            let written = match table {
                ConvertTable::Events => write_events(file, trace, &identity, &with_rank(events::columns())),
                ConvertTable::Blocks => write_blocks(file, trace, &identity, &with_rank(blocks::columns())),
            };
            turning.finish_and_clear();
            written.map_err(parquet_error)
        }
        Source::Parts(windows, facts) => {
            let (no_stacks, events) = (arguments.no_stacks, parts::EVENTS);
            let tables = InParts { windows, facts, identity: &identity, has_rank: true, no_stacks, events };
            with_progress(windows, input, |watch| match table {
                ConvertTable::Events => tables.write_events(file, watch),
                ConvertTable::Blocks => tables.write_blocks(file, watch),
            })
        }
    })?;
    Ok((identity.rank.map(|(rank, _)| rank), bytes))
}

/// A recording to write: in memory, or read in parts, with a window without events.
enum Source {
    Memory(Box<Trace>),
    Parts(Box<Windows>, Box<Trace>),
}

impl Source {
    /// Opens a recording that is too long to be held in memory. `None` if it is better read as a whole.
    fn in_parts(file: &Path, arguments: &ConvertArguments) -> Result<Option<Self>, Failure> {
        let Some(windows) = open_long(file, &arguments.categories)? else { return Ok(None) };
        let facts = windows.window(0..0);
        let Ok(mut facts) = facts else { return Ok(None) };
        if arguments.no_stacks {
            remove_stacks(&mut facts);
        }
        Ok(Some(Self::Parts(Box::new(windows), Box::new(facts))))
    }

    /// The recording, or a window of it without events.
    fn facts(&self) -> &Trace {
        match self {
            Self::Memory(trace) | Self::Parts(_, trace) => trace,
        }
    }

    /// The number of events and of blocks.
    fn counts(&self) -> [u64; 2] {
        match self {
            Self::Memory(trace) => [trace.events.len() as u64, trace.blocks.len() as u64],
            Self::Parts(windows, facts) => [windows.events(), facts.blocks.len() as u64 + allocations(windows)],
        }
    }
}

/// The number of allocations in a recording.
fn allocations(windows: &Windows) -> u64 {
    let devices = windows.summaries().iter().flat_map(|row| &row.devices);
    devices.map(|device| u64::from(device.counts[EventKind::Alloc as usize])).sum()
}

/// Writes both tables of all recordings into a folder, partitioned by rank.
fn data_set(arguments: &ConvertArguments) -> Result<Answer<'_>, Failure> {
    if arguments.table.is_some() {
        let text = "--to parquet writes both tables: --table is for one file that ends in .parquet";
        return Err(Failure::Usage(text.to_owned()));
    }
    if arguments.events.is_some() || arguments.no_stacks {
        let text = "--events and --no-stacks are for one recording: leave them out, or convert each recording first";
        return Err(Failure::Usage(text.to_owned()));
    }
    let (files, out) = arguments.files_and_out().ok_or_else(out_is_missing)?;
    if files.iter().any(|file| is_stdin(file)) {
        let text = "standard input can be read only once, and a data set is of files: write it to a file first";
        return Err(Failure::Usage(text.to_owned()));
    }
    if fs::read_dir(out).map_or_else(|_| out.exists(), |mut entries| entries.next().is_some()) {
        let text = format!("{}: exists and is not an empty folder; name a new one, or remove it", out.display());
        return Err(Failure::Usage(text));
    }
    let read = reader(&arguments.categories)?;
    let inputs = list(files)?;
    let whole = |file: &Path| read(file).map(|recording| Source::Memory(Box::new(recording.trace)));
    let open = |file: &Path| match Source::in_parts(file, arguments) {
        Ok(Some(parts)) => Ok(parts),
        _ => whole(file),
    };
    let fleet = read_inputs(&inputs, |file| {
        Ok(match open(file)? {
            Source::Memory(trace) | Source::Parts(_, trace) => *trace,
        })
    });
    if fleet.ranks.is_empty() {
        return Err(Failure::Usage(nothing_to_read(&fleet)));
    }
    let parts = parts(&fleet);
    let bar = counting_bar(&format!("writing {}", out.display()), fleet.ranks.len());
    let outcome = write_folder(out, |folder| {
        let outcomes = on_workers(fleet.ranks.len(), |row| {
            let outcome = write_rank(&fleet, row, &parts[row], folder, (&open, &whole));
            bar.inc(1);
            let flow = if outcome.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
            (outcome, flow)
        });
        outcomes.into_iter().collect::<Result<Vec<_>, Failure>>()
    });
    bar.finish_and_clear();
    let (mut written, mut lost, mut unread) = (Vec::new(), BTreeMap::new(), fleet.unread.clone());
    for outcome in outcome? {
        match outcome {
            Ok((rank, of_rank)) => {
                written.push(rank);
                of_rank.into_iter().for_each(|what| *lost.entry(what).or_insert(0_usize) += 1);
            }
            Err((path, why)) => unread.push((path, why)),
        }
    }
    let lost =
        lost.into_iter().map(|(what, count)| if count > 1 { format!("{what} (in {count} recordings)") } else { what });
    Ok(Answer { arguments, out, written, unread, skipped: fleet.skipped, lost: lost.collect() })
}

/// The partition of recordings whose rank is unknown: readers of such data sets read it as null.
const UNKNOWN_RANK: &str = "__HIVE_DEFAULT_PARTITION__";

/// The result for one recording: what was written and lost, or the file that could not be read again, and why.
type Outcome = Result<(Written, Vec<String>), (PathBuf, String)>;

fn write_rank(
    fleet: &Fleet,
    row: usize,
    part: &str,
    folder: &Partial<'_>,
    (open, whole): (impl Fn(&Path) -> Result<Source, Error>, impl Fn(&Path) -> Result<Source, Error>),
) -> Result<Outcome, Failure> {
    let rank = &fleet.ranks[row];
    let unread = |why: Error| (rank.path.clone(), why.to_string());
    let mut source = match open(&rank.path) {
        Ok(source) => source,
        Err(why) => return Ok(Err(unread(why))),
    };
    let mut bytes = write_tables(&source, rank, part, folder);
    if let Err(Failure::Damaged(_)) = bytes {
        // What is left of a damaged recording is known only when all of it is read.
        source = match whole(&rank.path) {
            Ok(source) => source,
            Err(why) => return Ok(Err(unread(why))),
        };
        bytes = write_tables(&source, rank, part, folder);
    }
    let written = Written::of(rank.number(), rank.path.clone(), source.counts(), bytes?);
    Ok(Ok((written, lost(source.facts()))))
}

/// Writes both tables of a recording; returns their length.
fn write_tables(source: &Source, rank: &Rank, part: &str, folder: &Partial<'_>) -> Result<u64, Failure> {
    let identity = Identity::of(&rank.name, rank.number().map(|number| (number, rank.origin)), source.facts());
    let partition = rank.number().map_or_else(|| UNKNOWN_RANK.to_owned(), |number| number.to_string());
    let place = |table: &str| PathBuf::from(table).join(format!("rank={partition}")).join(part);
    let (events, blocks) = match source {
        Source::Memory(trace) => rayon::join(
            || {
                folder.write(&place("events"), |out| {
                    write_events(out, trace, &identity, &events::columns()).map_err(parquet_error)
                })
            },
            || {
                folder.write(&place("blocks"), |out| {
                    write_blocks(out, trace, &identity, &blocks::columns()).map_err(parquet_error)
                })
            },
        ),
        // Its parts are read several at a time.
        Source::Parts(windows, facts) => {
            let tables = InParts {
                windows,
                facts,
                identity: &identity,
                has_rank: false,
                no_stacks: false,
                events: parts::EVENTS,
            };
            let watch = &mut |_| ControlFlow::Continue(());
            let events = folder.write(&place("events"), |out| tables.write_events(out, watch))?;
            (Ok(events), folder.write(&place("blocks"), |out| tables.write_blocks(out, watch)))
        }
    };
    Ok(events? + blocks?)
}

/// Returns the file name of each recording in the folder of its rank.
fn parts(fleet: &Fleet) -> Vec<String> {
    let mut counts: BTreeMap<Option<u32>, usize> = BTreeMap::new();
    let name = |rank: &Rank| {
        let count = counts.entry(rank.number()).or_default();
        *count += 1;
        format!("part-{}.parquet", *count - 1)
    };
    fleet.ranks.iter().map(name).collect()
}

fn write_events<'a>(
    out: impl Write + Send,
    trace: &'a Trace,
    identity: &'a Identity,
    columns: &[Column<events::EventRows<'a>>],
) -> Result<(), ParquetError> {
    table::write(out, events::EventRows::new(trace, identity), columns, identity.metadata(trace))
}

fn write_blocks<'a>(
    out: impl Write + Send,
    trace: &'a Trace,
    identity: &'a Identity,
    columns: &[Column<blocks::BlockRows<'a>>],
) -> Result<(), ParquetError> {
    table::write(out, blocks::BlockRows::new(trace, identity, None), columns, identity.metadata(trace))
}

/// Returns the columns of a single file: no folder gives its rank.
fn with_rank<V: Rows>(mut columns: Vec<Column<V>>) -> Vec<Column<V>> {
    let rank = |rows: &mut V, _: usize| rows.identity().rank.map(|(rank, _)| i64::from(rank));
    columns.insert(0, Column::or_null("rank", "The rank, where the recording says it", Value::Number(rank)));
    columns
}

/// Returns the columns of both tables as Markdown, as in `docs/ranks.md`.
pub fn schema_page() -> String {
    fn rows<V>(title: &str, columns: &[Column<V>]) -> String {
        let row = |column: &Column<V>| {
            let null = if column.is_optional { "yes" } else { "" };
            format!("| `{}` | {} | {null} | {} |\n", column.name, column.type_name(), column.about)
        };
        let head = format!("| `{title}` | type | null | what it says |\n|---|---|---|---|\n");
        head + &columns.iter().map(row).collect::<String>()
    }
    format!("{}\n{}", rows("events", &events::columns()), rows("blocks", &blocks::columns()))
}

/// Returns what the tables do not contain of a recording.
fn lost(trace: &Trace) -> Vec<String> {
    let held = trace.segments.alloc.partition_point(|alloc| !alloc.is_some());
    let counted = [
        (trace.annotations.len(), "named ranges (steps and phases that they make are kept)"),
        (held, "addresses of segments reserved at the start (their bytes are in reserved_bytes)"),
        (trace.attributes.len(), "further facts of events, blocks and segments"),
    ];
    counted.iter().filter(|(count, _)| *count > 0).map(|(_, what)| (*what).to_owned()).collect()
}

fn name_of(file: &Path) -> String {
    if is_stdin(file) {
        return "standard input".to_owned();
    }
    file.file_name().unwrap_or(file.as_os_str()).to_string_lossy().into_owned()
}

/// Converts an error of writing a table into an error of writing a recording.
fn parquet_error(error: ParquetError) -> Error {
    match error {
        ParquetError::External(why) => match why.downcast::<io::Error>() {
            Ok(why) => io_error(*why),
            Err(why) => io_error(io::Error::other(why)),
        },
        other => io_error(io::Error::other(other)),
    }
}

#[cfg(test)]
mod tests;
