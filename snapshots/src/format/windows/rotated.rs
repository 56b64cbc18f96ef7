//! Finds and opens the files of a rotation.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::{ComputedStore, Watch, Windows};
use crate::byte_source::{ByteSource, NamedSource};
use crate::error::{Error, Problem, Result};
use crate::format::kind::SectionKind;
use crate::format::section::Unpacker;
use crate::format::windows::sections::Sections;
use crate::rotation::{PART, RotatedFiles};
use crate::trace::Header;

impl Windows {
    /// Finds the files of the rotation at `path`, like [`RotatedFiles::find`]. A folder is accepted only if its files
    /// belong to a single run, since otherwise they may be of several ranks.
    pub fn find_rotated(path: &Path) -> Option<RotatedFiles> {
        RotatedFiles::find(path).filter(|files| !path.is_dir() || is_one_run(files))
    }

    /// Returns the path of the rotated recording with exactly these `files`; `None` if they are not from a single run.
    pub fn rotated_of(files: &[PathBuf]) -> Option<PathBuf> {
        let recording = RotatedFiles::all_of(files)?;
        let found = RotatedFiles::find(&recording)?;
        (found.files.len() == files.len() && is_one_run(&found)).then_some(recording)
    }

    /// Opens the files of a rotation as one recording. Files of earlier runs, files before a gap, and files without a
    /// complete header are ignored, which is reported as a problem of the recording.
    ///
    /// # Errors
    /// Fails like [`Self::open_files`], or if one of the files cannot be opened.
    pub fn open_rotated(files: &RotatedFiles, store: &dyn ComputedStore, watch: Watch<'_>) -> Result<Self> {
        let Run { mut sources, others, empty, begins_run } = last_run(files)?;
        let mut problems: Vec<String> = empty.iter().map(|name| format!("{name} is empty and is skipped")).collect();
        let first = sources.first().map_or_else(String::new, |(name, _)| name.clone());
        if others > 0 {
            problems.push(format!("files before {first} belong to earlier runs and are skipped"));
        } else if !begins_run {
            problems.extend(files.gap());
        }
        let mut windows = loop {
            let names: Vec<String> = sources.iter().map(|(name, _)| name.clone()).collect();
            let windows = Self::open_files(sources.clone(), store, watch)?;
            let Some(broken) = windows.first_that_does_not_continue()? else { break windows };
            problems.push(format!(
                "{} does not continue {}: the files before it are skipped",
                names[broken],
                names[broken - 1]
            ));
            sources.drain(..broken);
        };
        windows.base.0.problems.extend(problems.into_iter().map(Problem::new));
        windows.base.0.header.facts.retain(|(name, _)| name != PART);
        Ok(windows)
    }
}

struct Run {
    sources: Vec<NamedSource>,
    /// Number of files of earlier runs.
    others: usize,
    /// The names of the files at the end that have no complete header.
    empty: Vec<String>,
    /// Whether the first of these files is the first of its run.
    begins_run: bool,
}

fn is_one_run(files: &RotatedFiles) -> bool {
    files.files.len() > 1 && last_run(files).is_ok_and(|run| run.others == 0)
}

/// Opens the files of the last run. Earlier runs may be present because a restarted program continues the numbering.
fn last_run(files: &RotatedFiles) -> Result<Run> {
    let mut sources: Vec<(u32, Option<Header>, NamedSource)> = Vec::new();
    for (number, path) in &files.files {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let file = File::open(path).map_err(|source| Error::Io { doing: "open", source, path: path.clone() })?;
        let source: Arc<dyn ByteSource> = Arc::new(file);
        sources.push((*number, header_of(&source).map_err(|why| why.named(&name))?, (name, source)));
    }
    let mut empty = Vec::new();
    while let Some((.., (name, _))) = sources.pop_if(|(_, header, _)| header.is_none()) {
        empty.push(name);
    }
    if sources.is_empty() {
        return Err(Error::Empty);
    }
    let began = |header: &Header| (header.started_unix_us, header.pid, header.host.clone());
    let continues = |pair: &[(u32, Option<Header>, _)]| {
        let ((_, Some(before), _), (number, Some(header), _)) = (&pair[0], &pair[1]) else { return false };
        part_of(header) == Some(*number) && began(before) == began(header)
    };
    let others = sources.windows(2).rposition(|pair| !continues(pair)).map_or(0, |row| row + 1);
    let first = sources[others].1.as_ref();
    let begins_run = first.is_none_or(|header| part_of(header).is_none());
    let sources = sources.into_iter().skip(others).map(|(.., source)| source).collect();
    Ok(Run { sources, others, empty, begins_run })
}

/// Returns the number of a file within its run; `None` for the first file.
fn part_of(header: &Header) -> Option<u32> {
    header.facts.iter().find(|(name, _)| name == PART).and_then(|(_, number)| number.parse().ok())
}

/// Returns the header of a file; `None` if the header is incomplete.
fn header_of(source: &Arc<dyn ByteSource>) -> Result<Option<Header>> {
    let sections = match Sections::locate(Arc::clone(source)) {
        Err(Error::Empty) => return Ok(None),
        sections => sections?,
    };
    let Some(first) = sections.of_kind(SectionKind::Header).next() else { return Ok(None) };
    Ok(sections.section(first.offset)?.rows(&mut Unpacker::new())?.pop())
}
