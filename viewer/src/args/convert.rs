//! The options of `highwater convert`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

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
