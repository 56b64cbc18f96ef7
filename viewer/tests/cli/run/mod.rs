//! Tests `highwater run` on programs that use the CUDA driver, with the stand-in in its place.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use highwater_analysis::summary::{DeviceSummary, summarize};
use highwater_analysis::{Metric, Source, verify};
use highwater_snapshots::event::What;
use highwater_snapshots::format::read_file;
use highwater_snapshots::{StackId, Trace};
use highwater_stand_in::Setup;
use highwater_stand_in::libraries::install;
use highwater_stand_in::setup::REQUIRED_VARIABLE;

use crate::binary::{names, stderr, stdout};

/// The ways in which the program gets at the driver.
const WAYS: [&str; 3] = ["LINKED", "LOOKED_UP", "ASKED"];

/// From here on addresses are none of the program's.
const NOWHERE: u64 = 1 << 62;

/// A folder with the test's program in it, made for one of the ways; none, saying so, where it cannot be.
fn made(way: &str) -> Option<(tempfile::TempDir, PathBuf)> {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("program");
    let made = install(&[]).and_then(|libraries| {
        let source = folder.path().join("program.cpp");
        std::fs::write(&source, include_str!("program.cpp")).unwrap();
        let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
        let mut command = Command::new(compiler);
        command.args(["-std=c++17", "-O1", "-g", "-pthread", "-rdynamic"]).arg(format!("-D{way}"));
        command.arg("-o").arg(&program).arg(source).arg("-ldl");
        if way == "LINKED" {
            command.arg("-L").arg(&libraries).arg("-l:libcuda.so.1").arg("-Wl,--allow-shlib-undefined");
        }
        let output = command.output().map_err(|why| why.to_string())?;
        if output.status.success() { Ok(()) } else { Err(stderr(&output)) }
    });
    told(made).map(|()| (folder, program))
}

/// What there is; or none where the stand-in cannot be used, unless it must.
#[expect(clippy::print_stderr, reason = "says that nothing was tested, and why")]
fn told<T>(made: Result<T, String>) -> Option<T> {
    made.map_err(|why| {
        assert!(std::env::var_os(REQUIRED_VARIABLE).is_none(), "{why}");
        eprintln!("skipped: {why}");
    })
    .ok()
}

/// `highwater run` with these words, in a folder, on two devices of the stand-in.
fn run(folder: &Path, words: &[&str]) -> Option<Output> {
    run_with(folder, words, &[])
}

/// The same, with variables of the environment.
fn run_with(folder: &Path, words: &[&str], variables: &[(&str, &str)]) -> Option<Output> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_highwater"));
    command.current_dir(folder).arg("run").args(words).stdin(Stdio::null());
    command.env("XDG_CACHE_HOME", folder.join("cache")).env_remove("LD_PRELOAD");
    for rank in ["RANK", "LOCAL_RANK", "SLURM_PROCID", "HIGHWATER_INJECT"] {
        command.env_remove(rank);
    }
    command.envs(variables.iter().copied());
    told(Setup::new().devices(2).apply(&mut command))?;
    Some(command.output().unwrap())
}

fn read(folder: &Path, name: &str) -> Trace {
    let trace = read_file(&folder.join(name)).unwrap_or_else(|why| panic!("{name}: {why}"));
    assert_eq!(verify::verify_trace(&trace), [], "{name}");
    let problems = trace.problems.iter().filter(|problem| !trace.trust.unfinished || problem.offset.is_none());
    assert_eq!(problems.count(), 0, "{name}: libraries without symbols are no problem: {:?}", trace.problems);
    assert_eq!((trace.trust.unmatched_frees, trace.trust.unmatched_releases, trace.trust.repeated_allocs), (0, 0, 0));
    trace
}

/// What a recording says that the program did, as the program prints it.
fn lines(trace: &Trace) -> Vec<String> {
    let mut calls: BTreeMap<(u16, u64), (String, String)> = BTreeMap::new();
    let mut lines = Vec::new();
    let scope = |id| trace.tables.scope_path(id).replace(" (bytes computed)", "");
    for id in trace.events.ids() {
        let device = trace.events.device[id.0 as usize].0;
        match trace.what(id) {
            What::Alloc(alloc) => {
                assert_eq!(alloc.requested, alloc.allocated);
                let place = if alloc.address >= NOWHERE { "-".to_owned() } else { format!("{:#x}", alloc.address) };
                let call = scope(alloc.scope);
                lines.push(format!("+ {call} {device} {place} {} {}", alloc.requested, alloc.stream.0));
                calls.insert((device, alloc.block), (call, place));
            }
            What::FreeCompleted(block) => {
                let (call, place) = calls.remove(&(device, block)).expect("what ends has begun");
                lines.push(format!("- {call} {device} {place}"));
            }
            What::Oom(oom) => lines.push(format!("! {} {device} {}", scope(oom.scope), oom.requested)),
            _ => {}
        }
    }
    lines
}

/// The functions on the stack of each block, innermost first.
fn stacks(trace: &Trace) -> Vec<Vec<String>> {
    let stack = |id: &StackId| trace.tables.stack_text(*id);
    trace.blocks.stack.iter().map(stack).collect()
}

/// What the program printed, but for what it was surprised by.
fn printed(output: &Output) -> Vec<String> {
    let lines: Vec<String> = stdout(output).lines().map(str::to_owned).collect();
    let surprises: Vec<&String> = lines.iter().filter(|line| line.starts_with('?')).collect();
    assert!(surprises.is_empty(), "{surprises:?}");
    assert_eq!(output.status.code(), Some(7), "the program's own status: {}", stderr(output));
    lines
}

/// The summary of each device.
fn summaries(trace: &Trace) -> Vec<DeviceSummary> {
    let watch = &mut |_| ControlFlow::Continue(());
    summarize(&Source::in_memory(trace), watch).expect("a recording in memory can be read")
}

#[test]
fn every_call_of_a_program_is_recorded_however_it_gets_at_the_driver() {
    for way in WAYS {
        let Some((folder, program)) = made(way) else { return };
        for what in ["families", "pages"] {
            let file = format!("{what}.snap");
            let words = ["--out", &file, "--", program.to_str().unwrap(), what];
            let Some(output) = run(folder.path(), &words) else { return };
            let trace = read(folder.path(), &file);
            assert_eq!(lines(&trace), printed(&output), "{way}, {what}");
            for stack in stacks(&trace) {
                assert!(stack.iter().any(|line| line.contains(what)), "{way}, {what}: {stack:?}");
            }
            for device in summaries(&trace) {
                let peak = |metric| device.peak(metric).map(|peak| peak.bytes);
                assert_eq!(peak(Metric::Reserved), peak(Metric::Requested), "a block is the segment that it is in");
                assert_eq!(device.end.reserved, 0, "{way}, {what}: all went back");
            }
            let told = stderr(&output);
            assert!(told.contains(&file) && told.contains("Next: highwater peak"), "{told}");
        }
    }
}

#[test]
fn what_the_driver_says_of_devices_is_in_the_recording() {
    let Some((folder, program)) = made("ASKED") else { return };
    let Some(output) = run(folder.path(), &[program.to_str().unwrap(), "families"]) else { return };
    printed(&output);
    let trace = read(folder.path(), "program.snap");
    let devices: Vec<_> = trace.devices.iter().map(|facts| (facts.device.0, facts.name.as_str())).collect();
    assert_eq!(devices, [(0, "Highwater stand-in"), (1, "Highwater stand-in"), (255, "pinned host memory")]);
    assert_eq!((trace.devices[0].capacity_bytes, trace.devices[0].driver.as_str()), (1 << 30, "cuda 13.0"));
    let used = trace.events.ids().find_map(|id| match trace.what(id) {
        What::DeviceUsed(bytes) => Some(bytes),
        _ => None,
    });
    // The device's context takes 8 MiB, and the first block is rounded to 1 KiB.
    assert_eq!(used, Some((8 << 20) + 1024));
    let oom = trace.events.ids().find_map(|id| match trace.what(id) {
        What::Oom(oom) => Some(oom.device_free),
        _ => None,
    });
    assert!(oom.is_some_and(|free| free > 1 << 29 && free < 1 << 30), "{oom:?}");
}

#[test]
fn threads_that_free_what_others_obtained_are_recorded_in_order() {
    let Some((folder, program)) = made("LOOKED_UP") else { return };
    let Some(output) = run(folder.path(), &[program.to_str().unwrap(), "threads"]) else { return };
    let trace = read(folder.path(), "program.snap");
    let short = |line: &String| {
        let words: Vec<&str> = line.split(' ').collect();
        (words[0] == "+").then(|| words[4].to_owned())
    };
    let mut recorded: Vec<String> = lines(&trace).iter().filter_map(short).collect();
    let mut expected: Vec<String> =
        printed(&output).iter().filter_map(|line| line.strip_prefix("+ ").map(str::to_owned)).collect();
    recorded.sort();
    expected.sort();
    assert_eq!((recorded.len(), &recorded), (8 * 200 * 2, &expected));
    assert_eq!(lines(&trace).iter().filter(|line| line.starts_with('-')).count(), 8 * 200 * 2);
    for stack in stacks(&trace) {
        assert!(stack.iter().any(|line| line.contains("obtain_a_block")), "{stack:?}");
    }
}

#[test]
fn children_leave_their_parents_file_alone_and_write_their_own() {
    let Some((folder, program)) = made("LOOKED_UP") else { return };
    let Some(output) = run(folder.path(), &["--out", "all.snap", "--", program.to_str().unwrap(), "children"]) else {
        return;
    };
    let trace = read(folder.path(), "all.snap");
    assert_eq!(lines(&trace), printed(&output));
    assert!(!trace.trust.unfinished, "the child that went on with its state did not spoil it");
    let mut files = names(folder.path());
    files.retain(|name| name.ends_with(".snap"));
    assert_eq!(files.len(), 2, "{files:?}");
    let other = read(folder.path(), &files[0]);
    assert!(files[0].starts_with("all.pid") && lines(&other).len() > 20, "{files:?}");
    assert!(stderr(&output).contains(&files[0]), "{}", stderr(&output));
}

#[test]
fn a_program_that_is_killed_leaves_what_it_did_and_its_status() {
    let Some((folder, program)) = made("LINKED") else { return };
    let Some(output) = run(folder.path(), &[program.to_str().unwrap(), "killed"]) else { return };
    assert_eq!(output.status.code(), Some(128 + 9), "{}", stderr(&output));
    let trace = read(folder.path(), "program.snap");
    assert!(trace.trust.unfinished);
    assert_eq!(trace.blocks.requested, [4444]);
}

#[test]
fn a_program_that_ends_without_exit_functions_leaves_all_that_it_did_and_its_status() {
    let Some((folder, program)) = made("LINKED") else { return };
    let ways =
        [("abort", 134), ("_exit", 7), ("_Exit", 7), ("quick_exit", 7), ("exec", 7), ("TERM", 143), ("INT", 130)];
    for (way, status) in ways {
        let file = format!("{way}.snap");
        let words = ["--out", &file, "--", program.to_str().unwrap(), "ends", way];
        let Some(output) = run(folder.path(), &words) else { return };
        assert_eq!(output.status.code(), Some(status), "{way}: {}", stderr(&output));
        let trace = read(folder.path(), &file);
        assert_eq!((&trace.blocks.requested[..], trace.trust.unfinished), (&[4444][..], way != "quick_exit"), "{way}");
    }
}

#[test]
fn a_framework_that_records_its_own_memory_is_left_to_it_or_recorded_beside_it() {
    let Some((folder, program)) = made("LINKED") else { return };
    let program = program.to_str().unwrap();
    let Some(output) = run(folder.path(), &["--out", "own.snap", "--", program, "framework", "0"]) else { return };
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(7), ""));
    assert!(stderr(&output).contains("nothing was recorded"), "{}", stderr(&output));
    run(folder.path(), &["--out", "own.snap", "--", program, "framework", "1"]);
    assert_eq!(read(folder.path(), "own.driver.snap").blocks.requested, [4444]);
    assert!(!names(folder.path()).contains(&"own.snap".to_owned()));
}

#[test]
fn a_program_without_calls_leaves_no_file_and_a_reason() {
    let Some((folder, program)) = made("LOOKED_UP") else { return };
    let Some(output) = run(folder.path(), &[program.to_str().unwrap(), "nothing"]) else { return };
    assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(7), ""));
    assert!(stderr(&output).contains("nothing was recorded"), "{}", stderr(&output));
    assert!(!names(folder.path()).contains(&"program.snap".to_owned()));
    let Some(output) = run(folder.path(), &["no-such-program"]) else { return };
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).starts_with("error: cannot run 'no-such-program'"), "{}", stderr(&output));
    let Some(output) = run(folder.path(), &["--out", "missing/x.snap", program.to_str().unwrap()]) else { return };
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("missing/x.snap"), "{}", stderr(&output));
}

#[test]
fn a_recording_is_named_after_the_program_that_a_shell_runs() {
    let Some((folder, program)) = made("LOOKED_UP") else { return };
    let command = format!("true && '{}' families", program.display());
    let Some(output) = run(folder.path(), &["sh", "-c", &command]) else { return };
    assert_eq!(lines(&read(folder.path(), "program.snap")), printed(&output));
    assert!(stderr(&output).contains("of program, process"), "{}", stderr(&output));
    let Some(output) = run(folder.path(), &["sh", "-c", "true"]) else { return };
    assert!(stderr(&output).contains("nothing was recorded"), "{}", stderr(&output));
}

#[test]
fn a_signal_to_us_is_passed_on_to_the_program() {
    let folder = tempfile::tempdir().unwrap();
    let Some(output) = run(folder.path(), &["sh", "-c", "kill -TERM $PPID; exec sleep 60"]) else { return };
    assert_eq!(output.status.code(), Some(128 + 15), "{}", stderr(&output));
}

#[cfg(unix)]
#[test]
fn signals_for_the_program_reach_it_and_ignored_ones_remain_ignored() {
    let folder = tempfile::tempdir().unwrap();
    let Some(output) = run(folder.path(), &["sh", "-c", "kill -USR1 $PPID; exec sleep 60"]) else { return };
    assert_eq!(output.status.code(), Some(128 + 10), "{}", stderr(&output));
    // As nohup does.
    let own = env!("CARGO_BIN_EXE_highwater");
    let within = format!("trap '' HUP; '{own}' run -- sh -c 'kill -HUP $PPID; kill -HUP $$; exit 3'");
    let output = Command::new("sh").args(["-c", &within]).current_dir(folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", stderr(&output));
}

#[test]
fn an_existing_file_remains_where_nothing_is_recorded() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("old.snap");
    std::fs::write(&file, "of yesterday").unwrap();
    let Some(output) = run(folder.path(), &["--out", "old.snap", "--", "true"]) else { return };
    assert!(output.status.success(), "{}", stderr(&output));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "of yesterday");
    let Some(output) = run(folder.path(), &["--out", "old.txt", "--", "true"]) else { return };
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("unknown suffix '.txt'"), "{}", stderr(&output));
    // Folders may be called anything, as those of mktemp.
    std::fs::create_dir(folder.path().join("tmp.x9")).unwrap();
    let Some(output) = run(folder.path(), &["--out", "tmp.x9", "--", "true"]) else { return };
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn less_is_recorded_where_less_is_asked_for() {
    let Some((folder, program)) = made("ASKED") else { return };
    let program = program.to_str().unwrap();
    let Some(output) = run(folder.path(), &["--no-stacks", "--smallest", "5000", program, "families"]) else { return };
    printed(&output);
    let trace = read(folder.path(), "program.snap");
    assert!(stacks(&trace).iter().all(Vec::is_empty) && trace.header.level == "events");
    assert!(trace.blocks.requested.iter().all(|&bytes| bytes >= 5000) && !trace.blocks.is_empty());
    assert!(
        trace.header.notes().any(|note| note.contains("left out, each smaller than 4.88 KiB")),
        "{:?}",
        trace.header
    );
    let Some(output) = run(folder.path(), &["--ring", "10", program, "families"]) else { return };
    printed(&output);
    let trace = read_file(&folder.path().join("program.snap")).unwrap();
    let lost = trace.trust.events_lost > 10;
    assert_eq!((trace.header.ring_capacity, trace.event_count(), lost), (Some(10), 10, true));
}

#[test]
fn the_recorders_own_variables_are_left_to_the_program_and_ranks_name_files() {
    let Some((folder, program)) = made("LOOKED_UP") else { return };
    let words = ["--out", "driver.snap", "--", program.to_str().unwrap(), "families"];
    let variables = [("HIGHWATER_RECORD", "own.snap"), ("RANK", "3"), ("WORLD_SIZE", "8")];
    let Some(output) = run_with(folder.path(), &words, &variables) else { return };
    let recorded = lines(&read(folder.path(), "driver.rank3.snap"));
    assert_eq!(recorded, printed(&output));
    let mut files = names(folder.path());
    files.retain(|name| name.ends_with(".snap"));
    assert_eq!(files, ["driver.rank3.snap"], "{}", stderr(&output));
}

#[cfg(feature = "engine")]
#[test]
fn the_driver_gave_what_the_engines_own_recording_says_is_reserved() {
    for settings in ["expandable_segments:False", "expandable_segments:True"] {
        let folder = tempfile::tempdir().unwrap();
        let own = env!("CARGO_BIN_EXE_highwater");
        let step = ["record", "mlp", "--device", "cuda", "--steps", "2", "--alloc-conf", settings];
        let words: Vec<&str> = ["--out", "driver.snap", "--", own].into_iter().chain(step).collect();
        let Some(output) = run(folder.path(), &words) else { return };
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        let (engine, driver) = (read(folder.path(), "mlp.snap"), read(folder.path(), "driver.snap"));
        let reserved = |trace: &Trace| -> Vec<(u16, u64)> {
            let of_device = |device: &DeviceSummary| {
                let peak = device.peak(Metric::Reserved)?;
                (peak.bytes > 0).then_some((device.device.0, peak.bytes))
            };
            summaries(trace).iter().filter_map(of_device).collect()
        };
        assert_eq!(reserved(&driver).first(), reserved(&engine).first(), "{settings}");
        assert!(reserved(&driver).first().is_some_and(|&(device, bytes)| device == 0 && bytes > 1 << 20));
    }
}
