//! Writes the blocks that are live at the peak, by call stack, in the formats of flame graph tools and pprof.

mod folded;
mod speedscope;
mod pprof;

use std::collections::BTreeMap;
use std::io::{BufWriter, Write};
use std::path::PathBuf;

use hashbrown::HashMap;
use highwater_snapshots::ids::{FrameId, StackId, StringId};
use highwater_snapshots::line_text::function_text;
use highwater_snapshots::tables::Tables;
use highwater_snapshots::trace::Trace;
use highwater_snapshots::units::{format_bytes, format_count};
use highwater_snapshots::{Category, Error, Result};

use super::between::Sum;
use super::peak::Moment;
use super::source::Source;
use crate::metric::Metric;
use crate::stacks::leading::{LeadingFrame, entries};

const NO_STACK: &str = "(no stack)";

/// A format for call stacks with their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StackFormat {
    /// One line per stack: its frames, outermost first, and its bytes.
    Folded,
    /// JSON of [speedscope](https://www.speedscope.app).
    Speedscope,
    /// A profile of [pprof](https://github.com/google/pprof), with the category of the blocks as a label.
    Pprof,
}

/// The blocks that are live at the peak of requested bytes on the main device.
struct PeakStacks<'a> {
    trace: &'a Trace,
    sums: BTreeMap<(StackId, Category), Sum>,
    bytes: u64,
    /// The bytes, the device and the event of the peak, as text.
    when: String,
}

/// Writes the stacks of the blocks that are live at the peak of requested bytes on the main device. Returns a sentence
/// about the data that the format cannot represent.
///
/// # Errors
/// Fails if the recording cannot be read, or `out` cannot be written.
pub fn write_peak_stacks<W: Write>(out: W, source: &Source<'_>, format: StackFormat) -> Result<String> {
    let device = source.facts().main_device();
    let peak = source.peak(device, Metric::Requested)?;
    let window = source.window_at(peak.number())?;
    let trace = &*window.trace;
    let mut sums: BTreeMap<(StackId, Category), Sum> = BTreeMap::new();
    for id in window.index(device).live.before_position(trace, Metric::Requested, window.events.end) {
        let block = trace.blocks.get(id);
        if block.requested == 0 {
            continue;
        }
        sums.entry((block.stack, block.category)).or_default().add(block.requested);
    }
    let stacks = PeakStacks { trace, sums, bytes: peak.bytes, when: when(&peak) };
    let mut out = BufWriter::new(out);
    let written = match format {
        StackFormat::Folded => folded::write(&mut out, &stacks),
        StackFormat::Speedscope => speedscope::write(&mut out, &stacks),
        StackFormat::Pprof => pprof::write(&mut out, &stacks),
    };
    written.and_then(|()| out.flush()).map_err(|source| Error::Io { doing: "write", source, path: PathBuf::new() })?;
    let others = if trace.device_ids().len() > 1 { ", and all other devices" } else { "" };
    Ok(format!("everything but the stacks and bytes of the blocks that are live at the peak: {}{others}", stacks.when))
}

fn when(peak: &Moment) -> String {
    let when = match peak.number() {
        Some(event) => format!("after event {}", format_count(event)),
        None => "before the first event".to_owned(),
    };
    format!("{} requested on device {}, {when}", format_bytes(peak.bytes), peak.device.0)
}

/// A function and its source location, as written to profiles.
struct Line {
    function: String,
    /// The source file; empty if unknown.
    file: String,
    /// The line number; 0 if unknown.
    line: u32,
}

/// Returns the entries of a stack, innermost first, without the recorder's frames below the allocator.
fn program_entries(tables: &Tables, stack: StackId) -> impl Iterator<Item = LeadingFrame> {
    entries(tables, stack).map(|(_, entry)| entry).skip_while(move |entry| entry.is_recorder(tables))
}

/// Identity of a line: function name, file name and line number; for a frame without source lines, the frame.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum LineKey {
    Source(StringId, StringId, u32),
    Address(FrameId),
    NoStack,
}

#[derive(Default)]
struct Lines {
    rows: Vec<Line>,
    known: HashMap<LineKey, usize>,
}

impl Lines {
    /// Returns the indices of a stack's lines, innermost first and at least one, without the recorder's frames below
    /// the allocator.
    fn of(&mut self, trace: &Trace, stack: StackId) -> Vec<usize> {
        let tables = &trace.tables;
        let mut rows = Vec::new();
        for entry in program_entries(tables, stack) {
            rows.push(match entry {
                LeadingFrame::Line(line) => self.row(LineKey::Source(line.function, line.file, line.line), || Line {
                    function: function_text(tables.string(line.function)).into_owned(),
                    file: tables.string(line.file).to_owned(),
                    line: line.line,
                }),
                LeadingFrame::Address(frame) => {
                    self.row(LineKey::Address(frame), || unnamed(tables.address_text(frame)))
                }
            });
        }
        if rows.is_empty() {
            rows.push(self.row(LineKey::NoStack, || unnamed(NO_STACK.to_owned())));
        }
        rows
    }

    fn row(&mut self, key: LineKey, line: impl FnOnce() -> Line) -> usize {
        *self.known.entry(key).or_insert_with(|| {
            self.rows.push(line());
            self.rows.len() - 1
        })
    }
}

fn unnamed(function: String) -> Line {
    Line { function, file: String::new(), line: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_notation::trace_from_text;

    pub(super) fn written(text: &str, format: StackFormat) -> (Vec<u8>, String) {
        let mut out = Vec::new();
        let source = Source::in_memory(trace_from_text(text).unwrap());
        let lost = write_peak_stacks(&mut out, &source, format).unwrap();
        (out, lost)
    }

    #[test]
    fn the_answer_says_which_moment_was_written() {
        let (_, lost) = written("alloc a 100 < f\nalloc b 40\nfree a", StackFormat::Folded);
        assert!(lost.ends_with("140 B requested on device 0, after event 1"), "{lost}");
        let (_, lost) = written("baseline w 100 < load\nfree w", StackFormat::Pprof);
        assert!(lost.ends_with("100 B requested on device 0, before the first event"), "{lost}");
    }

    #[test]
    fn equal_lines_are_one_the_recorder_has_none_and_every_stack_has_one() {
        let text = "alloc a 1 < highwater_recorder::context::stack < f < main\nalloc b 2 < g < main\nalloc c 3";
        let trace = trace_from_text(text).unwrap();
        let mut lines = Lines::default();
        let rows: Vec<Vec<usize>> = trace.blocks.stack.iter().map(|stack| lines.of(&trace, *stack)).collect();
        assert_eq!(rows, [vec![0, 1], vec![2, 1], vec![3]]);
        let names: Vec<&str> = lines.rows.iter().map(|line| &*line.function).collect();
        assert_eq!(names, ["f", "main", "g", NO_STACK]);
    }
}
