//! The options of `highwater convert`.

use std::ops::Range;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use highwater_analysis::excerpt::{excerpt, remove_stacks};
use highwater_app::files::failure::Failure;
use highwater_snapshots::Trace;
use highwater_snapshots::units::{format_count, parse_range};

use super::CategoryChoice;

/// The format of a folder of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ConvertTo {
    /// Two tables, events and blocks, partitioned by rank
    Parquet,
}

/// One of the tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum ConvertTable {
    /// A row for each event, with the totals after it
    #[default]
    Events,
    /// A row for each block
    Blocks,
}

/// `highwater convert`.
#[derive(Clone, Debug, Args)]
#[command(override_usage = "highwater convert [OPTIONS] <IN>... <OUT>")]
pub struct ConvertArguments {
    /// IN: recording; `-` is standard input. OUT: file to write; its ending sets the format. With --to, several recordings
    /// and folders of them, and the folder to write
    ///
    /// .snap is Highwater's own format; .pickle (or .pkl) and .json open in PyTorch's viewer, and keep the whole recording for
    /// this program; each may end in .gz. .folded has the stacks and bytes at the peak of requested bytes, for flame graph
    /// programs. .html is a page with the app and the recording in it, or two recordings to compare; it opens in a browser
    /// without a server or network. .parquet has one table of the recording, for query engines. An existing file is replaced once the new one
    /// is complete.
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// Only these events: from the first number up to, and without, the second; what is live before them is kept as the
    /// baseline
    #[arg(long, value_name = "FROM..TO", value_parser = events_of)]
    pub events: Option<Range<usize>>,
    /// Leave out stacks, the program's arguments and the machine's name: no paths and lines of source code remain
    #[arg(long)]
    pub no_stacks: bool,
    /// Write a folder with two tables, OUT/events and OUT/blocks, partitioned by rank, for DuckDB and other readers of Parquet
    #[arg(long, value_name = "FORMAT")]
    pub to: Option<ConvertTo>,
    /// Table to write to a .parquet file [default: events]
    #[arg(long, value_name = "TABLE")]
    pub table: Option<ConvertTable>,
    /// The categories.
    #[command(flatten)]
    pub categories: CategoryChoice,
    /// Print one JSON object to standard output
    #[arg(long)]
    pub json: bool,
}

impl ConvertArguments {
    /// The recordings to read, and the file or folder to write; `None` if only one path is given.
    pub fn files_and_out(&self) -> Option<(&[PathBuf], &Path)> {
        let (out, files) = self.paths.split_last()?;
        (!files.is_empty()).then_some((files, out))
    }

    /// Leaves out of `trace`, a recording or a window of it that has the events, what the options say.
    ///
    /// # Errors
    ///
    /// Fails if the recording does not have all of the events.
    pub fn trim(&self, trace: Trace) -> Result<Trace, Failure> {
        let mut trace = match &self.events {
            None => trace,
            Some(events) if events.end as u64 > trace.event_count() => {
                let (all, text) = (format_count(trace.event_count()), format!("{}..{}", events.start, events.end));
                let text = format!("invalid range {text} for --events: the recording has {all} events");
                return Err(Failure::Usage(text));
            }
            Some(events) => {
                let before = trace.start.events as usize;
                excerpt(&trace, events.start.saturating_sub(before)..events.end.saturating_sub(before))
            }
        };
        if self.no_stacks {
            remove_stacks(&mut trace);
        }
        Ok(trace)
    }

    /// Whether a page for browsers is written.
    pub fn wants_page(&self) -> bool {
        self.to.is_none() && self.has_ending("html")
    }

    fn has_ending(&self, wanted: &str) -> bool {
        self.paths.last().and_then(|path| path.extension()).is_some_and(|ending| ending.eq_ignore_ascii_case(wanted))
    }

    /// Whether tables are written, for query engines.
    pub fn wants_tables(&self) -> bool {
        self.to.is_some() || self.has_ending("parquet")
    }
}

/// Parses a range of events.
fn events_of(text: &str) -> Result<Range<usize>, String> {
    parse_range(text).ok_or_else(|| "expected FROM..TO with FROM less than TO, such as 1000..2000".to_owned())
}
