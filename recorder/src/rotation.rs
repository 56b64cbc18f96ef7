//! Splits a recording into several files, one after another, and removes the oldest to stay within a disk budget.

use std::collections::VecDeque;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use highwater_snapshots::format::EndFacts;
use highwater_snapshots::rotation;
use highwater_snapshots::trace::{Header, Trust};

use crate::error::{Error, Result};
use crate::file::{self, RecordingFile};
use crate::intake::{Batch, Intake};
use crate::options::Rotation;
use crate::signals;

/// A thread that completes a file and returns its path and size.
type Completing = JoinHandle<Result<(PathBuf, u64)>>;

#[derive(Debug)]
pub(crate) struct Files {
    path: PathBuf,
    header: Header,
    with_symbols: bool,
    rotation: Option<Rotation>,
    current: RecordingFile,
    /// Size of the current file when it began.
    began_bytes: u64,
    /// Index of the current file.
    number: u32,
    /// Complete files with their sizes, oldest first, including those of earlier runs.
    complete: VecDeque<(PathBuf, u64)>,
    /// Files that are being completed, oldest first, with their sizes so far.
    completing: VecDeque<(Completing, u64)>,
    /// Number of losses that previous files have reported.
    reported_losses: u64,
}

impl Files {
    pub(crate) fn create(
        path: &Path,
        header: Header,
        first_op: u32,
        rotation: Option<Rotation>,
        with_symbols: bool,
    ) -> Result<Self> {
        let (mut number, mut complete) = (0, VecDeque::new());
        let (file, at) = match rotation {
            None => (file::claim(path)?, path.to_owned()),
            Some(_) => {
                (number, complete) = earlier(path);
                next_file(path, &mut number)?
            }
        };
        let current = RecordingFile::begin(file, &at, &header, first_op)?;
        Ok(Self {
            path: path.to_owned(),
            header,
            with_symbols,
            rotation,
            began_bytes: current.bytes(),
            current,
            number,
            complete,
            completing: VecDeque::new(),
            reported_losses: 0,
        })
    }

    /// Returns the path of the current file.
    pub(crate) fn path(&self) -> &Path {
        self.current.path()
    }

    pub(crate) fn write(&mut self, batch: &mut Batch) -> Result<()> {
        self.current.write(batch)
    }

    /// Begins another file if the current file is full. `lost` is the number of events lost so far.
    pub(crate) fn turn_over_if_full(&mut self, intake: &mut Intake, lost: u64) -> Result<()> {
        let Some(rotation) = self.rotation else { return Ok(()) };
        if self.current.bytes() - self.began_bytes < rotation.file_bytes {
            return Ok(());
        }
        let (file, at) = next_file(&self.path, &mut self.number)?;
        let mut header = self.header.clone();
        header.facts.push((rotation::PART.to_owned(), self.number.to_string()));
        let mut next = RecordingFile::begin(file, &at, &header, intake.next_op)?;
        let mut opening = intake.opening();
        next.carry_ops(&opening.ops);
        next.write(&mut opening.batch)?;
        self.began_bytes = next.bytes();
        let former = std::mem::replace(&mut self.current, next);
        // The next file continues without a gap, so nothing is missing besides the losses reported here.
        let (end, bytes) = (self.end(lost), former.bytes());
        let with_symbols = self.with_symbols;
        // In the background: symbolizing takes seconds, during which events must not wait.
        let completing = signals::spawn("highwater-file", move || former.complete(&end, &[], with_symbols));
        self.completing.push_back((completing.map_err(Error::Thread)?, bytes));
        self.keep_to_budget(rotation, self.began_bytes + rotation.file_bytes)
    }

    /// Returns the end of a file, with the losses since the previous file.
    fn end(&mut self, lost: u64) -> EndFacts {
        let events_lost = lost.saturating_sub(std::mem::replace(&mut self.reported_losses, lost));
        EndFacts { trust: Trust { events_lost, ..Trust::default() }, problems: Vec::new() }
    }

    /// Removes the oldest complete files until the others fit into the disk budget.
    fn keep_to_budget(&mut self, rotation: Rotation, current_bytes: u64) -> Result<()> {
        while let Some((thread, _)) = self.completing.pop_front_if(|(thread, _)| thread.is_finished()) {
            self.complete.push_back(thread.join().map_err(|_| Error::Collector)??);
        }
        let Some(most) = rotation.disk_bytes else { return Ok(()) };
        let others = current_bytes + self.completing.iter().map(|(_, bytes)| bytes).sum::<u64>();
        keep_to(most, &mut self.complete, others)
    }

    /// Completes the last file. `lost` is the number of lost events, and `facts` are those of the recording.
    pub(crate) fn complete(mut self, lost: u64, facts: &[(String, String)]) -> Result<()> {
        let end = self.end(lost);
        let Self { rotation, current, mut complete, completing, .. } = self;
        let (_, bytes) = current.complete(&end, facts, self.with_symbols)?;
        for (thread, _) in completing {
            complete.push_back(thread.join().map_err(|_| Error::Collector)??);
        }
        if let Some(most) = rotation.and_then(|rotation| rotation.disk_bytes) {
            keep_to(most, &mut complete, bytes)?;
        }
        Ok(())
    }
}

/// Removes the oldest of `files` until the remaining ones and `others` take at most `most` bytes.
fn keep_to(most: u64, files: &mut VecDeque<(PathBuf, u64)>, others: u64) -> Result<()> {
    let total_bytes = |files: &VecDeque<(PathBuf, u64)>| files.iter().map(|(_, bytes)| bytes).sum::<u64>();
    while total_bytes(files) + others > most
        && let Some((path, _)) = files.pop_front()
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

/// Returns the highest file index of earlier runs, and their files that are not being written, oldest first.
fn earlier(path: &Path) -> (u32, VecDeque<(PathBuf, u64)>) {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<(u32, PathBuf)> =
        entries.filter_map(|entry| Some((rotation::number_of(path, &entry.path())?, entry.path()))).collect();
    files.sort();
    let highest = files.last().map_or(0, |(number, _)| *number);
    let idle = |path: PathBuf| {
        let file = File::open(&path).ok()?;
        file.try_lock().ok()?;
        Some((path, file.metadata().ok()?.len()))
    };
    (highest, files.into_iter().filter_map(|(_, path)| idle(path)).collect())
}

/// Creates the file after `number`, or the next file whose name is free.
fn next_file(path: &Path, number: &mut u32) -> Result<(File, PathBuf)> {
    loop {
        *number += 1;
        let at = rotation::numbered(path, *number);
        match File::create_new(&at) {
            Ok(_) => return Ok((file::claim(&at)?, at)),
            Err(source) if source.kind() == std::io::ErrorKind::AlreadyExists && *number < u32::MAX => {}
            Err(source) => return Err(Error::Write { source, path: at }),
        }
    }
}
