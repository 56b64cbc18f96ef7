//! Writes a recording as an event trace: totals and the live bytes of each category as counters; steps, phases and
//! regions as slices; peaks, marks and failed requests as instants. Perfetto's viewer opens these traces.

mod tracks;
mod output;
mod messages;
mod perfetto;
mod kineto;
mod chrome;

use std::io::Write;

use highwater_snapshots::event;
use highwater_snapshots::ids::{DeviceId, EventId};
use highwater_snapshots::stage::Stage;
use highwater_snapshots::trace::Trace;
use highwater_snapshots::units::format_bytes;
use highwater_snapshots::{Category, Result};

use self::chrome::Chrome;
use self::output::{Encoding, Output, What, unwritable};
use self::perfetto::Perfetto;
use self::tracks::Track;
use super::phases::CategoryTotals;
use super::source::{Source, Watch, finished};
use crate::metric::Metric;

pub use self::kineto::KinetoTrace;

/// The assumed interval between two events of a recording without times, in nanoseconds.
const EVENT_NS: u64 = 1000;

/// The time of an event; in a recording without times, and past the end of the window, as if all intervals were
/// [`EVENT_NS`].
fn time_of(trace: &Trace, event: EventId) -> u64 {
    let number = trace.number(event);
    match trace.events.time_ns.get(event.0 as usize) {
        Some(time_ns) if trace.has_times() => *time_ns,
        _ => number * EVENT_NS,
    }
}

/// Writes the descriptions of the tracks of all devices, and of the tracks of steps, phases and marks.
fn describe_all(out: &mut Output<'_, impl Encoding>, trace: &Trace) {
    for track in [Track::Steps, Track::Phases, Track::Marks] {
        out.describe(track, track.name());
    }
    for device in trace.device_ids() {
        let name = trace.device_facts(device).map_or("", |facts| facts.name.as_str());
        let name =
            if name.is_empty() { format!("Device {}", device.0) } else { format!("Device {}: {name}", device.0) };
        out.describe(Track::Device(device), &name);
        for metric in Metric::ALL {
            out.describe(Track::Total(device, metric), metric.name());
        }
        for &category in Category::ALL {
            out.describe(Track::Live(device, category), &format!("live {category}"));
        }
    }
}

/// Adds the values of a device's counters in a window where these differ from `former`.
fn add_values(out: &mut Output<'_, impl Encoding>, trace: &Trace, device: DeviceId, former: &mut [u64]) -> Result<()> {
    let mut live = CategoryTotals::new(trace, device, Metric::Requested);
    let mut time_ns = time_of(trace, EventId(0));
    loop {
        let totals = Metric::ALL.into_iter().map(|metric| (Track::Total(device, metric), live.totals().get(metric)));
        let categories = Category::ALL.iter().map(|category| (Track::Live(device, *category), live.of(*category)));
        for ((track, bytes), former) in totals.chain(categories).zip(&mut *former) {
            if std::mem::replace(former, bytes) != bytes {
                out.value(time_ns, track, bytes)?;
            }
        }
        let Some((event, _)) = live.step() else { return Ok(()) };
        time_ns = time_of(trace, event);
    }
}

fn add_instants(out: &mut Output<'_, impl Encoding>, trace: &Trace) -> Result<()> {
    for id in trace.events.ids() {
        let (device, time_ns) = (trace.events.device[id.0 as usize], time_of(trace, id));
        match trace.what(id) {
            event::What::Mark(name) => {
                out.event(time_ns, Track::Marks, What::Instant(trace.tables.string(name)))?;
            }
            event::What::Oom(oom) => {
                let name = format!("out of memory: {} requested", format_bytes(oom.requested));
                out.event(time_ns, Track::Device(device), What::Instant(&name))?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Adds the regions that the program marked, each to the first free track. Recordings read in several windows have
/// none.
fn add_regions(out: &mut Output<'_, impl Encoding>, trace: &Trace) -> Result<()> {
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
            out.describe(track, track.name());
            free_from.push(end);
        }
        free_from[row] = end;
        out.event(start, track, What::Begin(trace.tables.string(name)))?;
        out.event(end, track, What::End)?;
    }
    Ok(())
}

/// The open slices of the current step and phase.
#[derive(Debug, Default)]
struct Slices {
    stage: Option<Stage>,
}

impl Slices {
    /// Ends the open slices that differ from the `next` stage, and begins new slices.
    fn turn(&mut self, out: &mut Output<'_, impl Encoding>, time_ns: u64, next: Option<Stage>) -> Result<()> {
        let (step, phase) = (|stage: Stage| stage.step, |stage: Stage| (stage.step, stage.phase));
        let former = self.stage;
        if former.map(phase) != next.map(phase) {
            if former.is_some() {
                out.event(time_ns, Track::Phases, What::End)?;
            }
            if former.and_then(step) != next.and_then(step) {
                if former.and_then(step).is_some() {
                    out.event(time_ns, Track::Steps, What::End)?;
                }
                if let Some(step) = next.and_then(step) {
                    out.event(time_ns, Track::Steps, What::Begin(&format!("step {step}")))?;
                }
            }
            if let Some(stage) = next {
                out.event(time_ns, Track::Phases, What::Begin(stage.phase.name()))?;
            }
        }
        self.stage = next;
        Ok(())
    }
}

/// Writes the recording as a Perfetto trace. Returns a sentence about the data that the format cannot represent.
///
/// # Errors
/// Fails if the recording cannot be read, or `out` cannot be written.
pub fn write_perfetto(out: &mut dyn Write, source: &Source<'_>, watch: Watch<'_>) -> Result<String> {
    write_encoded(&mut Output::new(out, Perfetto), source, watch)?;
    Ok(lost(source.facts()))
}

/// Writes the recording as Chrome's JSON, which `chrome://tracing` and Perfetto's viewer open. With `beside`, includes
/// the events of that trace and uses its clock. Returns a sentence about the data that the format cannot represent.
///
/// # Errors
/// Fails if the recording cannot be read, does not overlap with `beside` in time, or if `out` cannot be written.
pub fn write_chrome(
    out: &mut dyn Write,
    source: &Source<'_>,
    beside: Option<&KinetoTrace>,
    watch: Watch<'_>,
) -> Result<String> {
    let offset_ns = beside.map_or(Ok(0), |trace| trace.offset_ns(source))?;
    out.write_all(chrome::START).map_err(unwritable)?;
    write_encoded(&mut Output::new(out, Chrome { offset_ns }), source, watch)?;
    chrome::finish(out, beside).map_err(unwritable)?;
    Ok(lost(source.facts()))
}

/// Writes a trace with one window in memory at a time. Encodes counter values in parallel.
fn write_encoded(out: &mut Output<'_, impl Encoding>, source: &Source<'_>, watch: Watch<'_>) -> Result<()> {
    let facts = source.facts();
    let devices = facts.device_ids();
    describe_all(out, facts);
    for &device in &devices {
        let peak = source.peak(device, Metric::Requested)?;
        let time_ns = peak.time_ns.or_else(|| Some(peak.number()? * EVENT_NS)).unwrap_or(0);
        let name = format!("peak: {} requested", format_bytes(peak.bytes));
        out.event(time_ns, Track::Device(device), What::Instant(&name))?;
    }
    let has_stages = !facts.spans.is_all_setup();
    let mut formers = vec![[0; Metric::ALL.len() + Category::ALL.len()]; devices.len()];
    let (mut slices, mut end_ns) = (Slices::default(), 0);
    for range in source.passes() {
        let trace = source.window(range.clone())?.trace;
        for (device, former) in devices.iter().zip(&mut formers) {
            add_values(out, &trace, *device, former)?;
        }
        add_instants(out, &trace)?;
        add_regions(out, &trace)?;
        for first in trace.spans.rows().iter().map(|span| span.first).filter(|_| has_stages) {
            slices.turn(out, time_of(&trace, first), trace.stage_at(first).or(slices.stage))?;
        }
        end_ns = trace.events.ids().next_back().map_or(0, |last| time_of(&trace, last));
        finished(watch(range.end))?;
    }
    slices.turn(out, end_ns, None)?;
    out.flush()
}

fn lost(facts: &Trace) -> String {
    let times = if facts.has_times() { "" } else { "; without times, events are a microsecond apart" };
    format!(
        "blocks and segments with their stacks: the trace has totals by category, steps, phases, regions and moments{times}"
    )
}

#[cfg(test)]
mod tests;
