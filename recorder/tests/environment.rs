//! Tests of recordings that are requested by environment variables, in addition to those started by the program.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use highwater_recorder::api::{self, NewBlock};
use highwater_recorder::snapshots::StartingState;
use highwater_recorder::snapshots::format::read_file;
use highwater_recorder::snapshots::trace::DeviceFacts;
use highwater_recorder::{
    DeviceId, Error, HistoryOptions, Level, Pool, Recording, Source, StreamId, record_memory_history,
};

const CHILD: &str = "HIGHWATER_TEST_ENVIRONMENT_CHILD";

struct Empty;

impl Source for Empty {
    fn facts(&self) -> DeviceFacts {
        DeviceFacts { name: "test".to_owned(), ..DeviceFacts::default() }
    }

    fn freeze(&self, read: &mut dyn FnMut(StartingState)) {
        read(StartingState::default());
    }
}

fn alloc(block: u64) {
    let (stream, pool) = (StreamId(0), Pool::Small);
    let address = 0x1000 * block;
    api::alloc(DeviceId(0), &NewBlock { block, address, requested: block, allocated: 512, stream, pool });
}

/// Not a separate test: a program that records itself, and whose device is made at this moment.
#[test]
fn the_child_records_its_training_itself() {
    let Some(way) = std::env::var_os(CHILD) else { return };
    let source: Arc<dyn Source> = Arc::new(Empty);
    let is_early = way == "early" || way == "same";
    if is_early {
        api::register(&source);
        alloc(1);
    }
    let own = if way == "same" { "./env.snap" } else { "own.snap" };
    let run = record_memory_history(HistoryOptions::to_file(own).level(Level::Events), || {
        if !is_early {
            api::register(&source);
        }
        alloc(2);
        api::oom(DeviceId(0), None, 1 << 40, 0);
        if way == "nested" {
            let inner = record_memory_history(HistoryOptions::in_memory(), || Ok(7))?;
            assert_eq!(inner.value, 7, "the closure ran");
            assert!(matches!(inner.problem, Some(Error::AlreadyRecording)));
        }
        Ok(())
    });
    assert!(run.is_ok_and(|run| run.problem.is_none()));
    alloc(3);
    if way == "refused" {
        let missing = Path::new("missing/own.snap");
        assert!(Recording::start(HistoryOptions::to_file(missing)).is_err());
        alloc(4);
    }
}

fn run(folder: &Path, way: &str, variables: &[(&str, &str)]) -> Output {
    let program = std::env::current_exe().expect("the test binary");
    let mut child = Command::new(program);
    child.args(["--exact", "the_child_records_its_training_itself", "--nocapture", "--test-threads=1"]);
    child.current_dir(folder).env(CHILD, way).envs(variables.iter().copied());
    let output = child.output().expect("the test binary runs again");
    assert!(output.status.success(), "{way}: {}", stderr(&output));
    output
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn blocks(path: &Path) -> Vec<u64> {
    let trace = read_file(path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    assert!(!trace.trust.unfinished, "{}", path.display());
    trace.blocks.requested.clone()
}

fn dumps(folder: &Path) -> Vec<PathBuf> {
    std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

#[test]
fn a_recording_of_the_program_s_own_is_made_beside_that_of_the_environment() {
    for way in ["early", "late"] {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let at = |name: &str| folder.path().join(name);
        let output = run(folder.path(), way, &[("HIGHWATER_RECORD", "env.snap"), ("HIGHWATER_OOM_SNAPSHOT", "dumps")]);
        assert_eq!(blocks(&at("own.snap")), [2], "{way}");
        assert_eq!(blocks(&at("env.snap")), if way == "early" { vec![1] } else { vec![] }, "{way}");
        assert_eq!(blocks(&at("env.0002.snap")), [3], "{way}: it goes on afterwards");
        assert!(stderr(&output).contains("env.snap") && stderr(&output).contains("own.snap"), "{}", stderr(&output));
        assert_eq!(dumps(&at("dumps")).len(), 1, "{way}: the program's own recording makes the environment's dumps");
    }
}

#[test]
fn the_program_s_own_recording_has_the_file_that_the_environment_names_too() {
    for options in [&[][..], &[("HIGHWATER_RING", "9")]] {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let variables: Vec<_> = [("HIGHWATER_RECORD", "env.snap")].iter().chain(options).copied().collect();
        let output = run(folder.path(), "same", &variables);
        let blocks = |name: &str| blocks(&folder.path().join(name));
        assert_eq!((blocks("env.snap"), blocks("env.0003.snap")), (vec![2], vec![3]), "{}", stderr(&output));
        assert_eq!(blocks("env.0002.snap"), [1], "what was recorded before is kept");
        assert!(stderr(&output).contains("before it was renamed to ./env.0002.snap"), "{}", stderr(&output));
    }
}

#[test]
fn a_program_runs_where_another_process_writes_to_its_file() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let path = folder.path().join("taken.snap");
    let theirs = std::fs::File::create(&path).expect("the test's own");
    theirs.lock().expect("nobody else has it");
    let recorded = record_memory_history(HistoryOptions::to_file(&path), || Ok(7)).expect("the function runs");
    assert_eq!((recorded.value, recorded.file), (7, None));
    assert!(matches!(recorded.problem, Some(Error::InUse { .. })));
}

#[test]
fn dumps_of_the_environment_are_made_whatever_the_program_records() {
    for way in ["early", "late"] {
        let folder = tempfile::tempdir().expect("a folder for the test");
        let output = run(folder.path(), way, &[("HIGHWATER_OOM_SNAPSHOT", "dumps")]);
        assert_eq!(blocks(&folder.path().join("own.snap")), [2]);
        let dumps = dumps(&folder.path().join("dumps"));
        assert_eq!((dumps.len(), blocks(&dumps[0])), (1, vec![2]), "{way}: {}", stderr(&output));
    }
}

#[test]
fn a_second_recording_of_the_program_s_own_is_not_made_and_its_function_runs() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let output = run(folder.path(), "nested", &[]);
    assert_eq!(blocks(&folder.path().join("own.snap")), [2]);
    assert!(stderr(&output).contains("a recording is already running"), "{}", stderr(&output));
}

#[test]
fn the_environment_s_recording_goes_on_where_the_program_s_own_could_not_begin() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    run(folder.path(), "refused", &[("HIGHWATER_RECORD", "env.snap")]);
    assert_eq!(blocks(&folder.path().join("env.0002.snap")), [3]);
    assert_eq!(blocks(&folder.path().join("env.0003.snap")), [4]);
}

#[test]
fn a_variable_that_has_no_effect_alone_is_reported() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let output = run(folder.path(), "early", &[("HIGHWATER_RING", "5")]);
    let stderr = stderr(&output);
    assert!(stderr.contains("HIGHWATER_RING has no effect alone: set HIGHWATER_RECORD=<path>"), "{stderr}");
}
