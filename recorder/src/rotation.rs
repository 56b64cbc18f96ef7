//! Rotation: a recording as several files, one after another, of which the oldest go when the disk shall hold no more.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use highwater_snapshots::format::EndFacts;
use highwater_snapshots::trace::{Header, Trust};

use crate::error::{Error, Result};
use crate::file::{self, RecordingFile};
use crate::intake::{Batch, Intake};
use crate::naming;
use crate::options::Rotation;

/// The files of a recording: one, or one after another.
#[derive(Debug)]
pub(crate) struct Files {
    path: PathBuf,
    header: Header,
    with_symbols: bool,
    rotation: Option<Rotation>,
    current: RecordingFile,
    /// The current file's number, from 1.
    number: u32,
    /// Files that are complete, oldest first, with their sizes.
    complete: VecDeque<(PathBuf, u64)>,
    /// The number of the next operation.
    next_op: u32,
}

impl Files {
    /// Creates the first file.
    pub(crate) fn create(
        path: &Path,
        header: Header,
        first_op: u32,
        rotation: Option<Rotation>,
        with_symbols: bool,
    ) -> Result<Self> {
        let at = if rotation.is_some() { naming::numbered(path, 1) } else { path.to_owned() };
        let current = RecordingFile::begin(file::create(&at)?, &at, &header, first_op)?;
        let complete = VecDeque::new();
        Ok(Self {
            path: path.to_owned(),
            header,
            with_symbols,
            rotation,
            current,
            number: 1,
            complete,
            next_op: first_op,
        })
    }

    /// The file that is being written.
    pub(crate) fn path(&self) -> &Path {
        self.current.path()
    }

    /// Appends what waits in `intake`, and begins another file where this one is full.
    pub(crate) fn write(&mut self, batch: &Batch, intake: &Intake) -> Result<()> {
        self.next_op += batch.ops.len() as u32;
        self.current.write(batch)?;
        match self.rotation {
            Some(rotation) if self.current.bytes() >= rotation.file_bytes => self.turn_over(rotation, intake),
            _ => Ok(()),
        }
    }

    fn turn_over(&mut self, rotation: Rotation, intake: &Intake) -> Result<()> {
        self.number += 1;
        let at = naming::numbered(&self.path, self.number);
        let mut header = self.header.clone();
        header.facts.push(("part".to_owned(), self.number.to_string()));
        let mut next = RecordingFile::begin(file::create(&at)?, &at, &header, self.next_op)?;
        next.write(&intake.opening())?;
        let former = std::mem::replace(&mut self.current, next);
        // More follows in the next file, so nothing of what this one holds is lost.
        let bytes = former.bytes();
        let path = former.complete(&EndFacts { trust: Trust::default(), problems: Vec::new() }, self.with_symbols)?;
        let bytes = std::fs::metadata(&path).map_or(bytes, |facts| facts.len());
        self.complete.push_back((path, bytes));
        self.keep_to_budget(rotation)
    }

    /// Removes the oldest complete files until those that are left, and the one that is being filled, fit.
    fn keep_to_budget(&mut self, rotation: Rotation) -> Result<()> {
        let Some(most) = rotation.disk_bytes else { return Ok(()) };
        let held = |files: &VecDeque<(PathBuf, u64)>| files.iter().map(|(_, bytes)| bytes).sum::<u64>();
        while held(&self.complete) + rotation.file_bytes > most
            && let Some((path, _)) = self.complete.pop_front()
        {
            match std::fs::remove_file(&path) {
                Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                    return Err(Error::Write { source, path });
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Completes the last file, and gives its path.
    pub(crate) fn complete(self, end: &EndFacts) -> Result<PathBuf> {
        self.current.complete(end, self.with_symbols)
    }
}
