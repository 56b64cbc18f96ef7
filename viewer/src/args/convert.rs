//! Convert: the options of `highwater convert`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use super::CategoryChoice;

/// What a folder of tables is written as.
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
pub struct ConvertArguments {
    /// Recording; `-` is standard input. With --to, recordings and folders of them
    #[arg(value_name = "IN", required = true, num_args = 1..)]
    pub files: Vec<PathBuf>,
    /// File to write; its ending sets the format. With --to, the folder to write
    ///
    /// .snap is our own format; .pickle (or .pkl) and .json open in PyTorch's viewer, and keep the whole recording for
    /// this program; each may have .gz behind it. .folded has the stacks and bytes at the peak of requested bytes, for
    /// flame graph programs. .parquet has one table of the recording, for query engines. An existing file is
    /// replaced once the new one is complete.
    #[arg(value_name = "OUT", required = true)]
    pub out: PathBuf,
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
    /// Whether tables are written, for query engines.
    pub fn wants_tables(&self) -> bool {
        let is_parquet = |path: &Path| path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("parquet"));
        self.to.is_some() || is_parquet(&self.out)
    }
}
