//! The options of `highwater run`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use highwater_snapshots::units::parse_bytes;

/// `highwater run`.
#[derive(Clone, Debug, Args)]
pub struct ProgramArguments {
    /// File to write [default: the program's name with .snap, in the current folder]
    ///
    /// If PROGRAM is a shell or a command such as env, it is named after the program that the shell runs. An existing file
    /// is replaced. If several processes use the driver, the first writes this file and the others write
    /// FILE.rank3.snap where a launcher sets ranks, else FILE.pid1234.snap.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Keep only the last N events in memory, and write them when the program ends
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub ring: Option<u64>,
    /// Record no stacks
    #[arg(long)]
    pub no_stacks: bool,
    /// Leave out blocks smaller than SIZE, such as 64KiB, which still count as reserved
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub smallest: Option<u64>,
    /// Program and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<OsString>,
}
