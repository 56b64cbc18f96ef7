//! Tests that addresses resolve to the functions and lines in the source.

use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use highwater_recorder::api::{self, NewBlock};
use highwater_recorder::snapshots::StartingState;
use highwater_recorder::snapshots::trace::DeviceFacts;
use highwater_recorder::stack::{self, StackKey, depot};
use highwater_recorder::symbolize::{Asked, Binary, Line, Request, SYSTEM_DEBUG_FOLDER, Symbolizer, look_up};
use highwater_recorder::{DeviceId, HistoryOptions, Pool, Recording, Source, StackId, StreamId};

use super::foreign::{call_through, compile, stack_through};

#[inline(never)]
fn captures_on_its_second_line() -> StackKey {
    std::hint::black_box(stack::capture()) // The line is part of a test.
}

#[inline(always)]
fn inlined() -> StackKey {
    stack::capture() // This one too.
}

#[inline(never)]
fn calls_inlined(number: u32) -> StackKey {
    std::hint::black_box(number); // Without it the compiler may make one function of this and the one above.
    std::hint::black_box(inlined()) // And this one.
}

/// The lines of the innermost frame, each as function, last part of the file, and the text of the line.
fn innermost(key: StackKey) -> Vec<(String, String)> {
    let source: Vec<&str> = include_str!("symbols.rs").lines().collect();
    let modules = stack::modules();
    let place = modules.locate(depot::frames(key)[0]).expect("the test's own code is in a module");
    let module = &modules.list()[place.module];
    let binary = Binary { path: module.path.clone(), build_id: module.build_id.clone() };
    let mut symbolizer = Symbolizer::new(Vec::new());
    let found = symbolizer.resolve(&[Request { binary, addresses: vec![place.address, 1 << 60] }]);
    assert_eq!(found[0][1], [], "nothing is so far out");
    assert_eq!(symbolizer.problems(), []);
    let in_words = |line: &Line| {
        assert!(line.file.as_ref().is_some_and(|file| file.ends_with("tests/stacks/symbols.rs")), "{line:?}");
        (line.function.clone(), source[line.line as usize - 1].trim().to_owned())
    };
    found[0][0].iter().map(in_words).collect()
}

#[test]
fn the_first_frame_is_the_caller_of_capture_at_its_line() {
    let expected = (
        "stacks::symbols::captures_on_its_second_line",
        "std::hint::black_box(stack::capture()) // The line is part of a test.",
    );
    let expected = [(expected.0.to_owned(), expected.1.to_owned())];
    assert_eq!(innermost(captures_on_its_second_line()), expected);
}

#[test]
fn an_inlined_function_comes_before_the_one_that_it_is_part_of() {
    let expected = [
        ("inlined", "stack::capture() // This one too."),
        ("stacks::symbols::calls_inlined", "std::hint::black_box(inlined()) // And this one."),
    ];
    let found = innermost(calls_inlined(3));
    assert_eq!(found.len(), 2, "{found:?}");
    for ((function, line), (expected, expected_line)) in found.iter().zip(expected) {
        // Full debug information has the path of an inlined function, line tables only its name.
        assert!(function.ends_with(expected), "{function} is {expected}");
        assert_eq!(line, expected_line);
    }
}

/// The library, its build id, and the address of a call in its function `through`.
struct Library {
    folder: tempfile::TempDir,
    binary: Binary,
    address: u64,
}

impl Library {
    fn new(frame: usize) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = compile(folder.path(), frame);
        let frames = depot::frames(stack_through(&path));
        let modules = stack::modules();
        let place = modules.locate(frames[1]).expect("the library is loaded");
        let module = &modules.list()[place.module];
        assert_eq!(module.path, path);
        Self { folder, binary: Binary { path, build_id: module.build_id.clone() }, address: place.address }
    }

    fn path(&self, name: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a folder above")).expect("a folder");
        path
    }

    /// Splits the library: lines to `debug`, the rest to `stripped`.
    fn split(&self, debug: &Path, stripped: &Path) {
        run("objcopy", &["--only-keep-debug".as_ref(), &self.binary.path, debug]);
        run("objcopy", &["--strip-debug".as_ref(), &self.binary.path, stripped]);
        run("objcopy", &[Path::new(&format!("--add-gnu-debuglink={}", debug.display())), stripped]);
    }

    /// Looks the call up in the file at `path`.
    fn resolve(&self, path: &Path, build_id: &[u8], debug_folders: &[&Path]) -> (Vec<Line>, Vec<String>) {
        let mut symbolizer = Symbolizer::new(debug_folders.iter().map(|folder| folder.to_path_buf()).collect());
        let binary = Binary { path: path.to_owned(), build_id: build_id.to_vec() };
        let request = Request { binary, addresses: vec![self.address] };
        let first = symbolizer.resolve(std::slice::from_ref(&request));
        assert_eq!(symbolizer.resolve(&[request]), first, "asked again");
        (first[0][0].clone(), symbolizer.problems().iter().map(ToString::to_string).collect())
    }
}

fn run(program: &str, arguments: &[&Path]) {
    let status = Command::new(program).args(arguments).status();
    assert!(status.is_ok_and(|status| status.success()), "{program} {arguments:?}");
}

/// What the debug information says of the call.
fn full() -> Vec<Line> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/stack/frames.c");
    let text = include_str!("../data/stack/frames.c");
    let line = text.lines().position(|line| line.contains("call(argument);")).expect("the call is in the source") + 1;
    vec![Line { function: "through".to_owned(), file: Some(source.to_owned()), line: line as u32 }]
}

#[test]
fn separate_debug_files_are_found_by_build_id_and_by_link() {
    let library = Library::new(24);
    let id = &library.binary.build_id;
    assert_eq!(library.resolve(&library.binary.path, id, &[]), (full(), vec![]));

    let stripped = library.path("bin/stripped.so");
    let split_file = library.path("bin/.debug/stripped.debug");
    library.split(&split_file, &stripped);
    assert_eq!(library.resolve(&stripped, id, &[]), (full(), vec![]), "by link");

    let text: String = id.iter().map(|byte| format!("{byte:02x}")).collect();
    let by_id = library.path(&format!("debug/.build-id/{}/{}.debug", &text[..2], &text[2..]));
    std::fs::rename(split_file, by_id).expect("the debug file moves");
    let name_only = vec![Line { function: "through".to_owned(), file: None, line: 0 }];
    assert_eq!(library.resolve(&stripped, id, &[]), (name_only, vec![]), "only exported names are left");
    let (none, debug) = (library.path("none"), library.path("debug"));
    assert_eq!(library.resolve(&stripped, id, &[&none, &debug]), (full(), vec![]), "by build id");
    assert_eq!(library.resolve(Path::new("/nowhere/lib.so"), id, &[&debug]), (full(), vec![]), "without the binary");
}

#[test]
fn a_file_that_is_not_the_recorded_one_is_refused_with_the_reason() {
    let library = Library::new(28);
    let problem_of = |path: &Path, id: &[u8]| {
        let (lines, problems) = library.resolve(path, id, &[Path::new("/nowhere")]);
        assert_eq!((lines, problems.len()), (vec![], 1), "{problems:?}");
        problems[0].clone()
    };
    let rebuilt = problem_of(&library.binary.path, &[1, 2, 3]);
    assert!(rebuilt.contains("010203") && rebuilt.contains("rebuilt"), "{rebuilt}");
    let unnamed = problem_of(&library.binary.path, &[]);
    assert!(unnamed.contains("the recorded file had (none)"), "{unnamed}");
    let garbage = library.path("garbage");
    std::fs::write(&garbage, [0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 9, 9]).expect("a file");
    assert!(problem_of(&garbage, &[1, 2, 3]).contains("cannot read"));
    assert!(problem_of(Path::new("/nowhere/lib.so"), &[1, 2, 3]).contains("cannot open"));
}

/// An allocator that had nothing before the recording.
struct Empty;

impl Source for Empty {
    fn facts(&self) -> DeviceFacts {
        DeviceFacts::default()
    }

    fn freeze(&self, read: &mut dyn FnMut(StartingState)) {
        read(StartingState::default());
    }
}

extern "C" fn allocates(_: *mut c_void) {
    let (stream, pool) = (StreamId(0), Pool::Small);
    api::alloc(DeviceId(0), &NewBlock { block: 0, address: 0x1000, requested: 100, allocated: 512, stream, pool });
}

#[test]
fn what_is_looked_up_after_the_fact_is_what_the_recorder_finds_itself_also_in_libraries_loaded_meanwhile() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let library = compile(folder.path(), 36);
    let allocator: Arc<dyn Source> = Arc::new(Empty);
    api::register(&allocator);
    let recording = Recording::start(HistoryOptions::in_memory()).expect("nothing else records");
    call_through(&library, allocates, std::ptr::null_mut());
    let trace = recording.finish().expect("memory takes everything").trace.expect("wanted in memory");

    let mut bare = trace.tables.clone();
    bare.lines.clear();
    for frame in &mut bare.frames {
        (frame.first_line, frame.line_count) = (0, 0);
    }
    let found = look_up(&bare, Asked::Bare, &mut Symbolizer::new(vec![SYSTEM_DEBUG_FOLDER.into()]));
    found.apply(&mut bare);
    let [stack] = trace.blocks.stack[..] else { panic!("one block: {:?}", trace.blocks) };
    let lines = bare.stack_text(stack);
    assert!(lines.iter().any(|line| line.contains("frames.c:") && line.ends_with(" through")), "{lines:#?}");
    let depth = lines.iter().position(|line| line.contains("frames.c:")).expect("just seen");
    assert!(lines[..depth].iter().any(|line| line.contains("stacks::symbols::allocates")), "{lines:#?}");
    for stack in 0..trace.tables.stacks.len() as u32 {
        assert_eq!(bare.stack_text(StackId(stack)), trace.tables.stack_text(StackId(stack)));
    }
    let module = found.modules.iter().find(|module| Path::new(&module.path) == library).expect("the library is listed");
    assert!((module.with_lines, module.unresolved()) == (1, 0), "{module:?}");
}
