//! All facts about a block, each as a name and a value.

use highwater_analysis::frames::user_line;
use highwater_analysis::{Lifetime, Metric, bytes_of, condition, leading_frame};
use highwater_snapshots::references::readable;
use highwater_snapshots::shown::{MAX_SHOWN, shown};
use highwater_snapshots::tables::SourceLine;
use highwater_snapshots::trace::Block;
use highwater_snapshots::units::count_of;
use highwater_snapshots::{BlockId, EventId, Phase, StackId, Trace, format_bytes, format_count, format_share};

use crate::gui::colouring::short_line;
use crate::gui::widgets::words::category;
use crate::gui::widgets::{before, event_text, life, outside, phase, span_text, title};
use crate::{DeviceIndex, Recording};

/// The call site, operation or module that allocated a block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Origin {
    /// The kind, such as `call site`, `operation` or `module`.
    pub kind: &'static str,
    pub name: String,
    pub condition: String,
}

#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub title: String,
    pub life: String,
    pub rows: Vec<(String, String)>,
    /// The call stacks of the block's allocation, of its operation if different, and of its free.
    pub stacks: Vec<(&'static str, StackId)>,
    pub origins: Vec<Origin>,
    /// The moments after the block's allocation and after its requested free; `None` if not recorded.
    pub made: Option<usize>,
    pub freed: Option<usize>,
}

impl Facts {
    pub(super) fn of(recording: &Recording, id: BlockId, metric: Metric) -> Self {
        let trace = &recording.trace;
        let block = trace.blocks.get(id);
        let was_waiting = trace.was_waiting_at_start(id);
        let freed_at = block.free_requested.index().filter(|_| !was_waiting);
        let free_stack = freed_at.and_then(|index| trace.events.stack.get(index)).copied();
        let forward = trace.tables.op(block.op).map_or(StackId::NONE, |op| op.stack);
        let mut stacks = vec![("Allocated by", block.stack)];
        if forward.is_some() && forward != block.stack {
            // Of a gradient, the operation was called in forward; other blocks are allocated by the operation itself.
            let is_later = trace.birth_stage(&block).is_some_and(|stage| stage.phase == Phase::Backward);
            stacks.push((if is_later { "Forward operation called by" } else { "Operation called by" }, forward));
        }
        stacks.push(("Freed by", free_stack.unwrap_or(StackId::NONE)));
        let mut rows = rows(recording, id, &block, was_waiting);
        rows.extend(weight(recording, id, &block, metric));
        rows.extend(attributes(trace, id));
        Self {
            title: headline(recording, id, metric),
            life: life(trace, id),
            rows,
            stacks,
            origins: origins(trace, &block),
            made: block.alloc.index().map(|index| index + 1),
            freed: freed_at.map(|index| index + 1),
        }
    }

    pub(super) fn text(&self) -> String {
        let rows = self.rows.iter().map(|(name, value)| format!("{name}: {value}\n"));
        format!("{}\n{}\n{}", self.title, self.life, rows.collect::<String>())
    }
}

/// Describes the block, such as `512 MiB activation of linear, train.py:7 forward`.
fn headline(recording: &Recording, id: BlockId, metric: Metric) -> String {
    let trace = &recording.trace;
    let block = trace.blocks.get(id);
    let line = leading_frame(&trace.tables, block.stack).map(|frame| short_line(&frame.text(&trace.tables)));
    let line = line.filter(|line| !line.is_empty()).map_or_else(String::new, |line| format!(", {line}"));
    format!("{} {}{line}", format_bytes(bytes_of(trace, metric, id)), title(recording, id))
}

fn exact(bytes: u64) -> String {
    format!("{} ({} B)", format_bytes(bytes), format_count(bytes))
}

fn rows(recording: &Recording, id: BlockId, block: &Block, was_waiting: bool) -> Vec<(String, String)> {
    let trace = &recording.trace;
    let tables = &trace.tables;
    let or_unknown = |text: &str| if text.is_empty() { "unknown" } else { text }.to_owned();
    let guessed = if trace.trust.categories_guessed { ", guessed" } else { "" };
    let rounding = block.allocated.saturating_sub(block.requested);
    let made = || event_text(trace, block.alloc, "before the recording");
    let mut rows = vec![
        ("Requested", exact(block.requested)),
        ("Allocated", exact(block.allocated)),
        ("Lost to rounding", format!("{} ({})", format_bytes(rounding), format_share(rounding, block.allocated))),
        ("Category", format!("{}{guessed}", category(recording, id))),
        ("Operation", or_unknown(tables.op_name(block.op))),
        ("Module", or_unknown(&tables.scope_path(block.scope))),
        ("Allocated at", block.birth.map_or_else(made, |birth| outside(&birth))),
    ];
    let (requested, completed) = (block.free_requested, block.free_completed);
    if let Some(phase) = phase(trace, block.alloc).filter(|_| !block.is_baseline()) {
        rows.push(("Allocated in", phase));
    }
    rows.push(("Last used at", last_use(trace, block)));
    let freed = if was_waiting {
        before(trace).to_owned()
    } else {
        let freed = || event_text(trace, requested, "not in the recording");
        block.death.map_or_else(freed, |death| outside(&death))
    };
    rows.push(("Freed at", freed));
    if let Some(phase) = phase(trace, requested).filter(|_| requested.is_some() && !was_waiting) {
        rows.push(("Freed in", phase));
    }
    if was_waiting || completed != requested && completed.0 != requested.0.wrapping_add(1) {
        rows.push(("Reusable at", event_text(trace, completed, "not in the recording")));
    }
    if requested.is_some() && completed.is_some() && !was_waiting && completed.0 > requested.0.wrapping_add(1) {
        rows.push(("Waited for a stream", between(trace, requested, completed)));
    }
    rows.push(("Lifetime", Lifetime::of(trace, block).name().to_owned()));
    if block.alloc.is_some() && requested.is_some() {
        rows.push(("Live for", between(trace, block.alloc, requested)));
    }
    rows.push(("Stream and pool", format!("stream {}, {} pool", block.stream.0, block.pool)));
    rows.push(("Address", format!("{:#x} on device {}", block.address, block.device.0)));
    rows.push((
        "Id",
        format!("block {} of {}", format_count(u64::from(id.0)), format_count(trace.blocks.len() as u64)),
    ));
    rows.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

fn last_use(trace: &Trace, block: &Block) -> String {
    if !trace.records_uses() {
        return "not recorded".to_owned();
    }
    if !block.last_use.is_some() {
        return "never in the recording".to_owned();
    }
    let at = event_text(trace, block.last_use, "");
    if block.free_requested.is_some() {
        format!("{at}; {} before it was freed", between(trace, block.last_use, block.free_requested))
    } else {
        format!("{at}; live to the end")
    }
}

/// Formats the number of events and the time between two events.
fn between(trace: &Trace, first: EventId, last: EventId) -> String {
    let events = count_of(u64::from(last.0.saturating_sub(first.0)), "event");
    let time = span_text(trace, [first, last]).map_or_else(String::new, |time| format!(", {time}"));
    format!("{events}{time}")
}

/// The block's share of the device's total at the peak, and at the largest total during its lifetime.
fn weight(recording: &Recording, id: BlockId, block: &Block, metric: Metric) -> Vec<(String, String)> {
    let trace = &recording.trace;
    let Some(index) = recording.devices.iter().find(|index| index.device == block.device) else { return Vec::new() };
    let peak = index.peak(trace, metric);
    let bytes = bytes_of(trace, metric, id);
    let holds = holding(trace, id, block, metric);
    let at_peak = if holds.contains(&peak.position()) {
        format!("{} of {}", format_share(bytes, peak.bytes), format_bytes(peak.bytes))
    } else {
        "not live then".to_owned()
    };
    let mut rows = vec![("Share at the peak".to_owned(), at_peak)];
    if let Some((most, at)) = highest(trace, index, metric, holds) {
        let at =
            at.map_or_else(|| before(trace).to_owned(), |event| format!("event {}", format_count(trace.number(event))));
        let text = format!("{} of {}, {at}", format_share(bytes, most), format_bytes(most));
        rows.push(("Largest share".to_owned(), text));
    }
    rows
}

/// The range of moments at which a block is part of a total.
fn holding(trace: &Trace, id: BlockId, block: &Block, metric: Metric) -> std::ops::Range<usize> {
    let ends_at_request = matches!(metric, Metric::Requested | Metric::Allocated);
    if ends_at_request && trace.was_waiting_at_start(id) {
        return 0..0;
    }
    let end = if ends_at_request { block.free_requested } else { block.free_completed };
    let first = block.alloc.index().map_or(0, |index| index + 1);
    first..end.index().map_or(trace.events.len(), |index| index) + 1
}

/// Returns the largest total in a range of moments, and the event that reaches it, which is `None` before the first
/// event; `None` for an empty range.
fn highest(
    trace: &Trace,
    index: &DeviceIndex,
    metric: Metric,
    moments: std::ops::Range<usize>,
) -> Option<(u64, Option<EventId>)> {
    if moments.is_empty() {
        return None;
    }
    let baseline = (moments.start == 0).then(|| (index.series.baseline().get(metric), None));
    let events = moments.start.saturating_sub(1)..moments.end - 1;
    let later = index.series.largest(trace, metric, events).map(|(bytes, event)| (bytes, Some(event)));
    match (baseline, later) {
        (Some(baseline), Some(later)) => Some(if later.0 > baseline.0 { later } else { baseline }),
        (baseline, later) => baseline.or(later),
    }
}

/// Returns the attributes of a block. Their values may have several lines.
fn attributes(trace: &Trace, id: BlockId) -> impl Iterator<Item = (String, String)> {
    let text = |id| trace.tables.string(id);
    let facts = trace.attributes_of(trace.block_owner(id)).iter();
    let facts = facts.flat_map(move |attribute| readable(text(attribute.name), text(attribute.value)));
    facts.map(|(name, value)| {
        let lines: Vec<_> = value.lines().take(MAX_LINES).map(|line| shown(line, MAX_SHOWN)).collect();
        (name, lines.join("\n"))
    })
}

const MAX_LINES: usize = 200;

pub(super) fn origins(trace: &Trace, block: &Block) -> Vec<Origin> {
    let tables = &trace.tables;
    let line = leading_frame(tables, block.stack).map(|frame| frame.text(tables)).unwrap_or_default();
    let named = [
        ("call site", "frame", line),
        ("operation", "op", tables.op_name(block.op).to_owned()),
        ("module", "scope", tables.scope_path(block.scope)),
    ];
    let named = named.into_iter().filter(|(_, _, name)| !name.is_empty());
    named
        .filter_map(|(kind, key, name)| Some(Origin { kind, condition: condition::equals(key, &name)?, name }))
        .collect()
}

/// The source line that represents a stack.
pub(super) fn main_line(trace: &Trace, stack: StackId) -> Option<SourceLine> {
    user_line(&trace.tables, stack).filter(|line| line.line > 0)
}
