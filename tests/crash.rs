//! Tests that the file of a program killed during a recording can be opened.

use std::io::Read;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use highwater_analysis::{Metric, Series, verify};
use highwater_engine::{DType, Device, Tensor};
use highwater_recorder::{HistoryOptions, Recording, scope};
use highwater_snapshots::format::read_file;

const CHILD: &str = "HIGHWATER_TEST_CRASHING_CHILD";

/// Not a separate test: what the child of the test below runs until it is killed.
#[test]
fn the_child_records_until_it_is_killed() {
    let Some(path) = std::env::var_os(CHILD) else {
        return;
    };
    let _recording = Recording::start(HistoryOptions::to_file(path)).expect("the folder is the test's own");
    let device = Device::accounting(1 << 40);
    let mut kept = Vec::new();
    for step in 0.. {
        scope::step(step);
        let tensor = |elements: usize| Tensor::empty([elements], DType::F32, &device).expect("far from full");
        kept.push(tensor(1000 + step as usize % 7));
        for size in 1..100 {
            drop(tensor(size * 1000));
        }
    }
}

#[test]
fn a_recording_that_is_killed_opens_up_to_its_last_moments() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let path = folder.path().join("killed.snap");
    let program = std::env::current_exe().expect("the test binary");
    let mut child = Command::new(program)
        .args(["--exact", "crash::the_child_records_until_it_is_killed", "--test-threads=1"])
        .env(CHILD, &path)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the test binary runs again");
    let started = Instant::now();
    while std::fs::metadata(&path).map_or(0, |facts| facts.len()) < 200_000 {
        if started.elapsed() > Duration::from_secs(120) || child.try_wait().expect("a child").is_some() {
            let _ = child.kill();
            let mut said = String::new();
            child.stderr.take().map(|mut pipe| pipe.read_to_string(&mut said));
            panic!("the child recorded nothing to speak of: {said}");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().expect("it runs");
    child.wait().expect("it was killed");

    let trace = read_file(&path).expect("what was written opens");
    assert!(trace.trust.unfinished);
    assert_eq!((trace.trust.events_lost, trace.trust.unmatched_frees), (0, 0));
    assert!(trace.events.len() > 10_000, "{} events", trace.events.len());
    assert!(trace.spans.steps().len() > 10);
    assert_eq!(verify::verify_trace(&trace), []);
    let series = Series::build(&trace, trace.main_device());
    assert!(series.peak(&trace, Metric::Requested).0 > 99_000 * 4);
    assert_eq!(trace.device_facts(trace.main_device()).map(|facts| facts.capacity_bytes), Some(1 << 40));
}

#[test]
fn a_recording_cut_at_any_section_keeps_every_section_before_the_cut() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let path = folder.path().join("whole.snap");
    let _turn = highwater_tests::recording_turn();
    let device = Device::accounting(1 << 30);
    {
        let recording = Recording::start(HistoryOptions::to_file(&path)).expect("nothing else records");
        for size in 1..2000 {
            drop(Tensor::empty([size], DType::F32, &device).expect("it fits"));
        }
        recording.finish().expect("the disk has room");
    }
    let bytes = std::fs::read(&path).expect("the file is there");
    let whole = highwater_snapshots::format::read_bytes(&bytes).expect("it is whole");
    let mut events = 0;
    for cut in (0..bytes.len()).step_by(101) {
        match highwater_snapshots::format::read_bytes(&bytes[..cut]) {
            Ok(part) => {
                let has_all = part.events.len() == whole.events.len();
                assert!(part.trust.unfinished || has_all, "cut at {cut}");
                assert!(part.events.len() >= events, "a longer part has no fewer events");
                events = part.events.len();
                assert_eq!(part.events.time_ns, whole.events.time_ns[..events]);
            }
            Err(why) => assert!(events == 0, "cut at {cut}: {why}"),
        }
    }
    assert_eq!(events, whole.events.len(), "what follows the last event chunk is dispensable");
}
