//! File: a recording as a growing `.snap` file, every section of it complete on its own.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};

use highwater_snapshots::format::{EndFacts, SnapWriter};
use highwater_snapshots::trace::Header;

use crate::error::{Error, Result};
use crate::export::{Exporter, Rows};
use crate::intake::Batch;

/// A file that is being written. Others see that by an advisory lock on it, which ends with the process at the latest.
#[derive(Debug)]
pub(crate) struct RecordingFile {
    writer: SnapWriter<File>,
    exporter: Exporter,
    path: PathBuf,
    written: Written,
    /// Up to here the file is whole.
    whole_bytes: u64,
}

/// How many rows of each table the file has.
#[derive(Clone, Copy, Debug, Default)]
struct Written {
    strings: usize,
    modules: usize,
    frames: usize,
    stacks: usize,
    scopes: usize,
}

/// Opens `path` for writing, empty and locked. Fails if another process, or another recording, is writing to it.
pub(crate) fn create(path: &Path) -> Result<File> {
    let io = |source| Error::Write { source, path: path.to_owned() };
    // Not emptied yet: it may be somebody else's.
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path).map_err(io)?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => return Err(Error::InUse { path: path.to_owned() }),
        // Some file systems know no locks.
        Ok(()) | Err(TryLockError::Error(_)) => {}
    }
    // A pipe or a device has no length.
    if file.metadata().is_ok_and(|facts| facts.is_file()) {
        file.set_len(0).map_err(io)?;
    }
    Ok(file)
}

impl RecordingFile {
    /// Writes the start of a recording, whose operations are counted from `first_op`, to `file`, which lies at `path`.
    pub(crate) fn begin(file: File, path: &Path, header: &Header, first_op: u32) -> Result<Self> {
        let writer = SnapWriter::to_file(file, path, header)?;
        let whole_bytes = writer.bytes_written();
        let exporter = Exporter::new(first_op);
        Ok(Self { writer, exporter, path: path.to_owned(), written: Written::default(), whole_bytes })
    }

    /// Where it lies.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Its size.
    pub(crate) fn bytes(&self) -> u64 {
        self.whole_bytes
    }

    /// Appends a batch: tables first, then what names their rows. After an error the file ends with the batch before.
    pub(crate) fn write(&mut self, batch: &Batch) -> Result<()> {
        let written = self.append(batch);
        if written.is_ok() {
            self.whole_bytes = self.writer.bytes_written();
        } else {
            // What could not be written whole is taken away again; where that fails, too, readers stop there.
            drop(self.writer.get_ref().set_len(self.whole_bytes));
        }
        written
    }

    fn append(&mut self, batch: &Batch) -> Result<()> {
        for facts in &batch.facts {
            self.writer.write_device(facts)?;
        }
        self.exporter.add_ops(&batch.ops);
        let states: Vec<_> = batch.states.iter().map(|state| self.exporter.starting_state(state)).collect();
        let events: Vec<_> = batch.events.iter().map(|event| self.exporter.event(event)).collect();
        self.write_rows()?;
        for state in &states {
            self.writer.write_starting_state(state)?;
        }
        if !events.is_empty() {
            self.writer.write_events(&events)?;
        }
        Ok(self.writer.flush()?)
    }

    fn write_rows(&mut self) -> Result<()> {
        let ops = self.exporter.take_ops();
        let rows = self.exporter.rows();
        let done = std::mem::replace(&mut self.written, Written::of(&rows));
        self.writer.append_strings(&rows.strings[done.strings..])?;
        self.writer.append_modules(&rows.modules[done.modules..])?;
        self.writer.append_frames(&rows.frames[done.frames..])?;
        self.writer.append_stacks(&rows.stacks[done.stacks..])?;
        self.writer.append_scopes(&rows.scopes[done.scopes..])?;
        self.writer.append_ops(&ops)?;
        Ok(())
    }

    /// Completes the file; with source lines, where these are wanted.
    pub(crate) fn complete(mut self, end: &EndFacts, with_symbols: bool) -> Result<PathBuf> {
        let mut end = end.clone();
        if with_symbols {
            let (symbols, problems) = self.exporter.resolve();
            self.write_rows()?;
            self.writer.append_symbols(&symbols)?;
            end.problems.extend(problems);
        }
        self.writer.finish(&end)?;
        Ok(self.path)
    }
}

impl Written {
    fn of(rows: &Rows<'_>) -> Self {
        Self {
            strings: rows.strings.len(),
            modules: rows.modules.len(),
            frames: rows.frames.len(),
            stacks: rows.stacks.len(),
            scopes: rows.scopes.len(),
        }
    }
}
