//! Test helpers that create recordings with unresolved addresses and compare recordings apart from their source lines.

use std::path::Path;

use highwater_snapshots::event::{Alloc, Event, Range, What};
use highwater_snapshots::format::{EndFacts, SnapWriter};
use highwater_snapshots::tables::{Frame, Module, Stack};
use highwater_snapshots::trace::{Annotation, Attribute, DeviceFacts, Header, Owner, Trust};
use highwater_snapshots::{
    Category, DeviceId, EventId, FrameId, ModuleId, OpId, Phase, Pool, Problem, ScopeId, StackId, StartingState,
    StreamId, StringId, Trace,
};

use crate::library::BUILD_ID;

/// How a recording ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It was finished.
    Finished,
    /// The program was killed after the last section.
    Killed,
}

/// A recording of three allocations through `library`, with an address in it, one in a module that is nowhere, and one
/// outside of all modules.
pub(crate) fn recording(library: &Path, address: u64, ending: Ending) -> Vec<u8> {
    recording_of(library, &BUILD_ID, address, ending)
}

/// As [`recording`], of a library with this build id.
pub(crate) fn recording_of(library: &Path, build_id: &[u8], address: u64, ending: Ending) -> Vec<u8> {
    let header =
        Header { program: "train".into(), pid: 42, started_unix_us: 1_767_225_600_000_000, ..Header::default() };
    let mut writer = SnapWriter::new(Vec::new(), &header).unwrap();
    writer.write_device(&DeviceFacts { name: "accounting".into(), ..DeviceFacts::default() }).unwrap();
    writer.append_strings(&[&*library.to_string_lossy(), "/gone/libother.so", "a note"]).unwrap();
    let module =
        |path, build_id: &[u8]| Module { path: StringId(path), build_id: build_id.to_vec(), load_bias: 0x7000 };
    writer.append_modules(&[module(0, build_id), module(1, &[9, 9, 9])]).unwrap();
    let frame = |module, address| Frame { module, address, first_line: 0, line_count: 0 };
    let frames = [frame(ModuleId(1), 0x10), frame(ModuleId(0), address), frame(ModuleId::NONE, 0x30)];
    writer.append_frames(&frames).unwrap();
    let stack = |parent, frame| Stack { parent, frame: FrameId(frame) };
    let stacks = [stack(StackId::NONE, 0), stack(StackId(0), 1), stack(StackId(0), 2)];
    writer.append_stacks(&stacks).unwrap();
    let range = Range { address: 0, bytes: 1 << 20, stream: StreamId(0), pool: Pool::Small };
    let state = StartingState { segments: vec![range], ..StartingState::default() };
    writer.write_starting_state(&state).unwrap();
    let event = |time_ns, stack, what| Event { time_ns, device: DeviceId(0), stack: StackId(stack), what };
    writer.write_events(&[event(0, u32::MAX, What::Step(0)), event(1, u32::MAX, What::Phase(Phase::Forward))]).unwrap();
    writer.write_events(&[event(10, 1, alloc(7, 1000)), event(20, 2, alloc(8, 2000))]).unwrap();
    let note = Attribute { owner: Owner::Event(EventId(2)), name: StringId(2), value: StringId(2) };
    writer.append_attributes(&[note]).unwrap();
    let (first, end) = (EventId(0), EventId(2));
    let named = Annotation { name: StringId(2), first, end, ..annotation() };
    writer.append_annotations(&[named]).unwrap();
    let last = [event(30, 1, What::FreeRequested(7)), event(40, u32::MAX, What::Mark(StringId(2)))];
    writer.write_events(&last).unwrap();
    match ending {
        Ending::Killed => writer.get_ref().clone(),
        Ending::Finished => {
            let trust = Trust { events_lost: 3, sizes_inferred: 1, ..Trust::default() };
            writer.finish(&EndFacts { trust, problems: vec![Problem::new("the disk was slow")] }).unwrap()
        }
    }
}

fn annotation() -> Annotation {
    Annotation {
        name: StringId(0),
        device: DeviceId(0),
        start_ns: Some(0),
        end_ns: None,
        first: EventId(0),
        end: EventId(0),
        is_guessed: false,
    }
}

fn alloc(block: u64, bytes: u64) -> What {
    What::Alloc(Alloc {
        block,
        address: block << 12,
        requested: bytes,
        allocated: bytes.next_multiple_of(512),
        stream: StreamId(0),
        pool: Pool::Small,
        category: Category::Activation,
        op: OpId::NONE,
        scope: ScopeId::NONE,
    })
}

/// All of a trace but the source lines of its frames, and the texts that these alone name.
pub(crate) fn without_lines(trace: &Trace, strings: usize) -> String {
    let trace = trace.clone().edited(|trace| {
        trace.tables.lines.clear();
        trace.tables.strings.truncate(strings);
        for frame in &mut trace.tables.frames {
            (frame.first_line, frame.line_count) = (0, 0);
        }
    });
    format!("{trace:#?}")
}
