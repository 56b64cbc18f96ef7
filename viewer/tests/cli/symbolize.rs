//! Tests the files and messages of `highwater symbolize`.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

use highwater_snapshots::event::{Alloc, Event, What};
use highwater_snapshots::format::{EndFacts, SnapWriter, read_file};
use highwater_snapshots::symbols::{Binary, Request, Symbolizer};
use highwater_snapshots::tables::{Frame, Module, Stack};
use highwater_snapshots::trace::{DeviceFacts, Header};
use highwater_snapshots::{Category, DeviceId, FrameId, ModuleId, OpId, Pool, ScopeId, StackId, StreamId, StringId};
use serde_json::Value;

use crate::binary::{highwater, names, refused, stderr, stdout};

const SOURCE: &str = "__attribute__((noinline)) int train(volatile int *place) {
    return *place * 3;
}
";

/// A folder with a library, `lib/libtrain.so`, and recordings of a program that ran it: `step.snap`, which was
/// finished, and `killed.snap`.
fn folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let library = build(folder.path(), "0123abcd");
    let binary = Binary { path: library.clone(), build_id: vec![0x01, 0x23, 0xab, 0xcd] };
    let addresses: Vec<u64> = (0x1000..0x1400).collect();
    let found = Symbolizer::new(Vec::new()).resolve(&[Request { binary, addresses: addresses.clone() }]);
    let at = found[0].iter().position(|lines| lines.first().is_some_and(|line| line.line == 2)).unwrap();
    write(&folder.path().join("step.snap"), &library, addresses[at], true);
    write(&folder.path().join("killed.snap"), &library, addresses[at], false);
    folder
}

#[test]
fn a_binary_without_a_build_id_that_was_changed_since_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let library = build(folder.path(), "none");
    let binary = Binary { path: library.clone(), build_id: Vec::new() };
    let addresses: Vec<u64> = (0x1000..0x1400).collect();
    let found = Symbolizer::new(Vec::new()).resolve(&[Request { binary, addresses: addresses.clone() }]);
    let at = found[0].iter().position(|lines| lines.first().is_some_and(|line| line.line == 2)).unwrap();
    let path = folder.path().join("step.snap");
    let changed = library.metadata().unwrap().modified().unwrap();
    let changed = changed.duration_since(std::time::UNIX_EPOCH).unwrap().as_micros() as u64;
    write_of(&path, &library, addresses[at], true, (&[], changed - 1_000_000));
    let output = highwater(folder.path(), "symbolize step.snap");
    let text = stdout(&output);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("(was rebuilt)") && text.contains("was changed after the recording began"), "{text}");
    assert!(frames(folder.path(), "step.snap").contains("bare addresses"));
    write_of(&path, &library, addresses[at], true, (&[], changed + 1_000_000));
    let text = stdout(&highwater(folder.path(), "symbolize step.snap"));
    assert!(text.starts_with("1 of 1 frame now known by file and line.\n"), "{text}");
}

fn build(folder: &Path, build_id: &str) -> PathBuf {
    let library = folder.join("lib/libtrain.so");
    std::fs::create_dir_all(folder.join("lib")).unwrap();
    std::fs::write(folder.join("lib/train.c"), SOURCE).unwrap();
    let id = if build_id == "none" { build_id.to_owned() } else { format!("0x{build_id}") };
    let id = format!("-Wl,--build-id={id}");
    let mut compiler = Command::new("cc");
    compiler.args(["-O2", "-g", "-shared", "-fPIC", &id, "-o"]).arg(&library).arg(folder.join("lib/train.c"));
    assert!(compiler.status().is_ok_and(|status| status.success()));
    library
}

/// Writes a recording of two blocks, made by the library's function and outside of it; bytes of a third are lost where
/// it was not finished.
fn write(path: &Path, library: &Path, address: u64, is_finished: bool) {
    write_of(path, library, address, is_finished, (&[0x01, 0x23, 0xab, 0xcd], 0));
}

/// The same, of a library with this build id, begun at this time in microseconds.
fn write_of(path: &Path, library: &Path, address: u64, is_finished: bool, (build_id, began): (&[u8], u64)) {
    let header = Header { program: "train".into(), started_unix_us: began, ..Header::default() };
    let mut writer = SnapWriter::new(Vec::new(), &header).unwrap();
    writer.write_device(&DeviceFacts::default()).unwrap();
    writer.append_strings(&[library.to_str().unwrap()]).unwrap();
    let module = Module { path: StringId(0), build_id: build_id.to_vec(), load_bias: 0x7000 };
    writer.append_modules(&[module]).unwrap();
    writer.append_frames(&[Frame { module: ModuleId(0), address, first_line: 0, line_count: 0 }]).unwrap();
    writer.append_stacks(&[Stack { parent: StackId::NONE, frame: FrameId(0) }]).unwrap();
    let alloc = |block, stack, requested| {
        let (stream, pool, category) = (StreamId(0), Pool::Small, Category::Activation);
        let (address, allocated, op, scope) = (block << 12, requested, OpId::NONE, ScopeId::NONE);
        let alloc = Alloc { block, address, requested, allocated, stream, pool, category, op, scope };
        Event { time_ns: block, device: DeviceId(0), stack, what: What::Alloc(alloc) }
    };
    writer.write_events(&[alloc(1, StackId(0), 4096), alloc(2, StackId::NONE, 512)]).unwrap();
    let mut bytes = writer.get_ref().clone();
    if is_finished {
        bytes = writer.finish(&EndFacts::default()).unwrap();
    } else {
        writer.write_events(&[alloc(3, StackId(0), 4096)]).unwrap();
        let whole = writer.get_ref();
        bytes.extend_from_slice(&whole[bytes.len()..whole.len() - 5]);
    }
    std::fs::write(path, bytes).unwrap();
}

fn json(folder: &Path, words: &str) -> Value {
    json_with(folder, words, 0)
}

/// The figures of a command that exits with `status`.
fn json_with(folder: &Path, words: &str, status: i32) -> Value {
    let output = highwater(folder, words);
    assert_eq!(output.status.code(), Some(status), "{words}: {}", stderr(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// What `peak --by frame` says of a recording.
fn frames(folder: &Path, file: &str) -> String {
    stdout(&highwater(folder, &format!("peak {file} --by frame")))
}

#[test]
fn a_recording_gets_its_lines_in_place_and_keeps_its_rights() {
    let folder = folder();
    let bare = frames(folder.path(), "step.snap");
    assert!(bare.contains("Stacks: 1 of 1 frames are bare addresses; `highwater symbolize FILE`"), "{bare}");
    assert!(bare.contains("libtrain.so"), "the address is shown with its binary: {bare}");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let rights = std::fs::Permissions::from_mode(0o640);
        std::fs::set_permissions(folder.path().join("step.snap"), rights).unwrap();
    }
    let output = highwater(folder.path(), "symbolize step.snap");
    let text = stdout(&output);
    assert!(text.starts_with("1 of 1 frame now known by file and line.\n"), "{text}{}", stderr(&output));
    assert!(text.contains("libtrain.so") && text.contains("itself") && text.contains("Wrote step.snap ("), "{text}");
    let known = frames(folder.path(), "step.snap");
    assert!(known.contains("train.c:2") && !known.contains("bare addresses"), "{known}");
    assert_eq!(stdout(&highwater(folder.path(), "verify step.snap")).lines().next().unwrap().find("Sound"), Some(0));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = std::fs::metadata(folder.path().join("step.snap")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
    }
    assert_eq!(names(folder.path()), ["killed.snap", "lib", "step.snap"], "nothing else is left");
    let again = stdout(&highwater(folder.path(), "symbolize step.snap"));
    assert!(again.starts_with("Nothing to look up: the only frame already has a name or a line"), "{again}");
}

#[test]
fn a_recording_that_was_cut_off_gets_its_lines_and_stays_cut_off() {
    let folder = folder();
    let figures = json(folder.path(), "symbolize killed.snap --json");
    assert_eq!((&figures["with_lines"], &figures["unresolved"]), (&1.into(), &0.into()));
    assert!(figures["torn_bytes"].as_u64().unwrap() > 30, "{figures}");
    let trace = read_file(&folder.path().join("killed.snap")).unwrap();
    assert!(trace.trust.unfinished);
    assert_eq!(trace.events.len(), 2);
    assert!(trace.tables.stack_text(StackId(0))[0].contains("train.c:2"));
}

#[test]
fn on_another_machine_a_folder_with_the_binary_or_its_debug_file_is_named() {
    let folder = folder();
    std::fs::rename(folder.path().join("lib"), folder.path().join("brought")).unwrap();
    let before = std::fs::read(folder.path().join("step.snap")).unwrap();
    let output = highwater(folder.path(), "symbolize step.snap");
    let text = stdout(&output);
    assert!(text.starts_with("0 of 1 frame now known"), "{text}");
    assert!(text.contains("(not found)") && text.contains("pass --debug-dir with a folder that contains it"), "{text}");
    assert!(text.contains("Nothing was written"), "{text}");
    assert_eq!(output.status.code(), Some(1), "nothing was found");
    assert_eq!(std::fs::read(folder.path().join("step.snap")).unwrap(), before);

    let figures = json(folder.path(), "symbolize step.snap --debug-dir brought --out known.snap --json");
    assert_eq!(figures["modules"][0]["from"], "brought/libtrain.so");
    assert_eq!((&figures["file"], &figures["with_lines"]), (&"known.snap".into(), &1.into()));
    assert_eq!(std::fs::read(folder.path().join("step.snap")).unwrap(), before, "only the other file is written");
    assert!(frames(folder.path(), "known.snap").contains("train.c:2"));
    let packed = json(folder.path(), "symbolize step.snap --debug-dir brought --out known.snap.gz --json");
    assert_eq!(packed["with_lines"], 1);
    let from_packed = json(folder.path(), "symbolize known.snap.gz --out plain.snap --json");
    assert_eq!((&from_packed["asked"], &from_packed["frames"]), (&0.into(), &1.into()));
    assert!(frames(folder.path(), "plain.snap").contains("train.c:2"));
}

#[test]
fn a_binary_that_was_rebuilt_is_reported_and_not_used() {
    let folder = folder();
    build(folder.path(), "ffff");
    let figures = json_with(folder.path(), "symbolize step.snap --json", 1);
    assert_eq!((&figures["file"], &figures["unresolved"]), (&Value::Null, &1.into()));
    assert!(frames(folder.path(), "step.snap").contains("libtrain.so"), "its address is still shown");
    let reason = figures["modules"][0]["reason"].as_str().unwrap();
    assert!(reason.contains("build id ffff") && reason.contains("was rebuilt"), "{reason}");
}

#[test]
fn what_cannot_or_should_not_be_changed_is_refused() {
    let folder = folder();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("text"), "hello").unwrap();
    highwater(folder.path(), "convert step.snap carried.pickle");
    let open = File::options().append(true).open(at("killed.snap")).unwrap();
    open.lock().unwrap();
    let before = std::fs::read(at("killed.snap")).unwrap();
    let cases = [
        ("symbolize", "<FILE>"),
        ("symbolize gone.snap", "gone.snap"),
        ("symbolize text", "not a recording"),
        ("symbolize -", "name a file with --out"),
        ("symbolize killed.snap", "is still being written"),
        ("symbolize step.snap --debug-dir nowhere", "nowhere: there is no such folder"),
        ("symbolize step.snap --out step.pickle", "highwater convert"),
        ("symbolize step.snap --out step.snap", "the same file"),
        ("symbolize carried.pickle", "not changed in place"),
    ];
    for (words, words_in_it) in cases {
        refused(folder.path(), words, words_in_it);
    }
    assert_eq!(std::fs::read(at("killed.snap")).unwrap(), before);
    let copy = json(folder.path(), "symbolize killed.snap --out copy.snap --json");
    assert_eq!(copy["with_lines"], 1, "a copy may be made while it is written");
    let carried = json(folder.path(), "symbolize carried.pickle --out carried.snap --json");
    assert_eq!(carried["with_lines"], 1);
}

#[test]
fn skipped_lines_leave_the_stack_to_their_callers() {
    let folder = tempfile::tempdir().unwrap();
    let text = r#"{"segments": [], "device_traces": [[
        {"action": "alloc", "addr": 4194304, "size": 1000, "stream": 0, "time_us": 1700000000000001,
         "frames": [{"name": "zeros", "filename": "pool.py", "line": 7},
                    {"name": "step", "filename": "train.py", "line": 9}]}]]}"#;
    std::fs::write(folder.path().join("a.json"), text).unwrap();
    let peak = |words: &str| stdout(&highwater(folder.path(), &format!("peak a.json --by frame {words}")));
    assert!(peak("").contains("pool.py:7 zeros"), "{}", peak(""));
    let skipped = peak("--skip pool.py");
    assert!(skipped.contains("train.py:9 step") && !skipped.contains("pool.py:7"), "{skipped}");
    let hint = stdout(&highwater(folder.path(), "peak a.json --skip pool.py"));
    assert!(hint.contains("--skip pool.py"), "the next command repeats it: {hint}");
}

#[test]
fn a_snapshot_of_pytorch_has_its_names_already() {
    let folder = tempfile::tempdir().unwrap();
    let text = r#"{"segments": [], "device_traces": [[
        {"action": "alloc", "addr": 4194304, "size": 1000, "stream": 0, "time_us": 1700000000000001,
         "frames": [{"name": "forward", "filename": "net.py", "line": 7}]}]]}"#;
    std::fs::write(folder.path().join("a.json"), text).unwrap();
    let output = highwater(folder.path(), "symbolize a.json");
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).starts_with("Nothing to look up: the name of its only frame is"), "{}", stdout(&output));
    assert_eq!(names(folder.path()), ["a.json"]);
}
