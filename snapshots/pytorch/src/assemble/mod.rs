//! Assembles a trace from the contents of a snapshot.
//!
//! A snapshot identifies blocks only by address, gives rounded sizes only for its final state, and starts at an
//! arbitrary point, because its ring buffer keeps only the newest events. Each device is therefore processed in several
//! steps. [`block_matching`] determines which block each event refers to and which blocks existed before, [`start`]
//! determines which segments existed before, and [`layout_replay`] replays how the allocator split them. Then [`merge`]
//! merges the devices' events, and [`writer`] passes them to the builder, with one event of the trace for each event of
//! the snapshot. The blocks of a long trace of one device are replayed on a separate thread while its events are
//! written, using their [`sizes`](mod@sizes) as they are computed.

mod stacks;
mod ops;
mod block_matching;
mod start;
mod layout_replay;
mod sizes;
mod device;
mod merge;
mod attributes;
mod annotations;
mod tags;
mod run;
mod positions;
mod references;
mod shapes;
mod pools;
mod writer;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use rayon::prelude::*;

use super::raw::{RawAnnotation, RawEvent, RawSegment, RawSnapshot};
use super::rows::Rows;
use highwater_snapshots::alloc_rules::AllocRules;
use highwater_snapshots::error::Problem;
use highwater_snapshots::ids::{DeviceId, EventId};
use highwater_snapshots::trace::{DeviceFacts, Header, NOTE, PINNED_DRIVER};
use highwater_snapshots::{Trace, TraceBuilder, count_of};

use annotations::{Mark, annotations};
use attributes::Attributes;
use device::{Device, HOST, Source};
use layout_replay::Layout;
use merge::merge;
use ops::Ops;
use sizes::sizes;
use stacks::{Stacks, take_frames};
use tags::{TagRanges, Tags};
use writer::Writer;

/// Number of events from which on the sizes of blocks are computed on another thread.
const LONG_TRACE: usize = 1 << 16;

/// Assembles a trace from a snapshot. Facts that cannot be represented are listed in the trace's problems or counted in
/// its trust.
///
/// Each event of a device becomes one event, in the order of the device's trace. Several devices are merged by time.
/// Pinned host memory becomes device 255.
pub fn assemble(raw: RawSnapshot) -> Trace {
    let RawSnapshot { strings, frames, stacks: frame_lists, texts, extras, traces, host_trace, .. } = raw;
    let RawSnapshot { logged_shapes, sources, .. } = raw;
    let RawSnapshot { segments, host_segments, blocks, annotations: raw_annotations, settings, problems, run, .. } =
        raw;

    let mut parts = Parts::default();
    for (ordinal, trace) in traces.into_iter().enumerate() {
        parts.add_trace(ordinal, trace);
    }
    for segment in &segments {
        parts.add_segment(segment);
    }
    let host: Vec<&RawSegment> = host_segments.iter().collect();
    if !host_trace.is_empty() || !host.is_empty() {
        parts.devices.insert(HOST.0, (host_trace, host));
    }
    let origin_us = origin(parts.devices.values().map(|(trace, _)| trace.as_slice()), &raw_annotations);

    let events = parts.devices.values().map(|(trace, _)| trace.len()).sum();
    let mut builder = TraceBuilder::with_capacity(events);
    for problem in problems {
        builder.add_problem(problem);
    }
    parts.report_refused(&mut builder);

    let tables = builder.tables();
    tables.strings = strings;
    take_frames(tables, &frames);
    let mut rows = Rows::of(tables);
    let stacks = Stacks::take(tables, &mut rows, &frame_lists, run.value("package").unwrap_or_default());
    drop((frames, frame_lists));
    let level = match (stacks.is_empty(), events) {
        (false, _) => "stacks",
        (true, 0) => "state",
        (true, _) => "events",
    };
    builder.set_header(Header {
        recorder: "PyTorch".to_owned(),
        started_unix_us: origin_us,
        level: level.to_owned(),
        ..run::header(&run)
    });
    if stacks.cut > 0 {
        let stacks = count_of(stacks.cut, "stack");
        let what = format!("the outermost frames of {stacks} deeper than 1023 frames are left out");
        builder.add_problem(Problem::new(what));
    }

    let rules = AllocRules::from_settings(&settings);
    let has_segments = !(segments.is_empty() && host_segments.is_empty());
    let source = Source { blocks: &blocks, extras: &extras, rules: &rules, has_segments };
    let parts: Vec<_> = parts.devices.into_iter().collect();
    let study = |(ordinal, (trace, segments)): (u16, (Vec<RawEvent>, Vec<&RawSegment>))| {
        Device::study(DeviceId(ordinal), trace, &segments, &source)
    };
    let mut devices: Vec<Device> = parts.into_par_iter().map(study).collect();
    // The sizes of a single device's blocks are computed while its events are written.
    let has_threads = rayon::current_num_threads() > 1 && rayon::current_thread_index().is_none();
    let layout = match devices.as_mut_slice() {
        [device] if events >= LONG_TRACE && has_threads => device.layout(&source),
        _ => None,
    };
    let layout = layout.filter(Layout::is_baseline_final);
    match (&layout, devices.as_mut_slice()) {
        (Some(layout), [device]) => device.set_sizes(layout),
        (_, devices) => devices.par_iter_mut().for_each(|device| device.carve(&source)),
    }
    let mut notes = Vec::new();
    for device in &mut devices {
        for problem in std::mem::take(&mut device.problems) {
            builder.add_problem(problem);
        }
        notes.extend(run::full_ring(&run, device.id, device.trace.len()));
        builder.trust().events_lost += run::missing_events(&run, device.id);
        builder.set_device(run::with_facts(facts(device.id, &settings), &run));
    }

    let attributes = Attributes::new(builder.tables(), &mut rows);
    let mut writer = Writer {
        builder,
        source,
        stacks,
        rows,
        attributes,
        ops: Ops::default(),
        texts: &texts,
        origin_us,
        marks: Vec::new(),
        tags: Tags::new(
            run.number("extra_steps").unwrap_or(0),
            run.number("last_step").unwrap_or(u32::MAX),
            run.value("tags").is_some(),
        ),
        tag_ranges: TagRanges::default(),
        sizes: None,
        allocs: 0,
        untagged_allocs: 0,
        starting_segments: 0,
        private_segments: Vec::new(),
    };
    for device in &devices {
        writer.start(device);
    }
    let of_file = raw_annotations.iter().map(|row| Mark {
        name: row.name,
        is_start: row.is_start,
        device: row.device,
        time_ns: writer.time_ns(row.time_us),
        event: EventId::NONE,
    });
    let mut of_file: Vec<Mark> = of_file.collect();
    writer.take_tag_ranges(&mut of_file);
    let of_devices: Vec<&[RawEvent]> = devices.iter().map(|device| device.trace.as_slice()).collect();
    let write = |writer: &mut Writer<'_>| {
        merge(&of_devices, |next, event| {
            writer.write(&devices[next.trace], next.position, event, next.time_us);
        })
    };
    let backwards = match layout {
        Some(mut layout) => {
            let (mut sender, receiver) = sizes();
            writer.sizes = Some(receiver);
            let (of_writer, backwards, layout) = std::thread::scope(|scope| {
                let mut writer = writer;
                let device = &devices[0];
                let replay = scope.spawn(move || {
                    device.replay(&source, &mut layout, |bytes| sender.send(bytes));
                    layout
                });
                let backwards = write(&mut writer);
                writer.sizes = None;
                (writer, backwards, replay.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            });
            writer = of_writer;
            writer.builder.trust().sizes_inferred += layout.inferred - devices[0].sizes_inferred;
            devices[0].note = devices[0].layout_note(&layout);
            backwards
        }
        None => write(&mut writer),
    };
    for (device, count) in devices.iter().zip(backwards).filter(|(_, count)| *count > 0) {
        let what = format!(
            "device {}: events that are earlier than the events before them, whose time they get: {count}",
            device.id.0
        );
        writer.builder.add_problem(Problem::new(what));
    }
    writer.finish();

    let marks: Vec<Mark> = writer.marks.iter().copied().chain(of_file).collect();
    notes.extend(writer.tag_notes());
    let Writer { mut builder, mut rows, tags, .. } = writer;
    notes.extend(devices.iter_mut().filter_map(|device| device.note.take()));
    builder.add_facts(notes.into_iter().map(|note| (NOTE.to_owned(), note)));
    builder.merge_sources(&Arc::new(sources));
    builder.finish().edited(|trace| {
        // The annotations' positions in the order of events are known only now.
        trace.annotations = annotations(&marks, &trace.events);
        trace.annotations.extend(tags.annotations(&mut trace.tables, &mut rows, &trace.events));
        run::name_tensors(trace, &run.tensors, origin_us, &mut rows);
        references::add_references(trace, &run, &mut rows);
        shapes::add_shapes(trace, &run, &logged_shapes, &mut rows);
        pools::add_pools(trace, &segments, &mut rows);
    })
}

#[derive(Debug, Default)]
struct Parts<'a> {
    devices: BTreeMap<u16, (Vec<RawEvent>, Vec<&'a RawSegment>)>,
    refused_events: u64,
    refused_segments: u64,
}

impl<'a> Parts<'a> {
    fn add_trace(&mut self, ordinal: usize, trace: Vec<RawEvent>) {
        match u16::try_from(ordinal).ok().filter(|ordinal| *ordinal < HOST.0) {
            _ if trace.is_empty() => {}
            Some(ordinal) => self.devices.entry(ordinal).or_default().0 = trace,
            None => self.refused_events += trace.len() as u64,
        }
    }

    fn add_segment(&mut self, segment: &'a RawSegment) {
        match u16::try_from(segment.device).ok().filter(|ordinal| *ordinal < HOST.0) {
            Some(ordinal) => self.devices.entry(ordinal).or_default().1.push(segment),
            None => self.refused_segments += 1,
        }
    }

    fn report_refused(&self, builder: &mut TraceBuilder) {
        let (events, segments) = (self.refused_events, self.refused_segments);
        if events + segments > 0 {
            builder.trust().events_lost += events;
            let (events, segments) = (count_of(events, "event"), count_of(segments, "segment"));
            let what = format!("{events} and {segments} of devices below 0 or from {} up are skipped", HOST.0);
            builder.add_problem(Problem::new(what));
        }
    }
}

/// Returns the smallest known time, in microseconds since 1970, or 0 if none is known.
fn origin<'a>(traces: impl Iterator<Item = &'a [RawEvent]>, annotations: &[RawAnnotation]) -> u64 {
    let of_events = traces.flatten().map(|event| event.time_us);
    of_events.chain(annotations.iter().map(|row| row.time_us)).filter(|time| *time > 0).min().unwrap_or(0)
}

fn facts(device: DeviceId, settings: &[(String, String)]) -> DeviceFacts {
    let (name, driver) = if device == HOST { ("pinned host memory", PINNED_DRIVER) } else { ("", "cuda") };
    DeviceFacts {
        device,
        name: name.to_owned(),
        capacity_bytes: 0,
        driver: driver.to_owned(),
        settings: settings.to_vec(),
    }
}
