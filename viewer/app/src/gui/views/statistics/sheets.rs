//! Builds the sheets of a device's statistics and of the facts about its recording.

use highwater_analysis::statistics::{Bin, RangeBin};
use highwater_analysis::{Metric, Statistics};
use highwater_snapshots::{Trace, format_bytes, format_count, format_nanos};

use crate::gui::views::sheet::{Heading, Line, Sheet};
use crate::gui::views::view::Action;
use crate::report::{Unit, Value};

pub(super) const fn bytes(name: &'static str, tooltip: &'static str, width: f32) -> Heading {
    Heading::new(Unit::Bytes, name, tooltip, width)
}

pub(super) const fn count(name: &'static str, tooltip: &'static str, width: f32) -> Heading {
    Heading::new(Unit::Count, name, tooltip, width)
}

pub(super) const fn words(name: &'static str, tooltip: &'static str, width: f32) -> Heading {
    Heading::new(Unit::Text, name, tooltip, width)
}

/// Returns the name of a step, or of the time outside of steps.
fn step_name(step: Option<u32>, is_before: bool) -> String {
    match (step, is_before) {
        (Some(step), _) => step.to_string(),
        (None, true) => "before".to_owned(),
        (None, false) => "outside".to_owned(),
    }
}

pub(super) fn steps(statistics: &Statistics) -> Sheet {
    let metric = statistics.metric;
    let is_sampled = statistics.steps.iter().any(|row| row.peak.device_used > 0);
    let metrics = Metric::ALL.into_iter().filter(|metric| *metric != Metric::DeviceUsed || is_sampled);
    let mut columns = vec![
        words("Step", "The training step; events before, between and after steps have rows of their own.", 70.0),
        bytes("Peak", "The peak of the chosen total in the step.", 140.0),
        Heading::new(Unit::Difference, "Change", "End minus start.", 84.0),
        bytes("Kept", "Bytes allocated in the step and never freed.", 84.0),
        count("Events", "Number of events of the device.", 76.0),
        Heading::new(Unit::Nanos, "Lasted", "Time from the first event of the step to the last.", 84.0),
        count("Allocations", "Number of blocks allocated in the step.", 84.0),
        bytes("Bytes allocated", "Bytes allocated in the step, summed over its blocks.", 84.0),
        count("Frees", "Number of blocks freed in the step.", 76.0),
        bytes("Start", "The chosen total before the step.", 84.0),
        bytes("End", "The chosen total after the step.", 84.0),
        Heading::new(Unit::Difference, "Peak change", "The peak minus the peak of the previous row.", 88.0),
        count("Kept blocks", "Number of blocks allocated in the step and never freed.", 84.0),
        bytes("Requested peak", "The peak of requested bytes in the step.", 104.0),
        bytes("Allocated peak", "The peak of allocated bytes in the step.", 104.0),
        bytes("Active peak", "The peak of active bytes in the step.", 92.0),
        bytes("Reserved peak", "The peak of reserved bytes in the step.", 100.0),
    ];
    if is_sampled {
        columns.push(bytes("Device used peak", "The peak of the memory in use on the whole device.", 118.0));
    }
    let rows = &statistics.steps;
    let has_steps = rows.iter().any(|row| row.step.is_some());
    let has_begun = |index: usize| rows[..index].iter().any(|row| row.step.is_some());
    let lines = rows.iter().enumerate().map(|(index, row)| {
        let before = index.checked_sub(1).and_then(|before| rows.get(before));
        let made = if metric == Metric::Requested { row.requested } else { row.allocated };
        let mut values = vec![
            if has_steps { step_name(row.step, !has_begun(index)).into() } else { "all".into() },
            row.peak.get(metric).into(),
            i128::from(row.growth(metric)).into(),
            row.kept.bytes.into(),
            row.events.into(),
            row.times_ns.map(|(first, last)| last.saturating_sub(first)).into(),
            row.allocations.into(),
            made.into(),
            row.frees.into(),
            row.start.get(metric).into(),
            row.end.get(metric).into(),
            before.map(|before| i128::from(row.peak_growth(before, metric))).into(),
            row.kept.blocks.into(),
        ];
        values.extend(metrics.clone().map(|metric| Value::from(row.peak.get(metric))));
        // The state before the first event belongs to the first row.
        let first = if row.range.start == 0 { 0 } else { row.range.start as usize + 1 };
        Line { values, action: Some(Action::Span(first..row.range.end as usize + 1)) }
    });
    Sheet::new("Steps", columns, lines).measured(1)
}

const OF_BINS: [Heading; 5] = [
    count("Blocks", "Number of blocks over the whole recording.", 90.0),
    bytes("Bytes", "Sum of the sizes of the blocks; reused memory counts each time.", 100.0),
    count("Blocks at peak", "Number of blocks that are live at the peak.", 110.0),
    bytes("Bytes at peak", "Bytes of the blocks that are live at the peak.", 110.0),
    Heading::new(Unit::Number, "Share of peak", "Share of all bytes that are live at the peak.", 100.0),
];

fn of_bin(name: String, bin: &Bin, whole: &Bin, action: Option<String>) -> Line {
    let share = highwater_snapshots::format_share(bin.at_peak.bytes, whole.at_peak.bytes);
    let values = vec![
        name.into(),
        bin.all.blocks.into(),
        bin.all.bytes.into(),
        bin.at_peak.blocks.into(),
        bin.at_peak.bytes.into(),
        share.into(),
    ];
    Line { values, action: action.map(Action::Where) }
}

fn bins(name: &'static str, first: Heading, lines: Vec<Line>, measure: usize) -> Sheet {
    Sheet::new(name, std::iter::once(first).chain(OF_BINS), lines).measured(measure)
}

pub(super) fn sizes(statistics: &Statistics) -> Sheet {
    let key = if statistics.metric == Metric::Requested { "size" } else { "allocated" };
    let line = |row: &RangeBin| {
        let name = if row.to == 0 { "0 B".to_owned() } else { format!("from {}", format_bytes(row.from)) };
        let action = format!("{key}>={} {key}<={}", row.from, row.to);
        of_bin(name, &row.bin, &statistics.blocks, Some(action))
    };
    let lines = statistics.sizes.iter().map(line).collect();
    bins("Sizes", words("Size", "Sizes from this one up to the next row's.", 0.0), lines, 1)
}

pub(super) fn lifetimes(statistics: &Statistics) -> Sheet {
    let lines = statistics.lifetimes.iter().map(|row| {
        let action = format!("lifetime={}", row.life.word());
        of_bin(row.life.name().to_owned(), &row.bin, &statistics.blocks, Some(action))
    });
    bins("Freed", words("Freed when", "How long the blocks are live, in phases and steps.", 124.0), lines.collect(), 4)
}

/// Returns the sheet of blocks by lifetime in events.
pub(super) fn lived(statistics: &Statistics) -> Sheet {
    let line = |row: &RangeBin| {
        let name = match (row.from, row.to) {
            (from, to) if from == to => format!("{from}"),
            (from, to) => format!("{} to {}", format_count(from), format_count(to)),
        };
        of_bin(name, &row.bin, &statistics.blocks, None)
    };
    let mut lines: Vec<Line> = statistics.lived.by_events.iter().map(line).collect();
    lines.push(of_bin("not known".to_owned(), &statistics.lived.open, &statistics.blocks, None));
    let tooltip = "Events from a block's allocation to the request of its free; unknown for blocks allocated before \
                   the recording or not freed in it.";
    bins("Lifetimes", words("Lifetime in events", tooltip, 118.0), lines, 1)
}

pub(super) fn facts(trace: &Trace, statistics: &Statistics) -> Sheet {
    let columns = vec![
        // The value is beside its name even in a narrow panel.
        words("Fact", "The name of the fact.", 0.0),
        words("Value", "The value of the fact.", 168.0),
        words("About", "The subject of the fact.", 90.0),
    ];
    let mut rows: Vec<(&str, String, String)> = Vec::new();
    let mut add = |about, fact: &str, value: String| {
        if !value.is_empty() {
            rows.push((about, fact.to_owned(), value));
        }
    };
    let header = &trace.header;
    add("recorder", "Recorded by", header.recorder.clone());
    add("recorder", "Program", header.program.clone());
    add("recorder", "Machine", header.host.clone());
    add("recorder", "Process", if header.pid > 0 { header.pid.to_string() } else { String::new() });
    let rank = header.rank.map(|rank| match header.world_size {
        Some(world) => format!("{rank} of {world}"),
        None => rank.to_string(),
    });
    add("recorder", "Rank", rank.unwrap_or_default());
    add("recorder", "Level", header.level.clone());
    add("recorder", "Clock", header.clock.clone());
    let kept = header.ring_capacity.map(|events| format!("the last {} events", format_count(events)));
    add("recorder", "Keeps", kept.unwrap_or_default());
    header.facts.iter().for_each(|(name, value)| add("recorder", name, value.clone()));
    if let (Some(first), Some(last)) = (statistics.first_time_ns, statistics.last_time_ns) {
        let lasted = last.saturating_sub(first);
        add("recording", "Time", format_nanos(lasted));
    }
    add("recording", "Events of the device", format_count(statistics.events));
    let numbered = statistics.steps.iter().filter(|row| row.step.is_some()).count();
    add("recording", "Steps", format_count(numbered as u64));
    if let Some(device) = trace.device_facts(statistics.device) {
        add("device", "Name", device.name.clone());
        let capacity = if device.capacity_bytes > 0 { exact(device.capacity_bytes) } else { String::new() };
        add("device", "Memory", capacity);
        add("device", "Driver", device.driver.clone());
        device.settings.iter().for_each(|(name, value)| add("setting", name, value.clone()));
    }
    let allocator = &statistics.allocator;
    let count = format_count;
    add("driver", "Segments allocated", count(allocator.segment_allocs));
    add("driver", "Segments freed", count(allocator.segment_frees));
    add("driver", "Page mappings", count(allocator.maps));
    add("driver", "Page unmappings", count(allocator.unmaps));
    add("driver", "Bytes of segments allocated", exact(allocator.obtained_bytes));
    add("driver", "Bytes of segments freed", exact(allocator.returned_bytes));
    add("driver", "Segments allocated right after a release", count(allocator.obtained_after_release));
    add("driver", "Failed requests", count(allocator.ooms));
    let loss = allocator.allocated_bytes.saturating_sub(allocator.requested_bytes);
    let share = highwater_snapshots::format_share(loss, allocator.allocated_bytes);
    add("allocator", "Rounding, sum over all blocks", format!("{} ({share})", exact(loss)));
    add("allocator", "Rounding at the peak", exact(allocator.rounding_at_peak));
    add("allocator", "Different addresses", count(allocator.addresses));
    if allocator.addresses > 0 {
        let uses = statistics.blocks.all.blocks as f64 / allocator.addresses as f64;
        add("allocator", "Blocks at each address", format!("{uses:.2} on average"));
    }
    let values = |(about, fact, value): (&str, String, String)| vec![fact.into(), value.into(), about.into()];
    Sheet::of_rows("Recording", columns, rows.into_iter().map(values))
}

fn exact(bytes: u64) -> String {
    match bytes {
        0..1024 => format_bytes(bytes),
        _ => format!("{} ({} B)", format_bytes(bytes), format_count(bytes)),
    }
}
