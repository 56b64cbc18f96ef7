//! `highwater convert` to Parquet: recordings as two tables, of events and of blocks, for query engines.
//! `docs/ranks.md` has the schema and queries.

mod column;
mod texts;
mod identity;
mod events;
mod blocks;
mod table;
mod tables;
mod answer;

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};

use highwater_analysis::Source;
use highwater_app::files::destination::{Partial, io_error, same, write_folder, write_whole};
use highwater_app::files::fleet::{Fleet, Origin, Rank, on_workers};
use highwater_app::files::{is_stdin, recording_name};
use highwater_snapshots::{Error, Trace};
use parquet::errors::ParquetError;

use self::answer::{Answer, Written};
use self::column::Column;
use self::identity::Identity;
use self::tables::Tables;
use crate::commands::convert::{ConvertArguments, ConvertTable, read_and};
use crate::input::recording::{counting_bar, list, nothing_to_read, read_inputs};
use crate::input::{Input, opener, with_spinner};
use crate::output::{Failure, Page, Report as _, Status, caveats};

/// The rows of a table, which are read column by column within a range prepared by `enter`.
trait Rows {
    fn identity(&self) -> &Identity;
    fn len(&self) -> usize;
    /// Prepares `rows` for reading. They follow the rows prepared before.
    fn enter(&mut self, rows: Range<usize>);
}

pub(crate) fn run(arguments: &ConvertArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    let report = if arguments.to.is_some() { data_set(arguments)? } else { one_table(arguments, page)? };
    report.write(arguments.form, page)?;
    Ok(if report.unread.is_empty() { Status::Fine } else { Status::Unsound })
}

fn one_table<'a>(arguments: &'a ConvertArguments, page: &mut Page<'_>) -> Result<Answer<'a>, Failure> {
    let (files, out) = arguments.files_and_out()?;
    let [file] = files else {
        return Err(Failure::Usage("several recordings need a folder as output: use --to parquet OUTDIR".to_owned()));
    };
    if file.is_dir() {
        let text =
            format!("{}: a folder of recordings needs a folder as output: use --to parquet OUTDIR", file.display());
        return Err(Failure::Usage(text));
    }
    if !is_stdin(file) && same(out, file) {
        return Err(Failure::Usage(format!("IN and OUT are the same file: {}; name another OUT", out.display())));
    }
    let (input, (rank, bytes)) =
        read_and(file, arguments, true, |input| Ok((input.clone(), write_one(input, (file, out), arguments)?)))?;
    if arguments.form.is_text() {
        caveats::lead(input.facts(), "", page)?;
    }
    let [events, blocks] = counts(&input.source, file)?;
    let written = Written { rank, file: file.clone(), events, blocks, bytes };
    Ok(Answer { arguments, out, written: vec![written], unread: Vec::new(), skipped: 0, lost: lost(input.facts()) })
}

/// Returns the rank, and the file's length in bytes.
fn write_one(
    input: &Input,
    (file, out): (&Path, &Path),
    arguments: &ConvertArguments,
) -> Result<(Option<u32>, u64), Failure> {
    let facts = input.facts();
    let rank = facts.header.rank.map(|rank| (rank, Origin::Recorded));
    let identity = Identity::of(&recording_name(file), rank, facts);
    let tables = Tables { source: &input.source, identity: &identity, has_rank: true };
    let write = || {
        write_whole(out, |file| match arguments.table.unwrap_or_default() {
            ConvertTable::Events => tables.write_events(file),
            ConvertTable::Blocks => tables.write_blocks(file),
        })
    };
    let (_, bytes) = with_spinner(&format!("writing {}", out.display()), write)?;
    Ok((identity.rank.map(|(rank, _)| rank), bytes))
}

fn counts(source: &Source<'_>, file: &Path) -> Result<[u64; 2], Failure> {
    let blocks = source.count_blocks().map_err(|source| Failure::Read { file: file.to_owned(), source })?;
    Ok([source.count_events(), blocks])
}

fn data_set(arguments: &ConvertArguments) -> Result<Answer<'_>, Failure> {
    if arguments.events.is_some() || arguments.no_stacks {
        let text = "--events and --no-stacks apply to one recording: omit them, or convert each recording first";
        return Err(Failure::Usage(text.to_owned()));
    }
    let (files, out) = arguments.files_and_out()?;
    if files.iter().any(|file| is_stdin(file)) {
        let text = "standard input can be read only once, but a data set needs files: write it to a file first";
        return Err(Failure::Usage(text.to_owned()));
    }
    if fs::read_dir(out).map_or_else(|_| out.exists(), |mut entries| entries.next().is_some()) {
        let text = format!("{}: exists and is not an empty folder; name a new one, or remove it", out.display());
        return Err(Failure::Usage(text));
    }
    let open = opener(&arguments.categories)?;
    let inputs = list(files)?;
    let fleet = read_inputs(&inputs, &open);
    if fleet.ranks.is_empty() {
        return Err(Failure::Usage(nothing_to_read(&fleet)));
    }
    let parts = parts(&fleet);
    let bar = counting_bar(&format!("writing {}", out.display()), fleet.ranks.len());
    let outcome = write_folder(out, |folder| {
        let outcomes = on_workers(fleet.ranks.len(), |row| {
            let outcome = write_rank(&fleet.ranks[row], &parts[row], folder, arguments.table, &open);
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

/// The partition for recordings of unknown rank, which readers of partitioned data sets read as null.
const UNKNOWN_RANK: &str = "__HIVE_DEFAULT_PARTITION__";

/// The result for one recording: the data written and lost, or the file that could not be read again, with the reason.
type Outcome = Result<(Written, Vec<String>), (PathBuf, String)>;

fn write_rank(
    rank: &Rank,
    part: &str,
    folder: &Partial<'_>,
    table: Option<ConvertTable>,
    open: impl Fn(&Path, bool) -> Result<Source<'static>, Error>,
) -> Result<Outcome, Failure> {
    let write = |is_whole: bool| match open(&rank.path, is_whole) {
        Ok(source) => {
            let bytes = write_tables(&source, rank, part, folder, table)?;
            let [events, blocks] = counts(&source, &rank.path)?;
            let written = Written { rank: rank.number(), file: rank.path.clone(), events, blocks, bytes };
            Ok(Ok((written, lost(source.facts()))))
        }
        Err(why) => Ok(Err((rank.path.clone(), why.to_string()))),
    };
    match write(false) {
        // The readable part of a damaged recording is known only when all of it is read.
        Err(Failure::Damaged(_)) => write(true),
        written => written,
    }
}

/// Returns the total length of the written tables in bytes.
fn write_tables(
    source: &Source<'_>,
    rank: &Rank,
    part: &str,
    folder: &Partial<'_>,
    table: Option<ConvertTable>,
) -> Result<u64, Failure> {
    let identity = Identity::of(&rank.name, rank.number().map(|number| (number, rank.origin)), source.facts());
    let partition = rank.number().map_or_else(|| UNKNOWN_RANK.to_owned(), |number| number.to_string());
    let place = |table: &str| PathBuf::from(table).join(format!("rank={partition}")).join(part);
    let tables = Tables { source, identity: &identity, has_rank: false };
    let events = || folder.write(&place("events"), |out| tables.write_events(out));
    let blocks = || folder.write(&place("blocks"), |out| tables.write_blocks(out));
    match table {
        Some(ConvertTable::Events) => events(),
        Some(ConvertTable::Blocks) => blocks(),
        None => {
            let (events, blocks) = rayon::join(events, blocks);
            Ok(events? + blocks?)
        }
    }
}

/// Returns the file name of each recording within the folder of its rank.
fn parts(fleet: &Fleet) -> Vec<String> {
    let mut counts: BTreeMap<Option<u32>, usize> = BTreeMap::new();
    let name = |rank: &Rank| {
        let count = counts.entry(rank.number()).or_default();
        *count += 1;
        format!("part-{}.parquet", *count - 1)
    };
    fleet.ranks.iter().map(name).collect()
}

/// Adds a column for the rank, which for a folder of ranks is in the name of the file's folder.
fn with_rank<V: Rows>(mut columns: Vec<Column<V>>) -> Vec<Column<V>> {
    let rank = |rows: &mut V, _: usize| rows.identity().rank.map(|(rank, _)| i64::from(rank));
    columns.insert(0, Column::number("rank", "The rank, if the recording contains it", rank));
    columns
}

#[cfg(test)]
pub(crate) fn schema_page() -> String {
    fn rows<V>(title: &str, columns: &[Column<V>]) -> String {
        let row = |column: &Column<V>| {
            let null = if column.is_optional { "yes" } else { "" };
            format!("| `{}` | {} | {null} | {} |\n", column.name, column.type_name(), column.about)
        };
        let head = format!("| `{title}` | type | null | description |\n|---|---|---|---|\n");
        head + &columns.iter().map(row).collect::<String>()
    }
    format!("{}\n{}", rows("events", &events::columns()), rows("blocks", &blocks::columns()))
}

/// Returns descriptions of the parts of a recording that the tables do not contain.
fn lost(trace: &Trace) -> Vec<String> {
    let from_start = trace.segments.alloc.partition_point(|alloc| !alloc.is_some());
    let counted = [
        (trace.annotations.len(), "named ranges (the steps and phases derived from them are in the tables)"),
        (from_start, "addresses of segments reserved at the start (their bytes are in reserved_bytes)"),
        (trace.attributes.len(), "further facts of events, blocks and segments"),
    ];
    counted.iter().filter(|(count, _)| *count > 0).map(|(_, what)| (*what).to_owned()).collect()
}

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
