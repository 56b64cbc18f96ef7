//! Writes a trace's stacks as PyTorch's lists of frames and as lines of a Python traceback.

use super::document::{Document, Shared};
use highwater_snapshots::error::Result;
use highwater_snapshots::ids::{FrameId, StackId};
use highwater_snapshots::tables::SourceLine;
use highwater_snapshots::trace::Trace;

/// Tracks which stacks are written more than once, so that only those are remembered for references.
#[derive(Clone, Debug)]
pub(super) struct Stacks {
    seen: Vec<u64>,
    shared: Vec<u64>,
}

impl Stacks {
    pub(super) fn new(trace: &Trace) -> Self {
        let words = trace.tables.stacks.len().div_ceil(64);
        Self { seen: vec![0; words], shared: vec![0; words] }
    }

    pub(super) fn count(&mut self, stack: StackId) {
        let Some(row) = stack.index() else { return };
        let bit = 1 << (row % 64);
        if let (Some(seen), Some(shared)) = (self.seen.get_mut(row / 64), self.shared.get_mut(row / 64)) {
            *shared |= *seen & bit;
            *seen |= bit;
        }
    }

    pub(super) fn is_shared(&self, stack: StackId) -> bool {
        stack.index().and_then(|row| self.shared.get(row / 64).map(|word| word >> (row % 64) & 1 == 1)).unwrap_or(false)
    }
}

/// Placeholder for an unknown function or file, as in PyTorch.
const UNKNOWN: &str = "??";

/// Writes a stack as a list of frames, innermost first.
pub(super) fn write_frames<D: Document>(
    document: &mut D,
    trace: &Trace,
    stack: StackId,
    is_shared: bool,
) -> Result<()> {
    let frames = Shared::Frames(stack);
    if is_shared && document.again(frames)? {
        return Ok(());
    }
    document.open_list()?;
    for frame in trace.tables.stack_frames(stack) {
        let lines = trace.tables.frame_lines(frame);
        let first = frame.index().and_then(|row| trace.tables.frames.get(row)).map_or(0, |frame| frame.first_line);
        for (position, line) in (0_u32..).zip(lines) {
            write_line(document, trace, first.saturating_add(position), line)?;
        }
        if lines.is_empty() {
            write_address(document, trace, frame)?;
        }
    }
    document.close_list()?;
    if is_shared { document.keep(frames) } else { Ok(()) }
}

fn write_line<D: Document>(document: &mut D, trace: &Trace, row: u32, line: &SourceLine) -> Result<()> {
    if document.again(Shared::Line(row))? {
        return Ok(());
    }
    document.open_dict()?;
    for (key, id) in [("name", line.function), ("filename", line.file)] {
        document.key(key)?;
        if id.is_some() {
            document.named(id, trace.tables.string(id))?;
        } else {
            document.word(UNKNOWN)?;
        }
    }
    document.key("line")?;
    document.number(u64::from(line.line))?;
    document.close_dict()?;
    document.keep(Shared::Line(row))
}

/// Writes a frame that was never symbolized, with its address as the name and its library as the file.
fn write_address<D: Document>(document: &mut D, trace: &Trace, id: FrameId) -> Result<()> {
    if document.again(Shared::Address(id))? {
        return Ok(());
    }
    let frame = id.index().and_then(|row| trace.tables.frames.get(row));
    let module = frame.and_then(|frame| trace.tables.modules.get(frame.module.index()?));
    document.open_dict()?;
    document.key("name")?;
    match frame {
        Some(frame) => document.text(&format!("{:#x}", frame.address))?,
        None => document.word(UNKNOWN)?,
    }
    document.key("filename")?;
    match module {
        Some(module) => document.named(module.path, trace.tables.string(module.path))?,
        None => document.word(UNKNOWN)?,
    }
    document.key("line")?;
    document.number(0)?;
    document.close_dict()?;
    document.keep(Shared::Address(id))
}

/// Writes a stack in Python's notation, with one string per frame, outermost first.
pub(super) fn write_traceback<D: Document>(document: &mut D, trace: &Trace, stack: StackId) -> Result<()> {
    if document.again(Shared::Traceback(stack))? {
        return Ok(());
    }
    let mut texts = Vec::new();
    for frame in trace.tables.stack_frames(stack) {
        texts.extend(trace.tables.frame_lines(frame).iter().map(|line| {
            let or_unknown = |id| Some(trace.tables.string(id)).filter(|text| !text.is_empty()).unwrap_or(UNKNOWN);
            format!("  File \"{}\", line {}, in {}\n", or_unknown(line.file), line.line, or_unknown(line.function))
        }));
    }
    document.open_list()?;
    for text in texts.iter().rev() {
        document.text(text)?;
    }
    document.close_list()?;
    document.keep(Shared::Traceback(stack))
}
