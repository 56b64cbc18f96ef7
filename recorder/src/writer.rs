//! Writer: the thread that turns batches of events into sections of a growing `.snap` file.

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

use highwater_snapshots::format::{EndFacts, SnapWriter};
use highwater_snapshots::trace::Header;

use crate::error::{Error, Result};
use crate::export::{Exporter, Rows};
use crate::hub::{self, Batch};

/// The running writer.
#[derive(Debug)]
pub(crate) struct Writer {
    thread: JoinHandle<Result<Unfinished>>,
    path: PathBuf,
}

/// A file with all its events, but without symbols and end.
#[derive(Debug)]
struct Unfinished {
    writer: SnapWriter<File>,
    exporter: Exporter,
    written: Written,
}

/// How many rows of each table the file has.
#[derive(Clone, Copy, Debug, Default)]
struct Written {
    strings: usize,
    modules: usize,
    frames: usize,
    stacks: usize,
    scopes: usize,
    ops: usize,
}

impl Writer {
    /// Creates the file and starts the thread.
    pub(crate) fn start(path: &Path, header: &Header, first_op: u32) -> Result<Self> {
        let mut writer = SnapWriter::create(path, header)?;
        writer.flush()?;
        let unfinished = Unfinished { writer, exporter: Exporter::new(first_op), written: Written::default() };
        let builder = std::thread::Builder::new().name("highwater-writer".to_owned());
        let thread = builder.spawn(move || unfinished.run()).map_err(Error::Thread)?;
        Ok(Self { thread, path: path.to_owned() })
    }

    /// Waits for the last batch, resolves the stacks and completes the file. [`hub::close`] was called before.
    pub(crate) fn finish(self, end: impl FnOnce() -> EndFacts) -> Result<PathBuf> {
        let unfinished = self.thread.join().map_err(|_| Error::Writer)??;
        unfinished.complete(&end())?;
        Ok(self.path)
    }
}

impl Unfinished {
    fn run(mut self) -> Result<Self> {
        loop {
            let batch = hub::next_batch();
            // A panic here must not leave the program waiting for this thread.
            let result = catch_unwind(AssertUnwindSafe(|| self.write(&batch)));
            let result = result.unwrap_or_else(|_| Err(Error::Writer));
            hub::batch_done(batch.events.len(), result.is_err());
            result?;
            if batch.is_last {
                return Ok(self);
            }
        }
    }

    /// Tables first, then what names their rows.
    fn write(&mut self, batch: &Batch) -> Result<()> {
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
        let rows = self.exporter.rows();
        let done = std::mem::replace(&mut self.written, Written::of(&rows));
        self.writer.append_strings(&rows.strings[done.strings..])?;
        self.writer.append_modules(&rows.modules[done.modules..])?;
        self.writer.append_frames(&rows.frames[done.frames..])?;
        self.writer.append_stacks(&rows.stacks[done.stacks..])?;
        self.writer.append_scopes(&rows.scopes[done.scopes..])?;
        self.writer.append_ops(&rows.ops[done.ops..])?;
        Ok(())
    }

    fn complete(mut self, end: &EndFacts) -> Result<()> {
        let (symbols, problems) = self.exporter.resolve();
        self.write_rows()?;
        self.writer.append_symbols(&symbols)?;
        self.writer.finish(&EndFacts { problems, ..end.clone() })?;
        Ok(())
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
            ops: rows.ops.len(),
        }
    }
}
