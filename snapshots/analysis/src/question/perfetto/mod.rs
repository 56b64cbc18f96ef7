//! Writes a recording as a Perfetto trace: the totals and the live bytes of each category as counters, steps and phases as
//! slices, and peaks, marks and failed requests as instants. It opens in Perfetto's viewer.

mod messages;

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;

use highwater_snapshots::event::What;
use highwater_snapshots::ids::{DeviceId, EventId};
use highwater_snapshots::stage::Stage;
use highwater_snapshots::trace::Trace;
use highwater_snapshots::units::format_bytes;
use highwater_snapshots::{Category, Error, Result};
use prost::Message as _;

use self::messages::{Counter, EventType, PACKET_FIELD, Packet, TrackDescriptor, TrackEvent, Unit};
use super::phases::LiveBytes;
use super::source::{Source, Watch};
use crate::index::replay::Replay;
use crate::metric::{Metric, Totals};

/// The distance of two events of a recording without times, in nanoseconds.
const EVENT_NS: u64 = 1000;

/// The tracks that belong to no device.
const STEPS: u64 = 1;
const PHASES: u64 = 2;
const MARKS: u64 = 3;

/// The track of a device, followed by those of its totals and categories.
fn track_of(device: DeviceId) -> u64 {
    (u64::from(device.0) + 1) << 8
}

fn total_track(device: DeviceId, metric: Metric) -> u64 {
    track_of(device) + 1 + metric as u64
}

fn category_track(device: DeviceId, category: Category) -> u64 {
    track_of(device) + 16 + category as u64
}

/// The packets of a trace, encoded.
#[derive(Debug, Default)]
struct Packets(Vec<u8>);

impl Packets {
    fn push(&mut self, packet: Packet) {
        self.0.push(PACKET_FIELD);
        let packet = Packet { trusted_packet_sequence_id: 1, ..packet };
        // Memory grows as it is needed.
        let _ = packet.encode_length_delimited(&mut self.0);
    }

    fn describe(&mut self, uuid: u64, name: String, parent_uuid: Option<u64>, unit: Option<Unit>) {
        let counter = unit.map(|unit| Counter { unit: unit.into() });
        let track = TrackDescriptor { uuid, name, parent_uuid, counter };
        self.push(Packet { track_descriptor: Some(track), ..Packet::default() });
    }

    fn event(&mut self, time_ns: u64, kind: EventType, track_uuid: u64, name: Option<String>) {
        let event = TrackEvent { r#type: kind.into(), track_uuid, name, counter_value: None };
        self.push(Packet { timestamp: Some(time_ns), track_event: Some(event), ..Packet::default() });
    }

    fn count(&mut self, time_ns: u64, track_uuid: u64, bytes: u64) {
        let counter_value = Some(i64::try_from(bytes).unwrap_or(i64::MAX));
        let event = TrackEvent { r#type: EventType::Counter.into(), track_uuid, name: None, counter_value };
        self.push(Packet { timestamp: Some(time_ns), track_event: Some(event), ..Packet::default() });
    }

    /// The descriptions of all tracks.
    fn described(trace: &Trace) -> Self {
        let mut packets = Self::default();
        for (uuid, name) in [(STEPS, "Steps"), (PHASES, "Phases"), (MARKS, "Marks")] {
            packets.describe(uuid, name.to_owned(), None, None);
        }
        for device in trace.device_ids() {
            let name = trace.device_facts(device).map_or("", |facts| facts.name.as_str());
            let name =
                if name.is_empty() { format!("Device {}", device.0) } else { format!("Device {}: {name}", device.0) };
            packets.describe(track_of(device), name, None, None);
            let (parent, unit) = (Some(track_of(device)), Some(Unit::SizeBytes));
            for metric in Metric::ALL {
                packets.describe(total_track(device, metric), metric.name().to_owned(), parent, unit);
            }
            for &category in Category::ALL {
                packets.describe(category_track(device, category), format!("live {category}"), parent, unit);
            }
        }
        packets
    }

    /// The values of a device in a window, where they change.
    fn values(&mut self, trace: &Trace, device: DeviceId) {
        let mut replay = Replay::new(trace, device);
        let mut live = LiveBytes::new(trace, device, Metric::Requested);
        let mut former = (Totals::default(), [0; Category::ALL.len()]);
        let mut change = |packets: &mut Self, time_ns: u64, totals: Totals, live: &LiveBytes| {
            for metric in Metric::ALL.into_iter().filter(|metric| totals.get(*metric) != former.0.get(*metric)) {
                packets.count(time_ns, total_track(device, metric), totals.get(metric));
            }
            for &category in Category::ALL {
                let bytes = live.of(category);
                if bytes != former.1[category as usize] {
                    packets.count(time_ns, category_track(device, category), bytes);
                    former.1[category as usize] = bytes;
                }
            }
            former.0 = totals;
        };
        change(self, time_of(trace, EventId(0)), replay.totals(), &live);
        while let Some(event) = replay.step() {
            live.apply(trace, event);
            change(self, time_of(trace, event), replay.totals(), &live);
        }
    }

    /// The marks and the failed requests of a window.
    fn instants(&mut self, trace: &Trace) {
        for event in trace.events.ids() {
            let (device, time_ns) = (trace.events.device[event.0 as usize], time_of(trace, event));
            match trace.what(event) {
                What::Mark(name) => {
                    let name = trace.tables.string(name).to_owned();
                    self.event(time_ns, EventType::Instant, MARKS, Some(name));
                }
                What::Oom(oom) => {
                    let name = format!("out of memory: {} requested", format_bytes(oom.requested));
                    self.event(time_ns, EventType::Instant, track_of(device), Some(name));
                }
                _ => {}
            }
        }
    }
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
struct Part {
    packets: Packets,
    /// The beginnings of steps and phases.
    stages: Vec<(u64, Stage)>,
    /// The time of its last event.
    end_ns: u64,
}

impl Part {
    fn of(trace: &Trace, devices: &[DeviceId]) -> Self {
        let mut packets = Packets::default();
        devices.iter().for_each(|device| packets.values(trace, *device));
        packets.instants(trace);
        let stage = |first: EventId| Some((time_of(trace, first), trace.stage_at(first)?));
        let stages = trace.spans.rows().iter().filter_map(|span| stage(span.first)).collect();
        let end_ns = trace.events.ids().next_back().map_or(0, |last| time_of(trace, last));
        Self { packets, stages, end_ns }
    }
}

/// The slices of steps and phases that have begun.
#[derive(Debug, Default)]
struct Slices {
    stage: Option<Stage>,
}

impl Slices {
    /// Ends what ends at a time, and begins what begins.
    fn turn(&mut self, packets: &mut Packets, time_ns: u64, next: Option<Stage>) {
        let (step, phase) = (|stage: Stage| stage.step, |stage: Stage| (stage.step, stage.phase));
        let former = self.stage;
        if former.map(phase) != next.map(phase) {
            if former.is_some() {
                packets.event(time_ns, EventType::SliceEnd, PHASES, None);
            }
            if former.and_then(step) != next.and_then(step) {
                if former.and_then(step).is_some() {
                    packets.event(time_ns, EventType::SliceEnd, STEPS, None);
                }
                if let Some(step) = next.and_then(step) {
                    packets.event(time_ns, EventType::SliceBegin, STEPS, Some(format!("step {step}")));
                }
            }
            if let Some(stage) = next {
                packets.event(time_ns, EventType::SliceBegin, PHASES, Some(stage.phase.name().to_owned()));
            }
        }
        self.stage = next;
    }
}

/// Writes the recording. Returns a sentence about what this format cannot hold.
///
/// # Errors
///
/// If the recording cannot be read, or `out` cannot be written.
pub fn write_perfetto<W: Write>(out: W, source: &Source<'_>, watch: Watch<'_>) -> Result<String> {
    let mut out = BufWriter::new(out);
    let facts = source.facts();
    let devices = facts.device_ids();
    let mut write = |packets: &Packets| out.write_all(&packets.0).map_err(unwritable);
    let mut head = Packets::described(facts);
    for &device in &devices {
        let peak = source.peak(device, Metric::Requested)?;
        let time_ns = peak.time_ns.or_else(|| Some(peak.number()? * EVENT_NS)).unwrap_or(0);
        let name = format!("peak: {} requested", format_bytes(peak.bytes));
        head.event(time_ns, EventType::Instant, track_of(device), Some(name));
    }
    write(&head)?;
    let has_stages = !facts.spans.is_all_setup();
    let (mut slices, mut end_ns) = (Slices::default(), 0);
    let take = |part: Part| {
        write(&part.packets)?;
        let mut turns = Packets::default();
        for (time_ns, stage) in part.stages.into_iter().filter(|_| has_stages) {
            slices.turn(&mut turns, time_ns, Some(stage));
        }
        end_ns = part.end_ns;
        write(&turns)
    };
    source.try_each_window(|trace| Ok(Part::of(&trace, &devices)), take, watch)?;
    let mut end = Packets::default();
    slices.turn(&mut end, end_ns, None);
    out.write_all(&end.0).and_then(|()| out.flush()).map_err(unwritable)?;
    let times = if facts.has_times() { "" } else { "; without times, events are a microsecond apart" };
    Ok(format!(
        "blocks and segments with their stacks: the trace has totals by category, steps, phases and moments{times}"
    ))
}

fn unwritable(source: io::Error) -> Error {
    Error::Io { doing: "write", source, path: PathBuf::new() }
}

#[cfg(test)]
mod tests {
    use std::ops::ControlFlow;

    use super::*;
    use highwater_snapshots::text::trace_from_text;

    /// The packets of a trace.
    fn packets(text: &str) -> Vec<Packet> {
        let source = Source::in_memory(trace_from_text(text).unwrap());
        let mut bytes = Vec::new();
        write_perfetto(&mut bytes, &source, &mut |_| ControlFlow::Continue(())).unwrap();
        let mut left = &*bytes;
        let mut packets = Vec::new();
        while let Some(rest) = left.strip_prefix(&[PACKET_FIELD]) {
            left = rest;
            packets.push(Packet::decode_length_delimited(&mut left).unwrap());
        }
        assert!(left.is_empty());
        packets
    }

    #[test]
    fn totals_categories_steps_and_moments_are_tracks() {
        let text = "step 0\nphase forward\nalloc a 3000/3072 activation\nalloc t 1000/1024\nphase backward\nfree t\nmark half\n\
                    step 1\noom 5000 free=1\nfree a\n";
        let packets = packets(text);
        let name = |uuid: u64| {
            let track = packets.iter().filter_map(|packet| packet.track_descriptor.as_ref()).find(|of| of.uuid == uuid);
            track.map(|track| track.name.clone()).unwrap()
        };
        let events = packets.iter().filter_map(|packet| packet.track_event.as_ref());
        let of = |kind: EventType| {
            let events = events.clone().filter(move |event| event.r#type == i32::from(kind));
            let text = |event: &TrackEvent| {
                let value = event.counter_value.map(|bytes| bytes.to_string());
                format!("{}: {}", name(event.track_uuid), event.name.clone().or(value).unwrap_or_default())
            };
            events.map(text).collect::<Vec<String>>()
        };
        let values = of(EventType::Counter);
        assert_eq!(values.iter().filter(|text| text.starts_with("requested")).count(), 4, "{values:?}");
        assert!(values.contains(&"requested: 4000".to_owned()) && values.contains(&"active: 4096".to_owned()));
        assert_eq!(values.iter().filter(|text| text.starts_with("live activation")).count(), 2);
        assert_eq!(values.last().unwrap(), "active: 0");
        let begun = of(EventType::SliceBegin);
        let steps: Vec<&String> = begun.iter().filter(|name| name.starts_with("Steps")).collect();
        assert_eq!(steps, ["Steps: step 0", "Steps: step 1"]);
        assert_eq!(begun[2..4], ["Phases: forward", "Phases: backward"]);
        assert_eq!(of(EventType::SliceEnd).len(), begun.len(), "everything ends");
        let instants = of(EventType::Instant);
        assert_eq!(instants.len(), 3);
        assert!(instants[0].ends_with("peak: 3.91 KiB requested") && instants[1] == "Marks: half", "{instants:?}");
    }
}
