//! Appends the sections of a recording to a stream, each with a single write.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::checkpoint::Checkpoint;
use super::events_encode::EventEncoder;
use super::index::{IndexRow, tail_bytes};
use super::kind::SectionKind;
use super::section::{CHUNK_EVENTS, Label, MAX_RAW_BYTES, Packer, SectionHeader};
use super::sniff::preamble;
use super::step_rows::StepActivityRow;
use super::summary::Summarizer;
use super::tables_codec::{EndFacts, FrameRow, ScopeRow, StackRow, Symbols, put_row};
use crate::builder::StartingState;
use crate::error::{Error, Result};
use crate::event::Event;
use crate::tables::{Frame, Module, Op, Scope, Stack};
use crate::trace::{Annotation, Attribute, DeviceFacts, Header, SourceText};

/// Approximate maximum size of a section of table rows in bytes, to limit damage and decode in parallel.
const ROWS_SECTION_BYTES: usize = 4 << 20;

/// Maximum number of sections listed in the footer, which limits the writer's memory for long recordings.
const MAX_INDEXED: usize = 1 << 19;

/// Minimum number of events between two checkpoints. A reader of a part of the recording starts at a checkpoint.
pub(super) const CHECKPOINT_EVENTS: u64 = 1 << 20;

/// Minimum number of bytes between two checkpoints, per byte of the last one. Limits checkpoints to 3% of a file.
const BYTES_A_CHECKPOINT_BYTE: u64 = 32;

/// Minimum number of bytes per block before a checkpoint of unknown size, assuming 16 bytes for each of its blocks.
pub(super) const MIN_BYTES_A_BLOCK: u64 = 16 * BYTES_A_CHECKPOINT_BYTE;

/// Maximum number of blocks and segments of a starting state in one section.
const STARTING_SECTION_ROWS: usize = 65_536;

/// Writes a recording incrementally. Every call writes complete sections, each with one `write_all`, so that everything
/// written before a crash can be read.
///
/// Append table rows before the events that refer to them. Methods that write fail if the output cannot be written, or
/// if a row cannot be encoded. After a failed write, further calls fail too; everything written before stays readable.
pub struct SnapWriter<W: Write> {
    stream: Stream<W>,
    packer: Packer,
    encoder: EventEncoder,
    raw: Vec<u8>,
    rows: [u64; SectionKind::ALL.len() + 1],
    index: Vec<IndexRow>,
    summarizer: Summarizer,
    checkpoint_events: u64,
    /// Whether checkpoints are written less often to limit their share of the file.
    saves_space: bool,
    last: LastCheckpoint,
}

#[derive(Clone, Copy, Debug, Default)]
struct LastCheckpoint {
    /// Number of events before the checkpoint.
    events: u64,
    /// The offset of the end of the checkpoint in the file.
    end: u64,
    /// The length of the checkpoint in bytes, including the summaries before it.
    bytes: u64,
}

struct Stream<W> {
    out: W,
    path: PathBuf,
    offset: u64,
    failed: bool,
}

impl<W: Write> Stream<W> {
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        if self.failed {
            let what = "an earlier write failed, and the recording ends there".to_owned();
            return Err(Error::Encode { what });
        }
        self.failed = true;
        self.out.write_all(bytes).map_err(|error| self.io_error(error))?;
        self.failed = false;
        self.offset += bytes.len() as u64;
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        self.out.flush().map_err(|error| self.io_error(error))
    }

    fn io_error(&self, source: std::io::Error) -> Error {
        Error::Io { doing: "write the recording", source, path: self.path.clone() }
    }
}

impl SnapWriter<File> {
    /// Creates or truncates the file at `path` and writes the start of a recording. Fails if the file cannot be created
    /// or written.
    pub fn create(path: &Path, header: &Header) -> Result<Self> {
        let file = File::create(path).map_err(|source| Error::Io {
            doing: "create the recording",
            source,
            path: path.to_owned(),
        })?;
        Self::with_path(file, path.to_owned(), header)
    }

    /// Writes the start of a recording to `file`, which must be empty; `path` is its path, for errors.
    pub fn to_file(file: File, path: &Path, header: &Header) -> Result<Self> {
        Self::with_path(file, path.to_owned(), header)
    }
}

impl<W: Write> SnapWriter<W> {
    /// Writes the start of a recording to `out`.
    pub fn new(out: W, header: &Header) -> Result<Self> {
        Self::with_path(out, PathBuf::from("(a stream)"), header)
    }

    fn with_path(out: W, path: PathBuf, header: &Header) -> Result<Self> {
        let mut writer = Self::empty(out, path)?;
        writer.stream.write(&preamble())?;
        writer.write_row(SectionKind::Header, header)?;
        Ok(writer)
    }

    /// Creates a writer to `out` that has not written anything, including the preamble.
    pub(super) fn empty(out: W, path: PathBuf) -> Result<Self> {
        Ok(Self {
            stream: Stream { out, path, offset: 0, failed: false },
            packer: Packer::new()?,
            encoder: EventEncoder::default(),
            raw: Vec::new(),
            rows: [0; SectionKind::ALL.len() + 1],
            index: Vec::new(),
            summarizer: Summarizer::default(),
            checkpoint_events: CHECKPOINT_EVENTS,
            saves_space: true,
            last: LastCheckpoint::default(),
        })
    }

    /// Writes `bytes` of another file unchanged. If they are a section with the header `header`, counts and indexes it.
    pub(super) fn copy(&mut self, bytes: &[u8], header: Option<&SectionHeader>) -> Result<()> {
        if let Some(header) = header {
            let row = IndexRow { kind: header.kind, offset: self.stream.offset, events_before: self.events() };
            self.index.push(row);
            if let Some(rows) = self.rows.get_mut(usize::from(header.kind)) {
                *rows = (*rows).max(header.first.saturating_add(u64::from(header.count)));
            }
        }
        self.stream.write(bytes)
    }

    /// Writes a checkpoint every `events` events, regardless of their share of the file. By default, a checkpoint is
    /// written after 2²⁰ events, or later if checkpoints would take more than a small share.
    pub fn set_checkpoint_interval(&mut self, events: u64) {
        (self.checkpoint_events, self.saves_space) = (events, false);
    }

    /// Writes the facts of a device, which replace those written earlier.
    pub fn write_device(&mut self, facts: &DeviceFacts) -> Result<()> {
        self.write_row(SectionKind::Device, facts)
    }

    /// Writes the state of a device before the first event. Several states of the same device are combined.
    ///
    /// # Errors
    /// Fails if events have been written, or if the output cannot be written.
    pub fn write_starting_state(&mut self, state: &StartingState) -> Result<()> {
        if self.events() > 0 {
            let what = "a starting state must be written before the first event".to_owned();
            return Err(Error::Encode { what });
        }
        let part = || StartingState { device: state.device, ..StartingState::default() };
        for segments in state.segments.chunks(STARTING_SECTION_ROWS) {
            self.write_starting_part(&StartingState { segments: segments.to_vec(), ..part() })?;
        }
        for mappings in state.mappings.chunks(STARTING_SECTION_ROWS) {
            self.write_starting_part(&StartingState { mappings: mappings.to_vec(), ..part() })?;
        }
        for blocks in state.blocks.chunks(STARTING_SECTION_ROWS) {
            self.write_starting_part(&StartingState { blocks: blocks.to_vec(), ..part() })?;
        }
        Ok(())
    }

    fn write_starting_part(&mut self, part: &StartingState) -> Result<()> {
        self.write_row(SectionKind::StartingState, part)?;
        self.summarizer.begin(part);
        Ok(())
    }

    /// Appends rows of text.
    pub fn append_strings<S: AsRef<str>>(&mut self, rows: &[S]) -> Result<()> {
        self.append(SectionKind::Strings, rows, |_, text| Some(text.as_ref()))
    }

    /// Appends rows of binaries and libraries.
    pub fn append_modules(&mut self, rows: &[Module]) -> Result<()> {
        self.append(SectionKind::Modules, rows, |_, module| Some(module))
    }

    /// Appends frames by module and address. Their source lines are written by
    /// [`append_symbols`](Self::append_symbols).
    pub fn append_frames(&mut self, rows: &[Frame]) -> Result<()> {
        let row = |_, frame: &Frame| Some(FrameRow { module: frame.module, address: frame.address });
        self.append(SectionKind::Frames, rows, row)
    }

    /// Writes source lines of frames appended earlier. Later lines of a frame replace earlier ones.
    pub fn append_symbols(&mut self, rows: &[Symbols]) -> Result<()> {
        self.append(SectionKind::Symbols, rows, |_, symbols| Some(symbols))
    }

    /// Appends rows of the stack tree. Fails if a parent is not an earlier row.
    pub fn append_stacks(&mut self, rows: &[Stack]) -> Result<()> {
        self.append(SectionKind::Stacks, rows, StackRow::from_stack)
    }

    /// Appends rows of the scope tree. Fails if a parent is not an earlier row.
    pub fn append_scopes(&mut self, rows: &[Scope]) -> Result<()> {
        self.append(SectionKind::Scopes, rows, ScopeRow::from_scope)
    }

    /// Appends forward operations.
    pub fn append_ops(&mut self, rows: &[Op]) -> Result<()> {
        self.append(SectionKind::Ops, rows, |_, op| Some(op))
    }

    /// Appends events, as one section per [`CHUNK_EVENTS`] events, and checkpoints that are due.
    pub fn write_events(&mut self, events: &[Event]) -> Result<()> {
        for chunk in events.chunks(CHUNK_EVENTS) {
            let mut raw = std::mem::take(&mut self.raw);
            self.encoder.encode(chunk, &mut raw);
            let written = self.write_section(SectionKind::Events, chunk.len(), &raw);
            self.raw = raw;
            written?;
            self.summarizer.take(chunk);
            let is_due = self.events() - self.last.events >= self.checkpoint_events;
            if is_due && (!self.saves_space || self.stream.offset - self.last.end >= self.least_bytes()) {
                self.write_checkpoint()?;
            }
        }
        Ok(())
    }

    /// Minimum number of bytes of events before the next checkpoint.
    fn least_bytes(&self) -> u64 {
        match self.last.bytes {
            0 => self.summarizer.live_blocks() * MIN_BYTES_A_BLOCK,
            bytes => bytes.saturating_mul(BYTES_A_CHECKPOINT_BYTE),
        }
    }

    /// Writes the summaries of the events since the last checkpoint, and a checkpoint.
    fn write_checkpoint(&mut self) -> Result<()> {
        let start = self.stream.offset;
        let (rows, deaths) = self.summarizer.end_part();
        self.append(SectionKind::Summaries, &rows, |_, row| Some(row))?;
        self.append(SectionKind::StepActivity, &rows, |_, row| StepActivityRow::of(row))?;
        for part in Checkpoint::of(&self.summarizer, &deaths) {
            self.write_row(SectionKind::Checkpoint, &part)?;
        }
        let end = self.stream.offset;
        self.last = LastCheckpoint { events: self.events(), end, bytes: end - start };
        Ok(())
    }

    /// Appends annotations of events that are already written. Event indices count from the start of the file.
    pub fn append_annotations(&mut self, rows: &[Annotation]) -> Result<()> {
        self.append(SectionKind::Annotations, rows, |_, annotation| Some(annotation))
    }

    /// Appends attributes of events that are already written, and of blocks and segments in starting states. Indices
    /// count from the start of the file.
    pub fn append_attributes(&mut self, rows: &[Attribute]) -> Result<()> {
        self.append(SectionKind::Attributes, rows, |_, attribute| Some(attribute))
    }

    /// Appends facts, as names and values, that were not known when the header was written.
    pub fn append_facts(&mut self, rows: &[(String, String)]) -> Result<()> {
        self.append(SectionKind::Facts, rows, |_, row| Some(row))
    }

    /// Appends texts of source files.
    pub fn append_sources(&mut self, rows: &[SourceText]) -> Result<()> {
        self.append(SectionKind::Sources, rows, |_, row| Some(row))
    }

    /// Ends the recording: writes the end facts, the footer and the tail, flushes, and returns the stream.
    pub fn finish(mut self, facts: &EndFacts) -> Result<W> {
        // A reader of a part of the recording learns from it which blocks are live at the end.
        if self.last.events > 0 && self.last.events < self.events() {
            self.write_checkpoint()?;
        }
        self.raw.clear();
        put_row(&mut self.raw, facts)?;
        let raw = std::mem::take(&mut self.raw);
        let label = Label { kind: SectionKind::End, count: 1, first: self.events() };
        self.write_labelled(label, &raw)?;
        self.write_footer()?;
        self.into_stream()
    }

    /// Flushes and returns the stream without writing anything more.
    pub(super) fn into_stream(mut self) -> Result<W> {
        self.flush()?;
        Ok(self.stream.out)
    }

    /// Writes the footer, which locates every section, and the tail, unless there are too many sections.
    pub(super) fn write_footer(&mut self) -> Result<()> {
        let mut raw = Vec::new();
        let index = std::mem::take(&mut self.index);
        for row in &index {
            put_row(&mut raw, row)?;
        }
        // The file can be read without them.
        if raw.len() > MAX_RAW_BYTES || index.len() >= MAX_INDEXED {
            return Ok(());
        }
        let footer = self.stream.offset;
        self.write_labelled(Label { kind: SectionKind::Footer, count: index.len() as u32, first: 0 }, &raw)?;
        self.stream.write(&tail_bytes(footer))
    }

    /// Flushes everything written so far to the operating system.
    pub fn flush(&mut self) -> Result<()> {
        self.stream.flush()
    }

    /// Number of events written.
    pub fn events(&self) -> u64 {
        self.rows(SectionKind::Events)
    }

    /// Number of rows written to sections of `kind`.
    pub fn rows(&self, kind: SectionKind) -> u64 {
        self.rows[usize::from(kind.code())]
    }

    /// Number of bytes written.
    pub fn bytes_written(&self) -> u64 {
        self.stream.offset
    }

    /// The output stream.
    pub fn get_ref(&self) -> &W {
        &self.stream.out
    }

    fn write_row<T: Serialize>(&mut self, kind: SectionKind, row: &T) -> Result<()> {
        self.append(kind, std::slice::from_ref(row), |_, row| Some(row))
    }

    /// Writes rows in as many sections as needed, each row encoded by `stored`.
    fn append<'a, T, R: Serialize>(
        &mut self,
        kind: SectionKind,
        rows: &'a [T],
        stored: impl Fn(u32, &'a T) -> Option<R>,
    ) -> Result<()> {
        let mut raw = std::mem::take(&mut self.raw);
        raw.clear();
        let mut count = 0;
        for row in rows {
            let number = u32::try_from(self.rows(kind) + count as u64).ok().filter(|number| *number < u32::MAX);
            let number =
                number.ok_or_else(|| Error::Encode { what: format!("more than 2^32 rows of {}", kind.name()) })?;
            let row = stored(number, row).ok_or_else(|| Error::Encode {
                what: format!("row {number} of {} has a parent that does not come before it", kind.name()),
            })?;
            put_row(&mut raw, &row)?;
            count += 1;
            if raw.len() >= ROWS_SECTION_BYTES {
                self.write_section(kind, count, &raw)?;
                raw.clear();
                count = 0;
            }
        }
        if count > 0 {
            self.write_section(kind, count, &raw)?;
        }
        self.raw = raw;
        Ok(())
    }

    fn write_section(&mut self, kind: SectionKind, count: usize, raw: &[u8]) -> Result<()> {
        let first = self.rows(kind);
        self.write_labelled(Label { kind, count: count as u32, first }, raw)?;
        self.rows[usize::from(kind.code())] += count as u64;
        Ok(())
    }

    fn write_labelled(&mut self, label: Label, raw: &[u8]) -> Result<()> {
        let row = IndexRow { kind: label.kind.code(), offset: self.stream.offset, events_before: self.events() };
        if self.index.len() < MAX_INDEXED {
            self.index.push(row);
        }
        self.stream.write(self.packer.pack(label, raw)?)
    }
}

impl<W: Write> std::fmt::Debug for SnapWriter<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SnapWriter")
            .field("path", &self.stream.path)
            .field("bytes", &self.stream.offset)
            .field("events", &self.events())
            .finish_non_exhaustive()
    }
}
