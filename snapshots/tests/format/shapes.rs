//! Tests tensor shapes and the text of source files, in recordings read as a whole and in parts.

use std::ops::ControlFlow;
use std::sync::Arc;

use highwater_snapshots::byte_source::ByteSource;
use highwater_snapshots::event::{Event, What};
use highwater_snapshots::format::{EndFacts, SnapWriter, Windows, read_bytes};
use highwater_snapshots::trace::{Attribute, Owner, SHAPE, SourceText};
use highwater_snapshots::{
    BlockId, Category, DeviceId, EventId, Result, StackId, StartingBlock, StartingState, StringId, Trace,
};

use crate::made::{described, header};
use crate::strange::alloc;

const SHAPES: [&str; 4] = ["[32, 1024] float32", "[] int64", "[8] bfloat16", "[7, 7] bool"];

/// Of the second of two files: other texts, but for one in another row.
const OTHER_SHAPES: [&str; 5] = ["[5] int8", "[7, 7] bool", "[9] float16", "[2, 3] float64", "[4] int32"];

fn source(path: &str, text: &str) -> SourceText {
    SourceText { path: path.to_owned(), text: text.to_owned() }
}

/// A file that begins with blocks of keys `start`; attributes have `name` and, in order, the texts of `shapes`.
fn file(start: &[u64], events: &[What], owners: &[Owner], name: &str, shapes: &[&str]) -> Vec<u8> {
    let mut writer = SnapWriter::new(Vec::new(), &header()).unwrap();
    writer.set_checkpoint_interval(4);
    writer.append_strings(shapes).unwrap();
    writer.append_strings(&[name]).unwrap();
    let block = |key: &u64| StartingBlock {
        alloc: alloc(*key, 640, Category::Parameter),
        stack: StackId::NONE,
        free_requested: false,
    };
    let blocks = start.iter().map(block).collect();
    writer.write_starting_state(&StartingState { device: DeviceId(0), blocks, ..StartingState::default() }).unwrap();
    let event =
        |(what, time_ns): (&What, u64)| Event { time_ns, device: DeviceId(0), stack: StackId::NONE, what: *what };
    for events in events.iter().zip(1..).map(event).collect::<Vec<_>>().chunks(2) {
        writer.write_events(events).unwrap();
    }
    let name = StringId(shapes.len() as u32);
    let attribute = |(owner, value): (&Owner, u32)| Attribute { owner: *owner, name, value: StringId(value) };
    writer.append_attributes(&owners.iter().zip(0..).map(attribute).collect::<Vec<_>>()).unwrap();
    writer.append_sources(&[source("/net.py", "one\ntwo\n")]).unwrap();
    writer.finish(&EndFacts::default()).unwrap()
}

fn open(files: &[Vec<u8>]) -> Result<Windows> {
    let source = |bytes: &Vec<u8>| -> Arc<dyn ByteSource> { Arc::new(Arc::<[u8]>::from(bytes.as_slice())) };
    let named = files.iter().enumerate().map(|(number, bytes)| (number.to_string(), source(bytes))).collect();
    Windows::open_files(named, &(), &mut |_| ControlFlow::Continue(()))
}

/// The requested bytes of each block that has a shape, which no other block has, and the shape.
fn shapes(trace: &Trace) -> Vec<(u64, &str)> {
    let ids = trace.blocks.ids();
    ids.filter_map(|id| Some((trace.blocks.requested[id.0 as usize], trace.shape(id)?))).collect()
}

fn made(key: u64, bytes: u64) -> What {
    What::Alloc(alloc(key, bytes, Category::Activation))
}

/// A block from before the recording, one of event 0 that lives on, and two later ones.
fn events() -> Vec<What> {
    let temporary = (10..20).flat_map(|key| [made(key, 10), What::FreeRequested(key)]);
    [made(1, 4096)].into_iter().chain(temporary).chain([made(2, 64), made(3, 77)]).collect()
}

#[test]
fn windows_have_the_shapes_of_their_blocks_whenever_these_were_allocated() {
    let owners = [Owner::Event(EventId(0)), Owner::Event(EventId(21)), Owner::Block(BlockId(0))];
    let bytes = file(&[0], &events(), &owners, SHAPE, &SHAPES);
    let trace = read_bytes(&bytes).unwrap();
    let all = [(640, SHAPES[2]), (4096, SHAPES[0]), (64, SHAPES[1])];
    assert_eq!(shapes(&trace), all);
    let windows = open(&[bytes]).unwrap();
    assert!(windows.checkpoints().len() > 2);
    assert_eq!(described(&windows.whole().unwrap()), described(&trace));
    assert_eq!(shapes(&windows.window(0..1).unwrap()), all[..2]);
    assert_eq!(shapes(&windows.window(9..14).unwrap()), all[..2]);
    let last = windows.window(20..23).unwrap();
    assert_eq!(shapes(&last), all);
    assert_eq!(last.source("/net.py"), Some("one\ntwo\n"));
    let copy = windows.copy(Vec::new(), &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(described(&read_bytes(&copy).unwrap()), described(&trace));
}

#[test]
fn shapes_of_blocks_that_an_earlier_file_has_belong_to_their_allocation_there() {
    let first = file(&[0], &events(), &[], SHAPE, &SHAPES);
    let owners = [Owner::Block(BlockId(0)), Owner::Block(BlockId(1)), Owner::Event(EventId(0))];
    let second = file(&[0, 1], &[made(30, 99), What::FreeRequested(30)], &owners, SHAPE, &OTHER_SHAPES);
    let windows = open(&[first, second]).unwrap();
    let expected = [(640, OTHER_SHAPES[0]), (4096, OTHER_SHAPES[1]), (99, OTHER_SHAPES[2])];
    assert_eq!(shapes(&windows.whole().unwrap()), expected);
    assert_eq!(shapes(&windows.window(5..9).unwrap()), expected[..2]);
    assert_eq!(shapes(&windows.window(24..25).unwrap()), expected);
    assert_eq!(windows.base().sources.len(), 1, "each path once");
}

#[test]
fn other_attributes_are_read_from_whole_files_only() {
    let owner = Owner::Event(EventId(0));
    assert!(open(&[file(&[0], &events(), &[owner], SHAPE, &SHAPES)]).is_ok());
    assert!(open(&[file(&[0], &events(), &[owner], "references", &SHAPES)]).is_err());
    assert!(
        open(&[file(&[0], &events(), &[Owner::Block(BlockId(9))], SHAPE, &SHAPES)]).is_err(),
        "there is no such block"
    );
}

#[test]
fn of_two_texts_of_one_path_the_first_counts() {
    let mut writer = SnapWriter::new(Vec::new(), &header()).unwrap();
    writer.append_sources(&[source("/net.py", "new"), source("/net.py", "old"), source("/b.py", "")]).unwrap();
    let trace = read_bytes(&writer.finish(&EndFacts::default()).unwrap()).unwrap();
    assert_eq!(["/net.py", "/b.py", "/c.py"].map(|path| trace.source(path)), [Some("new"), Some(""), None]);
}
