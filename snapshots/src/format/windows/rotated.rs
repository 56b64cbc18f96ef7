//! Finds and opens the files that a recorder wrote one after another.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{Watch, Windows};
use crate::byte_source::ByteSource;
use crate::error::{Error, Problem, Result};
use crate::format::kind::SectionKind;
use crate::format::section::Unpacker;
use crate::format::tables_codec::row_from_bytes;
use crate::format::windows::sections::Sections;
use crate::rotation::RotatedFiles;
use crate::trace::Header;

impl Windows {
    /// Finds the files of a rotation that `path` names, as [`RotatedFiles::find`] does. A folder names those of a single
    /// run only: otherwise its files may be of several ranks.
    pub fn find_rotated(path: &Path) -> Option<RotatedFiles> {
        let is_of_one_run =
            |files: &RotatedFiles| open(files).is_ok_and(|mut open| keep_last_run(&mut open).ok() == Some(0));
        RotatedFiles::find(path).filter(|files| !path.is_dir() || is_of_one_run(files))
    }

    /// Opens the files of a rotation as one recording. Files of earlier runs, and what is before a gap, are left out.
    ///
    /// # Errors
    ///
    /// As [`Self::open_files`], and if one of them cannot be opened.
    pub fn open_rotated(files: &RotatedFiles, watch: Watch<'_>) -> Result<Self> {
        let mut sources = open(files)?;
        let others = keep_last_run(&mut sources)?;
        let first = sources.first().map_or_else(String::new, |(name, _)| name.clone());
        let mut windows = Self::open_files(sources, watch)?;
        let problem = match others {
            0 => files.gap(),
            others => Some(format!("{others} files before {first} are of earlier runs and are left out")),
        };
        windows.base.problems.extend(problem.map(Problem::new));
        windows.base.header.facts.retain(|(name, _)| name != "part");
        Ok(windows)
    }
}

/// Opens the files, each with its name.
fn open(files: &RotatedFiles) -> Result<Vec<(String, Arc<dyn ByteSource>)>> {
    let open = |(_, path): &(u32, PathBuf)| -> Result<(String, Arc<dyn ByteSource>)> {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let file = File::open(path).map_err(|source| Error::Io { doing: "open", source, path: path.clone() })?;
        Ok((name, Arc::new(file)))
    };
    files.files.iter().map(open).collect()
}

/// Keeps the files of the same run as the last one: a program that is started again numbers its files on. Returns how
/// many files before them are of other runs.
///
/// # Errors
///
/// Fails if a file cannot be read.
fn keep_last_run(sources: &mut Vec<(String, Arc<dyn ByteSource>)>) -> Result<usize> {
    let runs: Vec<Run> = sources.iter().map(|(_, source)| run_of(source)).collect::<Result<_>>()?;
    let others = runs.iter().rposition(|run| Some(run) != runs.last()).map_or(0, |row| row + 1);
    sources.drain(..others);
    Ok(others)
}

/// When and where a recording began: the time, the process, the host.
type Run = (u64, u32, String);

fn run_of(source: &Arc<dyn ByteSource>) -> Result<Run> {
    let sections = Sections::locate(Arc::clone(source))?;
    let first = sections.of_kind(SectionKind::Header).next();
    let Some(found) = first.map(|row| sections.section(row.offset)).transpose()? else { return Ok(Run::default()) };
    let mut unpacker = Unpacker::new();
    let header = unpacker.unpack(&found.section()).and_then(row_from_bytes::<Header>);
    let header = header.map_err(|what| Error::Damaged { offset: 0, what })?;
    Ok((header.started_unix_us, header.pid, header.host))
}
