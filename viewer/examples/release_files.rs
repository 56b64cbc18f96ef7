//! Writes shell completions and man pages for release archives: `release_files FOLDER`.

use std::io::{Error, Result};
use std::path::{Path, PathBuf};

use clap::{CommandFactory as _, ValueEnum as _};
use clap_complete::{Shell, generate_to};
use highwater::Arguments;

fn main() -> Result<()> {
    let folder = std::env::args_os().nth(1).map(PathBuf::from);
    write(&folder.ok_or_else(|| Error::other("no folder given: release_files FOLDER"))?)
}

fn write(folder: &Path) -> Result<()> {
    let (completions, pages) = (folder.join("completions"), folder.join("man"));
    std::fs::create_dir_all(&completions)?;
    std::fs::create_dir_all(&pages)?;
    for &shell in Shell::value_variants() {
        generate_to(shell, &mut Arguments::command(), "highwater", &completions)?;
    }
    clap_mangen::generate_to(Arguments::command(), &pages)
}
