//! A recording as a growing `.snap` file, in which every section is complete in itself.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};

use highwater_snapshots::OpId;
use highwater_snapshots::format::{EndFacts, SnapWriter};
use highwater_snapshots::trace::Header;

use crate::error::{Error, Result};
use crate::export::{Exporter, Rows};
use crate::intake::Batch;
use crate::message::NewOp;

/// A file that is being written. It is protected by an advisory lock, which is released at the latest when the process
/// and its forked children end.
#[derive(Debug)]
pub(crate) struct RecordingFile {
    writer: SnapWriter<File>,
    exporter: Exporter,
    path: PathBuf,
    written: Written,
    /// Number of bytes up to which the file is valid.
    whole_bytes: u64,
}

/// Number of rows of each table that were written to the file.
#[derive(Clone, Copy, Debug, Default)]
struct Written {
    strings: usize,
    modules: usize,
    frames: usize,
    stacks: usize,
    scopes: usize,
}

/// Opens and locks `path` for writing, without truncating it. Fails if another process or recording is writing to it.
pub(crate) fn claim(path: &Path) -> Result<File> {
    let io = |source| Error::Write { source, path: path.to_owned() };
    let file = OpenOptions::new().write(true).create(true).truncate(false).open(path).map_err(io)?;
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(Error::InUse { path: path.to_owned() }),
        // Some file systems do not support locks.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(file),
    }
}

/// Truncates a claimed file.
pub(crate) fn empty(file: &File, path: &Path) -> Result<()> {
    let io = |source| Error::Write { source, path: path.to_owned() };
    // A pipe or a device has no length.
    if file.metadata().is_ok_and(|facts| facts.is_file()) {
        file.set_len(0).map_err(io)?;
    }
    Ok(())
}

impl RecordingFile {
    /// Writes the start of a recording to `file` at `path`, with operations counted from `first_op`.
    pub(crate) fn begin(file: File, path: &Path, header: &Header, first_op: u32) -> Result<Self> {
        empty(&file, path)?;
        let writer = SnapWriter::to_file(file, path, header)?;
        let whole_bytes = writer.bytes_written();
        let exporter = Exporter::new(first_op);
        Ok(Self { writer, exporter, path: path.to_owned(), written: Written::default(), whole_bytes })
    }

    /// Appends operations from before this file, to which later events may refer.
    pub(crate) fn carry_ops(&mut self, ops: &[(OpId, NewOp)]) {
        self.exporter.carry_ops(ops);
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.whole_bytes
    }

    /// Appends a batch, with tables before the rows that refer to them. Its events then have the ids of the file. After
    /// an error, the file ends with the previous batch.
    pub(crate) fn write(&mut self, batch: &mut Batch) -> Result<()> {
        let written = self.append(batch);
        if written.is_ok() {
            self.whole_bytes = self.writer.bytes_written();
        } else {
            // Removes the incomplete batch; if that fails too, readers stop there.
            drop(self.writer.get_ref().set_len(self.whole_bytes));
        }
        written
    }

    fn append(&mut self, batch: &mut Batch) -> Result<()> {
        for facts in &batch.facts {
            self.writer.write_device(facts)?;
        }
        self.exporter.add_ops(&batch.ops);
        let states: Vec<_> = batch.states.iter().map(|state| self.exporter.starting_state(state)).collect();
        for event in &mut batch.events {
            *event = self.exporter.event(event);
        }
        self.write_rows()?;
        for state in &states {
            self.writer.write_starting_state(state)?;
        }
        if !batch.events.is_empty() {
            self.writer.write_events(&batch.events)?;
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

    /// Completes the file, with `facts` of the recording, and with source lines if requested. Returns its path and size
    /// in bytes. After an error, the file ends with its last batch.
    pub(crate) fn complete(
        self,
        end: &EndFacts,
        facts: &[(String, String)],
        with_symbols: bool,
    ) -> Result<(PathBuf, u64)> {
        let file = self.writer.get_ref().try_clone();
        let (path, whole_bytes) = (self.path.clone(), self.whole_bytes);
        let completed = self.append_end(end, facts, with_symbols);
        if let (Err(_), Ok(file)) = (&completed, file) {
            drop(file.set_len(whole_bytes));
        }
        completed.map(|bytes| (path, bytes))
    }

    fn append_end(mut self, end: &EndFacts, facts: &[(String, String)], with_symbols: bool) -> Result<u64> {
        if with_symbols {
            let (symbols, notes) = self.exporter.resolve();
            self.write_rows()?;
            self.writer.append_symbols(&symbols)?;
            self.writer.append_facts(&notes)?;
        }
        self.writer.append_facts(facts)?;
        let file = self.writer.finish(end)?;
        let facts = file.metadata().map_err(|source| Error::Write { source, path: self.path.clone() })?;
        // Some file systems report only now that they are full.
        if facts.is_file() {
            file.sync_data().map_err(|source| Error::Write { source, path: self.path })?;
        }
        Ok(facts.len())
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
