//! Writes a recording as a trace of events: the totals and the live bytes of each category as counters, steps, phases
//! and regions as slices, and peaks, marks and failed requests as instants. Perfetto's viewer opens these traces.

mod tracks;
mod messages;
mod perfetto;
mod kineto;
mod chrome;

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use highwater_snapshots::event;
use highwater_snapshots::ids::{DeviceId, EventId};
use highwater_snapshots::stage::Stage;
use highwater_snapshots::trace::Trace;
use highwater_snapshots::units::format_bytes;
use highwater_snapshots::{Category, Error, Result};

use self::chrome::Chrome;
use self::perfetto::Perfetto;
use self::tracks::Track;
use super::phases::CategoryTotals;
use super::source::{Source, Watch};
use crate::metric::{Metric, Totals};

pub use self::kineto::KinetoTrace;

/// The distance of two events of a recording without times, in nanoseconds.
const EVENT_NS: u64 = 1000;

/// What happens on a track.
#[derive(Clone, Copy, Debug)]
enum What<'a> {
    /// A slice begins.
    Begin(&'a str),
    /// The slice that began last ends.
    End,
    /// Something happens at a moment.
    Instant(&'a str),
    /// A counter changes to a number of bytes.
    Count(u64),
}

/// Encodes a trace, piece by piece.
trait Encoder: Send {
    /// Adds the description of a track, which precedes its events.
    fn describe(&mut self, track: Track, name: &str);
    /// Adds an event. The time is in nanoseconds since the recording's origin.
    fn event(&mut self, time_ns: u64, track: Track, what: What<'_>);
    /// What has been encoded.
    fn bytes(&self) -> &[u8];
}

/// The time of an event, or of the first one that is not in the window.
fn time_of(trace: &Trace, event: EventId) -> u64 {
    let number = trace.number(event);
    match trace.events.time_ns.get(event.0 as usize) {
        Some(time_ns) if trace.has_times() => *time_ns,
        _ => number * EVENT_NS,
    }
}

/// The packets of a window.
struct Part<E> {
    encoder: E,
    /// The beginnings of steps and phases.
    stages: Vec<(u64, Stage)>,
    /// The time of its last event.
    end_ns: u64,
}

impl<E: Encoder> Part<E> {
    fn of(trace: &Trace, devices: &[DeviceId], mut encoder: E) -> Self {
        devices.iter().for_each(|device| add_values(&mut encoder, trace, *device));
        add_instants(&mut encoder, trace);
        add_regions(&mut encoder, trace);
        let stage = |first: EventId| Some((time_of(trace, first), trace.stage_at(first)?));
        let stages = trace.spans.rows().iter().filter_map(|span| stage(span.first)).collect();
        let end_ns = trace.events.ids().next_back().map_or(0, |last| time_of(trace, last));
        Self { encoder, stages, end_ns }
    }
}

/// Describes the tracks of all devices, and those of steps, phases and marks.
fn describe_all(encoder: &mut impl Encoder, trace: &Trace) {
    for track in [Track::Steps, Track::Phases, Track::Marks] {
        encoder.describe(track, track.name());
    }
    for device in trace.device_ids() {
        let name = trace.device_facts(device).map_or("", |facts| facts.name.as_str());
        let name =
            if name.is_empty() { format!("Device {}", device.0) } else { format!("Device {}: {name}", device.0) };
        encoder.describe(Track::Device(device), &name);
        for metric in Metric::ALL {
            encoder.describe(Track::Total(device, metric), metric.name());
        }
        for &category in Category::ALL {
            encoder.describe(Track::Live(device, category), &format!("live {category}"));
        }
    }
}

/// The values of a device in a window, where they change.
fn add_values(encoder: &mut impl Encoder, trace: &Trace, device: DeviceId) {
    let mut live = CategoryTotals::new(trace, device, Metric::Requested);
    let mut former = (Totals::default(), [0; Category::ALL.len()]);
    let mut change = |time_ns: u64, live: &CategoryTotals<'_>| {
        let totals = live.totals();
        for metric in Metric::ALL.into_iter().filter(|metric| totals.get(*metric) != former.0.get(*metric)) {
            encoder.event(time_ns, Track::Total(device, metric), What::Count(totals.get(metric)));
        }
        for &category in Category::ALL {
            let bytes = live.of(category);
            if bytes != former.1[category as usize] {
                encoder.event(time_ns, Track::Live(device, category), What::Count(bytes));
                former.1[category as usize] = bytes;
            }
        }
        former.0 = totals;
    };
    change(time_of(trace, EventId(0)), &live);
    while let Some((event, _)) = live.step() {
        change(time_of(trace, event), &live);
    }
}

/// The marks and the failed requests of a window.
fn add_instants(encoder: &mut impl Encoder, trace: &Trace) {
    for id in trace.events.ids() {
        let (device, time_ns) = (trace.events.device[id.0 as usize], time_of(trace, id));
        match trace.what(id) {
            event::What::Mark(name) => {
                encoder.event(time_ns, Track::Marks, What::Instant(trace.tables.string(name)));
            }
            event::What::Oom(oom) => {
                let name = format!("out of memory: {} requested", format_bytes(oom.requested));
                encoder.event(time_ns, Track::Device(device), What::Instant(&name));
            }
            _ => {}
        }
    }
}

/// The regions that the program has named, each on the first track that is free. A recording that is read in several
/// windows has none.
fn add_regions(encoder: &mut impl Encoder, trace: &Trace) {
    let named = trace.annotations.iter().filter(|region| !region.is_guessed && !trace.is_tag(region.name));
    let times = named.map(|region| {
        let start = region.start_ns.unwrap_or_else(|| time_of(trace, region.first));
        let last = EventId(region.end.0.saturating_sub(1).max(region.first.0));
        (start, region.end_ns.unwrap_or_else(|| time_of(trace, last)).max(start), region.name)
    });
    let mut regions: Vec<_> = times.collect();
    regions.sort_by_key(|(start, end, _)| (*start, std::cmp::Reverse(*end)));
    let mut free_from: Vec<u64> = Vec::new();
    for (start, end, name) in regions {
        let row = free_from.iter().position(|from| *from <= start).unwrap_or(free_from.len());
        let track = Track::Regions(row as u8);
        if row == free_from.len() {
            if row > usize::from(u8::MAX) {
                continue;
            }
            encoder.describe(track, track.name());
            free_from.push(end);
        }
        free_from[row] = end;
        encoder.event(start, track, What::Begin(trace.tables.string(name)));
        encoder.event(end, track, What::End);
    }
}

/// The slices of steps and phases that have begun.
#[derive(Debug, Default)]
struct Slices {
    stage: Option<Stage>,
}

impl Slices {
    /// Ends what ends at a time, and begins what begins.
    fn turn(&mut self, encoder: &mut impl Encoder, time_ns: u64, next: Option<Stage>) {
        let (step, phase) = (|stage: Stage| stage.step, |stage: Stage| (stage.step, stage.phase));
        let former = self.stage;
        if former.map(phase) != next.map(phase) {
            if former.is_some() {
                encoder.event(time_ns, Track::Phases, What::End);
            }
            if former.and_then(step) != next.and_then(step) {
                if former.and_then(step).is_some() {
                    encoder.event(time_ns, Track::Steps, What::End);
                }
                if let Some(step) = next.and_then(step) {
                    encoder.event(time_ns, Track::Steps, What::Begin(&format!("step {step}")));
                }
            }
            if let Some(stage) = next {
                encoder.event(time_ns, Track::Phases, What::Begin(stage.phase.name()));
            }
        }
        self.stage = next;
    }
}

/// Writes the recording as a Perfetto trace. Returns a sentence about what this format cannot hold.
///
/// # Errors
///
/// If the recording cannot be read, or `out` cannot be written.
pub fn write_perfetto<W: Write>(out: W, source: &Source<'_>, watch: Watch<'_>) -> Result<String> {
    let mut out = BufWriter::new(out);
    write_encoded(&mut out, source, Perfetto::default, watch)?;
    out.flush().map_err(unwritable)?;
    Ok(lost(source.facts()))
}

/// Writes the recording as Chrome's JSON, which `chrome://tracing` and Perfetto's viewer open; if given, together with
/// the events of `beside`, on its clock. Returns a sentence about what this format cannot hold.
///
/// # Errors
///
/// If the recording cannot be read, or has no time in common with `beside`, or if `out` cannot be written.
pub fn write_chrome<W: Write>(
    out: W,
    source: &Source<'_>,
    beside: Option<&KinetoTrace>,
    watch: Watch<'_>,
) -> Result<String> {
    let mut out = BufWriter::new(out);
    let offset_ns = beside.map_or(Ok(0), |trace| trace.offset_ns(source))?;
    out.write_all(chrome::START).map_err(unwritable)?;
    write_encoded(&mut out, source, || Chrome::new(offset_ns), watch)?;
    chrome::finish(&mut out, beside).and_then(|()| out.flush()).map_err(unwritable)?;
    Ok(lost(source.facts()))
}

/// Writes a trace in the encoding of `new`.
fn write_encoded<E: Encoder>(
    out: &mut impl Write,
    source: &Source<'_>,
    new: impl Fn() -> E + Sync,
    watch: Watch<'_>,
) -> Result<()> {
    let facts = source.facts();
    let devices = facts.device_ids();
    let mut write = |encoded: &E| out.write_all(encoded.bytes()).map_err(unwritable);
    let mut head = new();
    describe_all(&mut head, facts);
    for &device in &devices {
        let peak = source.peak(device, Metric::Requested)?;
        let time_ns = peak.time_ns.or_else(|| Some(peak.number()? * EVENT_NS)).unwrap_or(0);
        let name = format!("peak: {} requested", format_bytes(peak.bytes));
        head.event(time_ns, Track::Device(device), What::Instant(&name));
    }
    write(&head)?;
    let has_stages = !facts.spans.is_all_setup();
    let (mut slices, mut end_ns) = (Slices::default(), 0);
    let take = |part: Part<E>| {
        write(&part.encoder)?;
        let mut turns = new();
        for (time_ns, stage) in part.stages.into_iter().filter(|_| has_stages) {
            slices.turn(&mut turns, time_ns, Some(stage));
        }
        end_ns = part.end_ns;
        write(&turns)
    };
    source.try_each_window(|trace| Ok(Part::of(&trace, &devices, new())), take, watch)?;
    let mut end = new();
    slices.turn(&mut end, end_ns, None);
    out.write_all(end.bytes()).map_err(unwritable)
}

fn lost(facts: &Trace) -> String {
    let times = if facts.has_times() { "" } else { "; without times, events are a microsecond apart" };
    format!(
        "blocks and segments with their stacks: the trace has totals by category, steps, phases, regions and moments{times}"
    )
}

fn unwritable(source: io::Error) -> Error {
    Error::Io { doing: "write", source, path: PathBuf::new() }
}

#[cfg(test)]
mod tests;
