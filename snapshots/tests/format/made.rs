//! Test helpers that create recordings and print traces.

use std::fmt::Write as _;

use highwater_notation::text_from_trace;
use highwater_snapshots::event::{Alloc, Event, Oom, Range, What};
use highwater_snapshots::format::{EndFacts, SectionKind, SnapWriter, Symbols};
use highwater_snapshots::tables::{Frame, Module, Op, Scope, SourceLine, Stack};
use highwater_snapshots::trace::{Annotation, Attribute, DeviceFacts, Header, Owner, Trust};
use highwater_snapshots::{
    BlockId, Category, DeviceId, EventId, FrameId, ModuleId, OpId, Phase, Pool, Problem, ScopeId, SegmentId, StackId,
    StartingBlock, StartingState, StreamId, StringId, Trace,
};

use crate::strange::alloc;

/// A trace as a person reads it: facts, stacks, events, trust and problems.
pub(crate) fn described(trace: &Trace) -> String {
    let header = &trace.header;
    let mut out = format!(
        "recorder {}; program {}; host {}; pid {}; rank {:?} of {:?}; started {} us; clock {}; level {}; ring {:?}\n",
        header.recorder,
        header.program,
        header.host,
        header.pid,
        header.rank,
        header.world_size,
        header.started_unix_us,
        header.clock,
        header.level,
        header.ring_capacity
    );
    for (name, value) in &header.facts {
        let _ = writeln!(out, "fact {name} = {value}");
    }
    for device in &trace.devices {
        let (id, name, bytes) = (device.device.0, &device.name, device.capacity_bytes);
        let _ = writeln!(out, "device {id}: {name}; {bytes} bytes; {}; {:?}", device.driver, device.settings);
    }
    for module in &trace.tables.modules {
        let (path, bias) = (trace.tables.string(module.path), module.load_bias);
        let _ = writeln!(out, "module {path}; build id {:02x?}; load bias {bias:#x}", module.build_id);
    }
    for stack in 0..trace.tables.stacks.len() as u32 {
        let _ = writeln!(out, "stack {stack}: {}", trace.tables.stack_text(StackId(stack)).join(" < "));
    }
    out.push_str(&text_from_trace(trace));
    for annotation in &trace.annotations {
        let (name, first, end) = (trace.tables.string(annotation.name), annotation.first.0, annotation.end.0);
        let (start_ns, end_ns) = (annotation.start_ns, annotation.end_ns);
        let _ = writeln!(out, "annotation {name}: events {first}..{end}; {start_ns:?} to {end_ns:?} ns");
    }
    for source in trace.sources.iter() {
        let _ = writeln!(out, "source {}: {:?}", source.path, source.text);
    }
    for sentence in trace.trust_sentences() {
        let _ = writeln!(out, "trust: {sentence}");
    }
    for problem in &trace.problems {
        let _ = writeln!(out, "problem: {problem}");
    }
    out
}

/// The facts of the recording that [`write_step`] writes.
pub(crate) fn header() -> Header {
    Header {
        recorder: "highwater 0.1.0".to_owned(),
        program: "train".to_owned(),
        host: "node7".to_owned(),
        pid: 4711,
        rank: Some(1),
        world_size: Some(8),
        started_unix_us: 1_790_000_000_000_000,
        clock: "monotonic".to_owned(),
        level: "stacks".to_owned(),
        ring_capacity: None,
        facts: vec![("scenario".to_owned(), "tiny".to_owned())],
    }
}

/// How many events [`write_step`] writes in each of its event sections.
pub(crate) const STEP_CHUNKS: [usize; 4] = [2, 16, 210, 11];

/// Writes a small recording as a recorder does: tables before the events that name them, events in several sections,
/// symbols last. Every section kind is there, and every event kind; `finish` says whether the end is too.
pub(crate) fn write_step(finish: bool) -> Vec<u8> {
    write(finish, None)
}

/// Writes the same recording with summaries and checkpoints, and without annotations and attributes.
pub(crate) fn write_summarized_step() -> Vec<u8> {
    write(true, Some(16))
}

fn write(finish: bool, checkpoint_interval: Option<u64>) -> Vec<u8> {
    let mut writer = SnapWriter::new(Vec::new(), &header()).unwrap();
    if let Some(events) = checkpoint_interval {
        writer.set_checkpoint_interval(events);
    }
    let device = |device, name: &str| DeviceFacts {
        device: DeviceId(device),
        name: name.to_owned(),
        capacity_bytes: 24 << 30,
        driver: "accounting".to_owned(),
        settings: vec![("max_split_size_mb".to_owned(), "64".to_owned())],
    };
    writer.write_device(&device(0, "accounting device")).unwrap();
    writer.write_device(&device(1, "second device")).unwrap();
    writer.append_strings(&["/usr/bin/train", "encoder", "linear", "step begins"]).unwrap();
    writer.append_modules(&[Module { path: StringId(0), build_id: vec![1, 2, 254], load_bias: 0x5555_0000 }]).unwrap();
    writer.append_frames(&[frame(0x1040), frame(0x2080)]).unwrap();
    writer.append_stacks(&[stack(None, 0), stack(Some(0), 1)]).unwrap();
    writer.append_scopes(&[Scope { parent: ScopeId::NONE, name: StringId(1) }]).unwrap();
    writer.append_ops(&[Op { name: StringId(2), scope: ScopeId(0), stack: StackId(1) }]).unwrap();
    writer.write_starting_state(&starting_state()).unwrap();
    let events = step_events();
    let (first, rest) = events.split_at(STEP_CHUNKS[0]);
    writer.write_events(first).unwrap();
    writer.append_strings(&["fc1", "Größe"]).unwrap();
    writer.append_frames(&[frame(0x30c0)]).unwrap();
    writer.append_stacks(&[stack(Some(1), 2)]).unwrap();
    writer.append_scopes(&[Scope { parent: ScopeId(0), name: StringId(4) }]).unwrap();
    let mut rest = rest;
    for length in &STEP_CHUNKS[1..] {
        let (chunk, after) = rest.split_at(*length);
        writer.write_events(chunk).unwrap();
        rest = after;
    }
    assert!(rest.is_empty());
    writer.append_strings(&["main", "forward", "gelu", "src/model.rs"]).unwrap();
    let line = |function, line| SourceLine { function: StringId(function), file: StringId(9), line };
    let symbols = [
        Symbols { frame: FrameId(0), lines: vec![line(6, 3)] },
        Symbols { frame: FrameId(1), lines: vec![line(6, 4)] },
        Symbols { frame: FrameId(1), lines: vec![line(8, 40), line(7, 12)] },
    ];
    writer.append_symbols(&symbols).unwrap();
    if checkpoint_interval.is_none() {
        append_annotations(&mut writer, &events);
    }
    if !finish {
        return writer.get_ref().clone();
    }
    let trust = Trust { events_lost: 3, ..Trust::default() };
    let problems = vec![Problem::new("the clock went back once")];
    writer.finish(&EndFacts { trust, problems }).unwrap()
}

/// Appends annotations whose times are those of their events, and attributes that say of what they are: of an event
/// its time, of a block its bytes, of a segment its address.
fn append_annotations(writer: &mut SnapWriter<Vec<u8>>, events: &[Event]) {
    let mut texts = vec!["ProfilerStep#4".to_owned(), "## forward ##".to_owned(), "of".to_owned()];
    let first_text = writer.rows(SectionKind::Strings) as u32;
    let annotation = |name, first: u32, end: u32, is_guessed| Annotation {
        name: StringId(first_text + name),
        device: DeviceId(0),
        start_ns: events.get(first as usize).map(|event| event.time_ns),
        end_ns: events[..end as usize].last().map(|event| event.time_ns),
        first: EventId(first),
        end: EventId(end),
        is_guessed,
    };
    let count = events.len() as u32;
    let annotations = [
        annotation(0, 1, count, false),
        annotation(1, 6, 17, false),
        annotation(1, 20, 100, true),
        annotation(1, count - 7, count - 3, true),
    ];
    let owners = [
        (Owner::Event(EventId(0)), events[0].time_ns),
        (Owner::Event(EventId(7)), events[7].time_ns),
        (Owner::Event(EventId(60)), events[60].time_ns),
        (Owner::Event(EventId(count - 1)), events[count as usize - 1].time_ns),
        (Owner::Block(BlockId(1)), 5001),
        (Owner::Segment(SegmentId(1)), 0x7e00_0000_0000),
    ];
    let attributes = owners.map(|(owner, value)| {
        texts.push(value.to_string());
        let value = StringId(first_text + texts.len() as u32 - 1);
        Attribute { owner, name: StringId(first_text + 2), value }
    });
    writer.append_strings(&texts).unwrap();
    writer.append_annotations(&annotations[..1]).unwrap();
    writer.append_annotations(&annotations[1..]).unwrap();
    writer.append_attributes(&attributes[..2]).unwrap();
    writer.append_attributes(&attributes[2..]).unwrap();
}

fn frame(address: u64) -> Frame {
    Frame { module: ModuleId(0), address, first_line: 0, line_count: 0 }
}

fn stack(parent: Option<u32>, frame: u32) -> Stack {
    Stack { parent: parent.map_or(StackId::NONE, StackId), frame: FrameId(frame) }
}

fn range(address: u64, bytes: u64) -> Range {
    Range { address, bytes, stream: StreamId(0), pool: Pool::Large }
}

fn starting_state() -> StartingState {
    let block = |key, free_requested| StartingBlock {
        alloc: alloc(key, 5000 + key, Category::Parameter),
        stack: StackId::NONE,
        free_requested,
    };
    StartingState {
        device: DeviceId(0),
        segments: vec![range(0x7f00_0000_0000, 20 << 20)],
        mappings: vec![range(0x7e00_0000_0000, 2 << 20)],
        blocks: vec![block(0, false), block(1, true)],
    }
}

fn step_events() -> Vec<Event> {
    let mut time_ns = 1000;
    let mut events = Vec::new();
    let mut add = |device, stack: Option<u32>, what| {
        time_ns += 250;
        let stack = stack.map_or(StackId::NONE, StackId);
        events.push(Event { time_ns, device: DeviceId(device), stack, what });
    };
    let tagged = |block, category| Alloc { op: OpId(0), ..alloc(block, 3000 * block, category) };
    add(0, None, What::Mark(StringId(3)));
    add(0, None, What::FreeCompleted(1));
    add(0, None, What::Step(0));
    add(0, None, What::Phase(Phase::Forward));
    add(0, None, What::SegmentAlloc(range(0x7f10_0000_0000, 2 << 20)));
    add(0, None, What::SegmentMap(range(0x7e10_0000_0000, 4 << 20)));
    add(0, Some(1), What::Alloc(tagged(2, Category::Activation)));
    add(1, Some(2), What::Alloc(alloc(1, 77, Category::Workspace)));
    add(0, Some(2), What::Alloc(Alloc { scope: ScopeId(1), ..tagged(3, Category::Temporary) }));
    add(0, None, What::FreeRequested(3));
    add(0, None, What::FreeCompleted(3));
    add(0, None, What::DeviceUsed(900 << 20));
    add(0, Some(2), What::Tag(2, Category::Gradient));
    add(
        0,
        Some(1),
        What::Oom(Oom {
            requested: 1 << 40,
            device_free: 1 << 20,
            stream: Some(StreamId(7)),
            op: OpId(0),
            scope: ScopeId(1),
        }),
    );
    add(0, None, What::SegmentUnmap(range(0x7e10_0000_0000, 4 << 20)));
    add(0, None, What::SegmentFree(range(0x7f10_0000_0000, 2 << 20)));
    add(0, None, What::FreeRequested(99));
    add(0, None, What::Phase(Phase::Backward));
    for pair in 0..105 {
        add(0, Some(1 + pair as u32 % 2), What::Alloc(tagged(4 + pair, Category::Temporary)));
        add(0, None, What::FreeRequested(4 + pair));
    }
    add(0, None, What::Phase(Phase::Optimizer));
    for key in 0..3 {
        add(0, Some(0), What::Alloc(alloc(200 + key, 1 << (18 + key), Category::OptimizerState)));
        add(1, None, What::Alloc(alloc(1, 100 + key, Category::Unknown)));
    }
    // A block of the baseline, one of these, one that is unknown, and one that was given back.
    for (key, stack) in [(0, None), (201, Some(1)), (99, None), (4, None)] {
        add(0, stack, What::Used(key));
    }
    events
}
