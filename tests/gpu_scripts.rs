//! Tests that the scripts for a machine with a GPU (`tests/gpu`) are valid and run without one.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use expect_test::expect_file;
use highwater_stand_in::Setup;
use highwater_stand_in::setup::REQUIRED_VARIABLE;
use highwater_tests::workspace_root;
use serde_json::{Value, json};

/// Stands for a Python that has PyTorch: answers what the page needs of it.
const PYTORCH: &str = r#"#!/bin/sh
case "$*" in
*"import sys, torch"*) echo "0.0 of a test" ;;
*" step "*) echo '{"step": {"off": {"median_us": 1000, "least_us": 900, "tenth_above_us": 1200}}, "max_allocated_bytes": 1048576, "max_reserved_bytes": 2097152}' ;;
*) echo "RuntimeError: it does no more" >&2; exit 1 ;;
esac
"#;

/// Stands for a test binary in which one module is well, one has a test that fails unless it is alone, and one ends.
const TESTS: &str = r#"#!/bin/sh
if [ "$1" = --list ]; then printf 'well::a: test\nwell::b: test\nshy::a: test\nshy::b: test\nends::a: test\nends::b: test\n'; exit; fi
result=ok
for name in "$@"; do
  case "$name" in
  --*) ;;
  well::a) echo "test $name ... ok"; echo "skipped: it is not for this machine" >&2 ;;
  shy::b) if [ $# = 4 ]; then echo "test $name ... ok"; else echo "test $name ... FAILED"; result=FAILED; fi ;;
  ends::b) printf "test $name ... "; kill -SEGV $$ ;;
  *) echo "test $name ... ok" ;;
  esac
done
echo "test result: $result. 0 passed"
[ $result = ok ]
"#;

fn scripts() -> PathBuf {
    workspace_root().join("tests").join("gpu")
}

/// Whether there is a Python; says that nothing is tested otherwise.
#[expect(clippy::print_stderr, reason = "says that nothing was tested, and why")]
fn has_python() -> bool {
    let has = Command::new("python3").arg("--version").output().is_ok_and(|run| run.status.success());
    if !has {
        eprintln!("skipped: there is no python3");
    }
    has
}

fn python(words: &[&str]) -> Output {
    Command::new("python3").arg("-B").args(words).current_dir(scripts()).output().expect("it runs")
}

fn executable(path: &Path, text: &str) {
    fs::write(path, text).expect("the folder is the test's own");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("the file is the test's own");
}

/// What `pack.sh` would make, but for its programs.
fn unpacked(folder: &Path) {
    for entry in fs::read_dir(scripts()).expect("the scripts are there") {
        let path = entry.expect("a folder lists its entries").path();
        if path.is_file() {
            fs::copy(&path, folder.join(path.file_name().expect("a file"))).expect("the folder is the test's own");
        }
    }
    for inner in ["bin", "tests", "path"] {
        fs::create_dir(folder.join(inner)).expect("the folder is the test's own");
    }
    fs::write(folder.join("commit"), "of a test\n").expect("the folder is the test's own");
    executable(&folder.join("path/torch"), PYTORCH);
    executable(&folder.join("path/nvidia-smi"), "#!/bin/sh\necho 'Stand-in, 0, 1 MiB'\n");
}

/// Runs parts in an unpacked folder, in small, and gives their results and the page.
fn run(folder: &Path, parts: &[&str], setup: impl FnOnce(&mut Command)) -> (Value, String) {
    let mut path = vec![folder.join("path")];
    path.extend(std::env::var_os("PATH").iter().flat_map(std::env::split_paths));
    let mut command = Command::new(folder.join("run.sh"));
    command.args(parts).env("OUT", folder.join("out")).env("HIGHWATER_GPU_TINY", "1");
    command.env("HIGHWATER_GPU_PYTORCH", folder.join("path/torch")).env("PYTHONDONTWRITEBYTECODE", "1");
    command.env("PATH", std::env::join_paths(path).expect("paths"));
    command.env_remove("PYTHON").env_remove("HIGHWATER_GPU_WORK");
    // The time limits protect a rented GPU. Here they would make the outcome depend on how busy the machine is.
    command.env("HIGHWATER_GPU_SECONDS", "86400").env("HIGHWATER_GPU_LIMIT_FACTOR", "1000");
    setup(&mut command);
    command.env("HIGHWATER_CUDA_PATH", "");
    let run = command.output().expect("it runs");
    let words = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{words}");
    let results = fs::read_to_string(folder.join("out/results.json")).unwrap_or_else(|why| panic!("{why}: {words}"));
    let page = fs::read_to_string(folder.join("out/gpu.md")).expect("there is a page");
    (serde_json::from_str(&results).expect("results are JSON"), page)
}

#[test]
fn every_script_is_well_formed() {
    for script in ["pack.sh", "run.sh"] {
        let run = Command::new("bash").args(["-n", script]).current_dir(scripts()).output().expect("there is a shell");
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    }
    if has_python() {
        let check = "import glob\nfor file in glob.glob('*.py'): compile(open(file).read(), file, 'exec')";
        let run = python(&["-c", check]);
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    }
}

#[test]
fn the_page_has_a_table_for_each_part_and_a_line_for_each_failure() {
    if has_python() {
        let run = python(&["page.py", "../data/gpu/results.json"]);
        assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
        expect_file![workspace_root().join("tests/data/gpu/page.md")].assert_eq(&String::from_utf8_lossy(&run.stdout));
    }
}

#[test]
fn tests_that_fail_run_again_alone_and_those_that_end_take_no_others_with_them() {
    if !has_python() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder for the test");
    unpacked(folder.path());
    executable(&folder.path().join("tests/engine-made-up"), TESTS);
    let (results, page) = run(folder.path(), &["about", "tests", "alloc"], |_| {});
    let found = &results["tests"]["engine-made-up"];
    assert_eq!((&found["passed"], &found["skipped"]), (&4.into(), &1.into()), "{results:#}");
    let failing = json!({"shy::b": "passes alone", "ends::b": "ended with status -11 in ends::b"});
    assert_eq!(found["failing"], failing, "{results:#}");
    assert_eq!(found["why"], json!(["ends ended with status -11 in ends::b"]), "{results:#}");
    assert!(page.contains("- GPU, driver, memory: Stand-in, 0, 1 MiB"), "{page}");
    assert!(page.contains("- alloc pytorch: RuntimeError: it does no more"), "{page}");
    assert!(page.contains("- alloc run: [Errno 2] No such file or directory"), "{page}");
    let log = fs::read_to_string(folder.path().join("out/log.txt")).expect("there is a log");
    assert!(log.contains("CUDA_LAUNCH_BLOCKING=1 tests/engine-made-up --exact ends::b"), "{log}");
}

/// A program that Cargo has built beside this test, if it has.
fn built(inner: &str) -> Option<PathBuf> {
    let test = std::env::current_exe().expect("a test knows its own path");
    test.ancestors().map(|folder| folder.join(inner)).take(4).find(|path| path.is_file())
}

#[test]
#[expect(clippy::print_stderr, reason = "says that nothing was tested, and why")]
fn parts_have_results_on_the_stand_in() {
    let programs = ["examples/step_time", "examples/same_events", "highwater"].map(built);
    let [Some(step_time), Some(same_events), Some(highwater)] = programs else {
        eprintln!("skipped: not all programs are built: cargo test --workspace builds {programs:?}");
        return;
    };
    if let Err(why) = Setup::new().apply(&mut Command::new("true")) {
        assert!(std::env::var_os(REQUIRED_VARIABLE).is_none(), "{why}");
        eprintln!("skipped: {why}");
        return;
    }
    if !has_python() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder for the test");
    unpacked(folder.path());
    for program in [step_time, same_events, highwater] {
        let name = program.file_name().expect("a file").to_owned();
        symlink(program, folder.path().join("bin").join(name)).expect("the folder is the test's own");
    }
    let parts = ["tiny-nerf", "events", "peaks", "unchanged", "losses"];
    let (results, page) = run(folder.path(), &parts, |command| {
        Setup::new().apply(command).expect("it was there before");
    });
    assert!(results["tiny-nerf"]["ours"]["step"]["stacks"]["median_us"].as_f64() > Some(0.0), "{results:#}");
    assert!(page.contains("| commands with the same events on the GPU as counted | 9 of 9 |"), "{page}");
    assert!(results["peaks"]["tiny-nerf"]["ours"]["groups"]["parameter"].as_u64() > Some(0), "{results:#}");
    assert!(results["unchanged"]["ours"]["calls"].as_u64() > Some(0), "{results:#}");
    let losses = results["losses"].as_object().expect("a result for each");
    for (command, found) in losses.iter().filter(|(name, _)| *name != "part_seconds") {
        assert!(found["largest_relative_difference"].as_f64() < Some(1e-2), "{command}: {found:#}");
    }
    let (_, missing) = page.split_once("## What has no result").expect("PyTorch is none");
    let lines = missing.lines().filter(|line| line.starts_with("- "));
    let ours: Vec<&str> = lines.filter(|line| !line.contains("pytorch") && !line.contains("snapshot")).collect();
    assert!(ours.is_empty(), "{page}");
}
