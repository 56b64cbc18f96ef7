//! The options of `highwater symbolize`.

use std::path::PathBuf;

use clap::Args;

/// `highwater symbolize`.
#[derive(Clone, Debug, Args)]
pub struct SymbolizeArguments {
    /// Recording (.snap); `-` is standard input and needs --out
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Folder of binaries and debug files to search too; may be repeated
    ///
    /// Files are known by their build ids: as D/.build-id/xx/yyyy.debug, or under any name in D and in folders two deep in
    /// it. So a recording can be taken to a machine where the program never ran. Binaries are looked for where they were
    /// when they ran, too, and debug files beside them and in /usr/lib/debug.
    #[arg(long = "debug-dir", value_name = "D")]
    pub debug_dirs: Vec<PathBuf>,
    /// Write the result to OUT (.snap, .snap.gz) and leave FILE unchanged
    #[arg(long, value_name = "OUT")]
    pub out: Option<PathBuf>,
    /// Also look up frames that have a function but no file and line
    #[arg(long)]
    pub again: bool,
    /// Print one JSON object to standard output
    #[arg(long)]
    pub json: bool,
}
