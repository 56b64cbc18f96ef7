//! Writes what is using memory at the peak in the folded format that flame graph programs read.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use highwater_snapshots::ids::StackId;
use highwater_snapshots::trace::Trace;
use highwater_snapshots::units::{format_bytes, format_count};
use highwater_snapshots::{Error, Result};

use super::peak::Moment;
use super::source::Source;
use crate::metric::Metric;

/// The line of blocks without a call stack.
const NO_STACK: &str = "(no stack)";

/// Writes the blocks that are live at the peak of requested bytes on the main device: one line per call stack, with its
/// frames from the outermost to the innermost separated by `;`, a space, and the bytes, sorted by line. Returns a
/// sentence about what this format cannot hold.
///
/// # Errors
///
/// If the recording cannot be read, or `out` cannot be written.
pub fn write_folded<W: Write>(out: W, source: &Source<'_>) -> Result<String> {
    let device = source.facts().main_device();
    let peak = source.peak(device, Metric::Requested)?;
    let window = source.window_at(peak.number())?;
    let trace = &*window.trace;
    let mut bytes_of: HashMap<StackId, u64> = HashMap::new();
    for id in trace.blocks.ids().filter(|id| trace.blocks.device[id.0 as usize] == device) {
        let block = trace.blocks.get(id);
        let is_live = match window.last() {
            Some(event) => block.is_live_after(event),
            None => block.is_baseline(),
        };
        if is_live && !trace.was_waiting_at_start(id) && block.requested > 0 {
            *bytes_of.entry(block.stack).or_default() += block.requested;
        }
    }
    // Stacks that differ only in addresses read the same.
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for (stack, bytes) in bytes_of {
        *lines.entry(line(trace, stack)).or_default() += bytes;
    }
    write_lines(out, &lines).map_err(|source| Error::Io { doing: "write", source, path: PathBuf::new() })?;
    Ok(lost(trace, &peak))
}

fn write_lines<W: Write>(out: W, lines: &BTreeMap<String, u64>) -> io::Result<()> {
    let mut out = BufWriter::new(out);
    for (line, bytes) in lines {
        writeln!(out, "{line} {bytes}")?;
    }
    out.flush()
}

fn line(trace: &Trace, stack: StackId) -> String {
    match trace.tables.folded_text(stack) {
        text if text.is_empty() => NO_STACK.to_owned(),
        text => text,
    }
}

fn lost(trace: &Trace, peak: &Moment) -> String {
    let when = match peak.number() {
        Some(event) => format!("after event {}", format_count(event)),
        None => "before the first event".to_owned(),
    };
    let bytes = format_bytes(peak.bytes);
    let others = if trace.device_ids().len() > 1 { ", and all other devices" } else { "" };
    format!(
        "everything but the stacks and bytes of the blocks that are live at the peak: {bytes} requested on device {}, \
         {when}{others}",
        peak.device.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use highwater_snapshots::text::trace_from_text;

    fn folded(text: &str) -> (String, String) {
        let mut out = Vec::new();
        let lost = write_folded(&mut out, &Source::in_memory(trace_from_text(text).unwrap())).unwrap();
        (String::from_utf8(out).unwrap(), lost)
    }

    #[test]
    fn the_lines_add_up_to_the_peak_and_say_outermost_first() {
        let text = "baseline w 100\nbaseline v 50 waiting\nalloc a 10 < f;x < main\nalloc b 30 < f;x < main\nfree b\n\
                    alloc c 20 < g < main\nfree a\nalloc d 5 < g < main";
        let (lines, lost) = folded(text);
        assert_eq!(lines, "(no stack) 100\nmain;f:x 40\n");
        assert!(lost.ends_with("140 B requested on device 0, after event 1"), "{lost}");
    }

    #[test]
    fn where_nothing_exceeds_the_baseline_the_baseline_is_reported() {
        let (lines, lost) = folded("baseline w 100 < load\nbaseline v 50 waiting\nfree w");
        assert_eq!(lines, "load 100\n");
        assert!(lost.contains("before the first event"));
        assert_eq!(folded("").0, "");
    }
}
