//! Tests which file the lines are read from, and the message if no file is found.

use std::path::{Path, PathBuf};

use highwater_notation::trace_from_text;
use highwater_snapshots::format::{read_bytes, write_trace};
use highwater_snapshots::symbols::{Asked, Cause, LookUp, Symbolizer, look_up};
use highwater_snapshots::tables::SourceLine;
use highwater_snapshots::{FrameId, Trace};

use crate::library::{BUILD_ID, Library, build};
use crate::made::{Ending, recording, recording_of};

/// The recording of a library with its bare addresses.
fn bare(library: &Library) -> Trace {
    read_bytes(&recording(&library.path, library.address, Ending::Finished)).unwrap()
}

/// The recording with what is found of its frames.
fn looked_up(library: &Library) -> Trace {
    let trace = bare(library);
    let found = found(&trace, &[]);
    trace.edited(|trace| found.apply(&mut trace.tables))
}

fn symbolizer(folders: &[&Path]) -> Symbolizer {
    let folders: Vec<PathBuf> = folders.iter().map(|folder| folder.to_path_buf()).collect();
    Symbolizer::new(folders.clone()).with_copies_in(folders)
}

fn found(trace: &Trace, folders: &[&Path]) -> LookUp {
    look_up(&trace.tables, Asked::Bare, &mut symbolizer(folders))
}

/// The lines of the library's frame: function, last part of the file, line.
fn lines(trace: &Trace, found: &LookUp) -> Vec<String> {
    let mut tables = trace.tables.clone();
    found.apply(&mut tables);
    let text = |line: &SourceLine| {
        let file = tables.string(line.file).rsplit('/').next().unwrap_or("");
        format!("{} {file}:{}", tables.string(line.function), line.line)
    };
    tables.frame_lines(FrameId(1)).iter().map(text).collect()
}

const LINES: [&str; 2] = ["inner outer.c:2", "outer outer.c:5"];

#[test]
fn a_binary_where_it_was_has_all_lines_with_inlined_functions_first() {
    let library = Library::new();
    let trace = bare(&library);
    let found = found(&trace, &[]);
    assert_eq!(lines(&trace, &found), LINES);
    let [own, other] = &found.modules[..] else { panic!("two modules: {found:#?}") };
    assert_eq!((own.frames, own.asked, own.with_lines, own.with_names), (1, 1, 1, 0));
    let source = own.finding.as_ref().unwrap().as_ref().unwrap();
    assert_eq!((&source.path, source.has_lines, source.is_certain), (&library.path, true, true));
    assert_eq!((other.asked, other.unresolved()), (1, 1));
    assert_eq!(other.finding.as_ref().unwrap().as_ref().unwrap_err().cause, Cause::NotThere);
    assert_eq!((found.asked(), found.resolved(), found.outside), (2, 1, 1));
}

#[test]
fn lines_of_a_stripped_binary_come_from_its_debug_file() {
    let library = Library::new();
    let trace = bare(&library);
    let by_id = library.at("debug/.build-id/01/23abcd.debug");
    library.strip_to(&by_id);
    let names = found(&trace, &[]);
    assert_eq!(lines(&trace, &names), ["outer :0"], "only exported names are left");
    assert_eq!((names.modules[0].with_lines, names.modules[0].with_names), (0, 1));
    assert!(!names.modules[0].finding.as_ref().unwrap().as_ref().unwrap().has_lines);

    let debug = library.at("debug/x");
    let by_folder = found(&trace, &[debug.parent().unwrap()]);
    assert_eq!(lines(&trace, &by_folder), LINES, "by build id");
    assert_eq!(by_folder.modules[0].finding.as_ref().unwrap().as_ref().unwrap().path, by_id);

    let beside = library.at("lib/libouter.debug");
    std::fs::rename(&by_id, &beside).unwrap();
    library.link_to(&beside);
    assert_eq!(lines(&trace, &found(&trace, &[])), LINES, "by the link to what lies beside it");
}

#[test]
fn on_another_machine_copies_are_known_by_their_build_ids() {
    let library = Library::new();
    let trace = bare(&library);
    let debug = library.at("elsewhere/deep/er/symbols of outer");
    library.strip_to(&debug);
    std::fs::rename(&library.path, library.at("elsewhere/a binary")).unwrap();
    let elsewhere = library.at("elsewhere/x");
    let found = found(&trace, &[elsewhere.parent().unwrap()]);
    assert_eq!(lines(&trace, &found), LINES);
    let source = found.modules[0].finding.as_ref().unwrap().as_ref().unwrap();
    assert_eq!(source.path, debug, "the file with lines, not the stripped one, though that comes first");

    let too_deep = library.at("elsewhere/deep/er/and/deeper");
    std::fs::rename(&debug, &too_deep).unwrap();
    let found = self::found(&trace, &[elsewhere.parent().unwrap()]);
    assert_eq!(lines(&trace, &found), ["outer :0"], "the stripped binary has the function's name");
}

#[test]
fn a_binary_that_was_rebuilt_is_refused_and_a_copy_of_the_old_one_is_not() {
    let library = Library::new();
    let trace = bare(&library);
    let old = library.at("old/libouter.so");
    std::fs::copy(&library.path, &old).unwrap();
    build(&library.path, &[0xff, 0xee, 0xdd]);
    let refused = found(&trace, &[]);
    assert_eq!(refused.symbols, []);
    assert_eq!(refused.strings, [""; 0]);
    let missing = refused.modules[0].finding.as_ref().unwrap().as_ref().unwrap_err();
    assert_eq!(missing.cause, Cause::Rebuilt);
    assert!(missing.what.contains("ffeedd") && missing.what.contains("0123abcd"), "{missing:?}");
    assert_eq!(lines(&trace, &found(&trace, &[old.parent().unwrap()])), LINES);
}

#[test]
fn a_binary_without_a_build_id_is_used_where_it_was_and_stated_to_be_uncertain() {
    let library = Library::new();
    build(&library.path, &[]);
    let bytes = recording_of(&library.path, &[], library.address, Ending::Finished);
    let trace = read_bytes(&bytes).unwrap();
    let at_home = found(&trace, &[]);
    assert_eq!(lines(&trace, &at_home), LINES);
    assert!(!at_home.modules[0].finding.as_ref().unwrap().as_ref().unwrap().is_certain);
    std::fs::rename(&library.path, library.at("elsewhere/libouter.so")).unwrap();
    let gone = found(&trace, &[library.at("elsewhere/x").parent().unwrap()]);
    assert_eq!(gone.modules[0].unresolved(), 1, "nothing says that the copy is the same");
}

#[test]
fn names_alone_are_looked_up_again_when_that_is_asked_for_and_kept_where_nothing_is_new() {
    let library = Library::new();
    let debug = library.at("debug/outer.debug");
    library.strip_to(&debug);
    let named = looked_up(&library);
    let folder = debug.parent().unwrap();
    let bare_only = found(&named, &[folder]);
    assert_eq!((bare_only.modules[0].asked, bare_only.symbols.len()), (0, 0));
    assert_eq!(bare_only.modules[0].finding, None);
    let again = look_up(&named.tables, Asked::BareAndNamed, &mut symbolizer(&[folder]));
    assert_eq!(lines(&named, &again), LINES);
    let in_vain = look_up(&named.tables, Asked::BareAndNamed, &mut symbolizer(&[]));
    assert_eq!((in_vain.modules[0].with_names, &in_vain.symbols[..]), (1, &[][..]));
}

#[test]
fn what_was_looked_up_is_part_of_the_recording_that_is_written() {
    let library = Library::new();
    let trace = looked_up(&library);
    let again = read_bytes(&write_trace(Vec::new(), &trace).unwrap()).unwrap();
    assert_eq!(again.tables, trace.tables);
    assert_eq!(found(&again, &[]).modules[0].asked, 0);
}

#[test]
fn imported_frames_have_their_names_and_are_not_asked_for() {
    let trace = trace_from_text("alloc a 100 < forward < main\nfree a").unwrap();
    let found = found(&trace, &[]);
    assert_eq!((found.asked(), found.imported, found.outside), (0, 2, 0));
    assert_eq!(found.modules, []);
}

#[cfg(unix)]
#[test]
fn a_path_that_is_a_pipe_or_a_folder_or_no_binary_is_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let made = std::process::Command::new("mkfifo").arg(at("pipe")).status();
    assert!(made.is_ok_and(|status| status.success()));
    std::fs::write(at("text"), "not a binary").unwrap();
    std::fs::write(at("garbage"), [&b"\x7fELF\x02\x01\x01"[..], &[0xff; 4096]].concat()).unwrap();
    let cases =
        [("pipe", Cause::NotThere), ("", Cause::NotThere), ("text", Cause::Unreadable), ("garbage", Cause::Unreadable)];
    for (name, cause) in cases {
        let bytes = recording_of(&at(name), &BUILD_ID, 0x1000, Ending::Finished);
        let found = found(&read_bytes(&bytes).unwrap(), &[folder.path()]);
        let missing = found.modules[0].finding.as_ref().unwrap().as_ref().unwrap_err();
        assert_eq!(missing.cause, cause, "{name}: {missing:?}");
    }
}
