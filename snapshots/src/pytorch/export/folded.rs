//! Folded: who holds memory at the peak, as the lines that flame graph programs read.

use std::collections::BTreeMap;
use std::collections::HashMap;
use std::io::Write;

use super::Exported;
use super::document::Output;
use crate::analysis::{Metric, Moment, Series};
use crate::error::Result;
use crate::ids::{EventId, StackId};
use crate::trace::Trace;
use crate::units::{format_bytes, format_count};

/// Stands for the stack of a block that has none.
const NO_STACK: &str = "(no stack)";

/// Writes the blocks that are live when requested bytes peak on the main device: a line for each stack, its frames from
/// the outermost to the innermost with `;` between them, a space, and the bytes. In the order of the lines.
pub(super) fn write<W: Write>(out: W, trace: &Trace) -> Result<Exported> {
    let device = trace.main_device();
    let series = Series::build(trace, device);
    let peak = Moment::peak(trace, &series, Metric::Requested);
    let mut bytes_of: HashMap<StackId, u64> = HashMap::new();
    for id in trace.blocks.ids().filter(|id| trace.blocks.device[id.0 as usize] == device) {
        let block = trace.blocks.get(id);
        let is_live = match peak.event {
            Some(event) => block.is_live_after(event),
            None => block.is_baseline(),
        };
        if is_live && !trace.was_waiting_at_start(id) && block.requested > 0 {
            *bytes_of.entry(block.stack).or_default() += block.requested;
        }
    }
    // Stacks that differ in addresses alone read the same.
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for (stack, bytes) in bytes_of {
        *lines.entry(line(trace, stack)).or_default() += bytes;
    }
    let mut out = Output::new(out);
    for (line, bytes) in &lines {
        out.put(line.as_bytes())?;
        out.put(format!(" {bytes}\n").as_bytes())?;
    }
    out.flush()?;
    Ok(Exported { events: trace.events.len() as u64, lost: vec![lost(trace, &peak)] })
}

fn line(trace: &Trace, stack: StackId) -> String {
    match trace.tables.folded_text(stack) {
        text if text.is_empty() => NO_STACK.to_owned(),
        text => text,
    }
}

fn lost(trace: &Trace, peak: &Moment) -> String {
    let when = match peak.event {
        Some(EventId(event)) => format!("after event {}", format_count(u64::from(event))),
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
    use crate::text::trace_from_text;

    fn folded(text: &str) -> (String, Exported) {
        let mut out = Vec::new();
        let exported = write(&mut out, &trace_from_text(text).unwrap()).unwrap();
        (String::from_utf8(out).unwrap(), exported)
    }

    #[test]
    fn the_lines_add_up_to_the_peak_and_say_outermost_first() {
        let text = "baseline w 100\nbaseline v 50 waiting\nalloc a 10 < f;x < main\nalloc b 30 < f;x < main\nfree b\n\
                    alloc c 20 < g < main\nfree a\nalloc d 5 < g < main";
        let (lines, exported) = folded(text);
        assert_eq!(lines, "(no stack) 100\nmain;f:x 40\n");
        assert_eq!(exported.lost.len(), 1);
        assert!(exported.lost[0].ends_with("140 B requested on device 0, after event 1"), "{}", exported.lost[0]);
    }

    #[test]
    fn where_nothing_exceeds_the_baseline_the_baseline_is_told() {
        let (lines, exported) = folded("baseline w 100 < load\nbaseline v 50 waiting\nfree w");
        assert_eq!(lines, "load 100\n");
        assert!(exported.lost[0].contains("before the first event"));
        assert_eq!(folded("").0, "");
    }
}
