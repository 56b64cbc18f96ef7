//! The options of `highwater run`.

use std::ffi::OsString;
use std::ops::Range;
use std::path::PathBuf;

use clap::Args;
use highwater_snapshots::units::{parse_bytes, parse_range};

fn steps(text: &str) -> Result<Range<u32>, String> {
    parse_range(text).ok_or_else(|| "expected the first step and the one after the last, as 10..13".to_owned())
}

/// `highwater run`.
#[derive(Clone, Debug, Args)]
pub struct ProgramArguments {
    /// File to write [default: the script's or program's name with .snap, in the current folder]
    ///
    /// If PROGRAM is a shell or a command such as env, it is named after the program that the shell runs. An existing file
    /// is replaced. If several processes use the GPU, the first writes this file and the others write
    /// FILE.rank3.snap where a launcher sets ranks, else FILE.pid1234.snap.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Keep only the last N events in memory, and write them when the program ends
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub ring: Option<u64>,
    /// Record no stacks
    #[arg(long)]
    pub no_stacks: bool,
    /// Record only these training steps of PyTorch programs, counted from 0, without the last: 10..13
    #[arg(long, value_name = "FROM..TO", value_parser = steps)]
    pub steps: Option<Range<u32>>,
    /// Record what PyTorch programs allocate from the CUDA driver too, to FILE.driver.snap
    #[arg(long)]
    pub driver: bool,
    /// Print nothing about the recording when the program has ended
    #[arg(long)]
    pub quiet: bool,
    /// Leave out blocks smaller than SIZE, such as 64KiB, which still count as reserved; not of PyTorch programs
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub smallest: Option<u64>,
    /// Program and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<OsString>,
}
