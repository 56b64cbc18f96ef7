//! Run arguments: those of `highwater run`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Args;
use highwater_snapshots::units::parse_bytes;

/// `highwater run`.
#[derive(Clone, Debug, Args)]
pub struct ProgramArguments {
    /// The file to write [default: the program's name with .snap, in this folder]
    ///
    /// One that is there is replaced. Where several processes of the program use the driver, the first takes this name, and
    /// others take names beside it: FILE.rank3.snap where a launcher tells ranks, FILE.pid1234.snap otherwise.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Keep only the last N events, in memory, and write them when the program ends
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub ring: Option<u64>,
    /// Record no stacks
    #[arg(long)]
    pub no_stacks: bool,
    /// Leave out blocks below SIZE, such as 64KiB, and count them
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub smallest: Option<u64>,
    /// The program, and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<OsString>,
}
