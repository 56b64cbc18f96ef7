//! Tests that recordings stay complete and small: rotated files, external start and stop, a full disk, and a path that
//! is not writable.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use highwater_analysis::{Metric, Series, verify};
use highwater_recorder::api::{self, NewBlock};
use highwater_recorder::snapshots::event::EventKind;
use highwater_recorder::snapshots::format::{Windows, read_file};
use highwater_recorder::snapshots::rotation::{self, RotatedFiles};
use highwater_recorder::snapshots::trace::DeviceFacts;
use highwater_recorder::snapshots::{EventId, StartingState, Trace};
use highwater_recorder::{
    DeviceId, Error, Finished, HistoryOptions, Level, Pool, Recording, Sink, Source, StreamId, Switch, Symbols,
    Trigger, scope,
};

/// The recorder is one for the process: tests that record take turns.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    scope::leave_steps();
    turn
}

/// A device that holds nothing when a recording begins.
struct Empty;

impl Source for Empty {
    fn facts(&self) -> DeviceFacts {
        DeviceFacts { name: "test".to_owned(), ..DeviceFacts::default() }
    }

    fn freeze(&self, read: &mut dyn FnMut(StartingState)) {
        read(StartingState::default());
    }
}

fn device() -> Arc<dyn Source> {
    let source: Arc<dyn Source> = Arc::new(Empty);
    api::register(&source);
    source
}

fn requested(block: u64) -> u64 {
    1000 + block % 3000
}

fn alloc(block: u64) {
    let (stream, pool) = (StreamId(0), Pool::Small);
    let address = 0x1000 * block;
    api::alloc(DeviceId(0), &NewBlock { block, address, requested: requested(block), allocated: 4096, stream, pool });
}

fn free(block: u64) {
    api::free(DeviceId(0), block);
}

fn options(path: &Path) -> HistoryOptions {
    let options = HistoryOptions { symbols: Symbols::Never, ..HistoryOptions::to_file(path) };
    options.level(Level::Events)
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(folder).expect("the test's own").flatten().map(|entry| entry.path()).collect();
    files.sort();
    files
}

fn open(path: &Path) -> Trace {
    let trace = read_file(path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
    assert_eq!(verify::verify_trace(&trace), [], "{}", path.display());
    trace
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < Duration::from_secs(60), "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Takes a block of this number again and again, until the recording that begins takes notice of it.
fn alloc_until_recorded(block: u64) {
    wait_until("it records", api::is_recording);
    // The recording reads the devices' states a little later than it begins.
    for again in 0..50 {
        alloc(block + again * 3000);
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// A thousand blocks, of which every tenth stays.
fn train(from: u64, step: u32) {
    scope::step(step);
    let _scope = scope::scope("layer");
    let _op = scope::op("matmul");
    for block in from..from + 1000 {
        alloc(block);
        if block % 10 != 0 {
            free(block);
        }
    }
}

/// Trains at least `steps` steps, and until `is_enough`: how many events go to a file depends on when the background
/// thread looks. Returns the number of blocks.
fn train_until(steps: u32, is_enough: impl Fn() -> bool) -> u64 {
    for step in 0..5_000 {
        if step >= steps && is_enough() {
            return u64::from(step) * 1000;
        }
        train(u64::from(step) * 1000, step);
        std::thread::sleep(Duration::from_millis(2));
    }
    panic!("5,000 steps were not enough");
}

#[test]
fn each_of_several_files_is_whole_and_begins_with_what_lives() {
    let _turn = turn();
    let _device = device();
    let folder = tempfile::tempdir().expect("a folder for the test");
    let mut wanted = options(&folder.path().join("run.snap")).rotate(40_000, None);
    wanted.flush_every = Duration::from_millis(1);
    let recording = Recording::start(wanted).expect("nothing else records");
    let blocks = train_until(40, || files(folder.path()).len() > 2);
    let finished = recording.finish().expect("the disk has room");
    let files = files(folder.path());
    assert_eq!(finished.file.as_ref(), files.last());
    let traces: Vec<Trace> = files.iter().map(|file| open(file)).collect();
    assert!(traces.iter().map(|trace| trace.blocks.len() as u64).sum::<u64>() >= blocks);
    let mut former_end = 0;
    for (trace, file) in traces.iter().zip(&files) {
        assert!(!trace.trust.unfinished && trace.trust.unmatched_frees == 0, "{}", file.display());
        let series = Series::build(trace, DeviceId(0));
        let baseline: u64 =
            trace.blocks.ids().map(|id| trace.blocks.get(id)).filter(|b| b.is_baseline()).map(|b| b.requested).sum();
        assert_eq!(baseline, former_end, "{} begins where the one before ended", file.display());
        former_end = series.end(trace).requested;
        for block in trace.blocks.ids().map(|id| trace.blocks.get(id)) {
            assert_eq!(
                trace.tables.op_name(block.op),
                "matmul",
                "operations from before are known: {}",
                file.display()
            );
        }
        assert!(
            trace.spans.rows().first().is_some_and(|span| span.step.is_some()),
            "it knows the step that it begins in"
        );
    }
    let stays: u64 = (0..blocks).filter(|block| block % 10 == 0).map(requested).sum();
    assert_eq!(former_end, stays);
    let events: u64 = traces.iter().map(|trace| trace.events.len() as u64).sum();
    let repeated = traces.len() as u64 - 1;
    assert_eq!(events, finished.counts.events + repeated, "the step is said anew in each file");
}

/// The kinds, times and steps of the events, and the requested bytes after each; without the marks at the beginning of
/// files.
fn events_with_totals(trace: &Trace) -> Vec<(EventKind, u64, Option<u32>, u64)> {
    let series = Series::build(trace, DeviceId(0));
    let ids = trace.events.ids().filter(|id| trace.events.kind[id.0 as usize] != EventKind::Mark);
    let row_of = |id: EventId| {
        let row = id.0 as usize;
        let step = trace.spans.at(id).and_then(|span| span.step);
        (trace.events.kind[row], trace.events.time_ns[row], step, series.after(trace, id).requested)
    };
    ids.map(row_of).collect()
}

#[test]
fn the_files_of_a_run_open_as_one_recording_also_where_the_first_are_gone() {
    let _turn = turn();
    let _device = device();
    let folder = tempfile::tempdir().expect("a folder for the test");
    let path = folder.path().join("run.snap");
    let mut wanted = HistoryOptions { sink: Sink::Both(path.clone()), ..options(&path) }.rotate(8_000, None);
    wanted.flush_every = Duration::from_millis(1);
    let recording = Recording::start(wanted).expect("nothing else records");
    train_until(60, || files(folder.path()).len() > 12);
    let expected =
        events_with_totals(&recording.finish().expect("the disk has room").trace.expect("it is also in memory"));
    let files = files(folder.path());
    assert!(files.len() >= 12, "{files:?}");
    let open = |path: &Path| {
        let found = Windows::find_rotated(path).expect("the files are of one run");
        let windows = Windows::open_rotated(&found, &(), &mut |_| ControlFlow::Continue(())).expect("they are whole");
        windows.whole().expect("they are whole")
    };
    let all = open(&path);
    assert!(events_with_totals(&all) == expected && all.is_complete() && all.problems.is_empty(), "{:?}", all.problems);
    assert_eq!(all.events.len() - expected.len(), files.len() - 1, "each further file begins with a mark");
    assert!(all.blocks.ids().all(|id| all.tables.op_name(all.blocks.get(id).op) == "matmul"));
    assert_eq!(events_with_totals(&open(folder.path())), expected, "the folder stands for its files");
    let problems = |trace: &Trace| trace.problems.iter().map(ToString::to_string).collect::<Vec<_>>();
    let next = rotation::numbered(&path, files.len() as u32 + 1);
    std::fs::write(&next, "").expect("the test's own");
    let all = open(&path);
    let name = next.file_name().unwrap_or_default().to_string_lossy().into_owned();
    assert_eq!(problems(&all), [format!("{name} is empty and is skipped")]);
    assert!(events_with_totals(&all) == expected, "a file that was only begun changes nothing");
    std::fs::remove_file(&next).expect("it is there");
    let whole = std::fs::read(&files[4]).expect("it is there");
    std::fs::write(&files[4], &whole[..whole.len() * 2 / 3]).expect("the test's own");
    let cut = open(&path);
    let found = events_with_totals(&cut);
    assert!(
        problems(&cut)
            .contains(&"run.0006.snap does not continue run.0005.snap: the files before it are skipped".to_owned())
    );
    assert!(found[1..] == expected[expected.len() + 1 - found.len()..], "no event is missing in the middle");
    std::fs::write(&files[4], whole).expect("the test's own");
    for file in &files[..8] {
        std::fs::remove_file(file).expect("it is there");
    }
    let rest = open(&folder.path().join("run.*.snap"));
    let found = events_with_totals(&rest);
    // The first file says in which step it begins.
    assert!(found[1..] == expected[expected.len() + 1 - found.len()..], "the totals are those of the whole run");
    let gap = "files 1 to 8 of the recording are missing: the recording begins with run.0009.snap, and the blocks \
               live then are its baseline";
    assert_eq!(problems(&rest), [gap]);
    assert!(verify::verify_trace(&rest).is_empty(), "{:?}", verify::verify_trace(&rest));
}

#[test]
fn a_ring_leaves_the_file_of_the_last_run_until_it_has_a_better_one() {
    let _turn = turn();
    let _device = device();
    let folder = tempfile::tempdir().expect("a folder for the test");
    let path = folder.path().join("ring.snap");
    std::fs::write(&path, "the last run").expect("the test's own");
    let recording = Recording::start(options(&path).ring(10)).expect("nothing else records");
    assert!(matches!(Recording::start(options(&path)), Err(Error::AlreadyRecording)));
    alloc(1);
    assert_eq!(std::fs::read(&path).expect("it is there"), b"the last run");
    let theirs = std::fs::File::open(&path).expect("it is there");
    assert!(theirs.try_lock().is_err(), "others see that it is wanted");
    recording.finish().expect("the disk has room");
    assert_eq!(open(&path).blocks.requested, [1001]);
}

#[test]
fn a_run_goes_on_after_the_files_of_the_run_before_and_counts_them_to_its_budget() {
    let _turn = turn();
    let _device = device();
    let folder = tempfile::tempdir().expect("a folder for the test");
    let run = |budget| {
        let mut wanted = options(&folder.path().join("run.snap")).rotate(20_000, Some(budget));
        wanted.flush_every = Duration::from_millis(1);
        let recording = Recording::start(wanted).expect("nothing else records");
        for step in 0..10 {
            train(u64::from(step) * 1000, step);
            std::thread::sleep(Duration::from_millis(2));
        }
        recording.finish().expect("the disk has room").file.expect("it goes to files")
    };
    let first = run(10_000_000);
    let second = run(10_000_000);
    assert!(second > first && first.exists(), "{second:?} after {first:?}");
    let found = RotatedFiles::find(&folder.path().join("run.snap")).expect("there are files");
    let both = Windows::open_rotated(&found, &(), &mut |_| ControlFlow::Continue(())).expect("they are whole");
    let problem = both.base().problems.first().map(ToString::to_string).unwrap_or_default();
    assert!(problem.ends_with("belong to earlier runs and are skipped"), "{problem}");
    assert_eq!(both.whole().expect("they are whole").spans.steps().len(), 10, "the steps are those of the second run");
    let third = run(40_000);
    assert!(third > second && !first.exists(), "what is old goes first");
}

#[test]
fn the_oldest_files_go_when_the_disk_shall_hold_no_more() {
    let _turn = turn();
    let _device = device();
    let folder = tempfile::tempdir().expect("a folder for the test");
    let mut wanted = options(&folder.path().join("run.snap")).rotate(20_000, Some(60_000));
    wanted.flush_every = Duration::from_millis(1);
    let recording = Recording::start(wanted).expect("nothing else records");
    let first = folder.path().join("run.0001.snap");
    let blocks = train_until(60, || !first.exists() && !files(folder.path()).is_empty());
    let finished = recording.finish().expect("the disk has room");
    let files = files(folder.path());
    assert_eq!(finished.file.as_ref(), files.last());
    let sizes: Vec<u64> = files.iter().map(|file| std::fs::metadata(file).map_or(0, |facts| facts.len())).collect();
    // The last may be larger than it should, by what is written at a time.
    assert!(sizes.iter().sum::<u64>() <= 60_000 || sizes.len() == 1, "{sizes:?} bytes");
    let stays: u64 = (0..blocks).filter(|block| block % 10 == 0).map(requested).sum();
    let last = open(files.last().expect("there are some"));
    let series = Series::build(&last, DeviceId(0));
    assert_eq!(series.end(&last).requested, stays);
    assert!(series.peak(&last, Metric::Requested).0 >= stays);
}

#[test]
fn budgets_and_rings_that_cannot_be_met_are_refused() {
    let _turn = turn();
    let path = Path::new("never.snap");
    for wrong in [options(path).rotate(100, Some(150)), options(path).ring(5).rotate(100, None), options(path).ring(0)]
    {
        assert!(matches!(Recording::start(wrong), Err(Error::Options(_))));
    }
    assert!(!path.exists());
}

#[test]
fn a_path_that_cannot_be_written_is_refused_at_the_start_and_so_is_one_in_use() {
    let _turn = turn();
    let _device = device();
    let folder = tempfile::tempdir().expect("a folder for the test");
    for wanted in
        [options(folder.path()), options(&folder.path().join("missing/run.snap")), options(folder.path()).ring(5)]
    {
        let refused = Recording::start(wanted).expect_err("a folder is no file").to_string();
        assert!(refused.contains(&*folder.path().to_string_lossy()), "{refused}");
    }
    let path = folder.path().join("mine.snap");
    let theirs = std::fs::File::create(&path).expect("the test's own");
    theirs.lock().expect("nobody else has it");
    let refused = Recording::start(options(&path)).expect_err("somebody writes to it");
    assert!(matches!(refused, Error::InUse { .. }), "{refused}");
    theirs.unlock().expect("it was locked");
    Recording::start(options(&path)).expect("it is free now").finish().expect("the disk has room");
}

const FILLING_CHILD: &str = "HIGHWATER_TEST_FILLING_CHILD";

/// Not a separate test: what the child of the next test runs, whose files may not grow beyond a limit.
#[test]
fn the_child_fills_its_disk() {
    let Some(path) = std::env::var_os(FILLING_CHILD) else { return };
    let _device = device();
    let mut wanted = options(Path::new(&path));
    wanted.flush_every = Duration::from_millis(1);
    if path.to_string_lossy().ends_with("ring.snap") {
        let recording = Recording::start(wanted.ring(5)).expect("an empty file has room");
        train(0, 0);
        let Finished { file, problem, .. } = recording.finish().expect("the program goes on");
        assert!(file.is_none() && problem.is_some(), "{file:?} {problem:?}");
        return;
    }
    let recording = Recording::start(wanted).expect("there is room yet");
    for step in 0..100 {
        train(u64::from(step) * 1000, step);
        std::thread::sleep(Duration::from_millis(1));
    }
    let Finished { file, counts, problem, .. } = recording.finish().expect("the recording is there, up to a point");
    assert_eq!(file.as_deref(), Some(Path::new(&path)));
    let refused = problem.expect("the file could not take all");
    let outcome = format!("{} {}\n{refused}", counts.events, counts.events_lost);
    std::fs::write(Path::new(&path).with_extension("said"), outcome).expect("two lines are not too long");
}

#[test]
fn on_a_full_disk_the_file_ends_whole_that_is_stated_once_and_training_goes_on() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let path = folder.path().join("full.snap");
    let program = std::env::current_exe().expect("the test binary");
    // The limit is in blocks of 512 bytes or 1 KiB, by shell.
    let limited = format!(
        "trap '' XFSZ; ulimit -f 60; exec '{}' --exact the_child_fills_its_disk --nocapture --test-threads=1",
        program.display()
    );
    let child = Command::new("sh").args(["-c", &limited]).env(FILLING_CHILD, &path).output().expect("sh runs");
    let stderr = String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success(), "training went on to its end: {stderr}");
    let outcome = std::fs::read_to_string(path.with_extension("said")).expect("the child said what became of it");
    assert_eq!(stderr.matches("recording to the file stopped").count(), 1, "{stderr}");
    assert!(stderr.contains("full.snap") && outcome.contains("full.snap"), "{stderr}{outcome}");
    let trace = open(&path);
    assert!(trace.events.len() > 1000 && trace.trust.unfinished, "{} events", trace.events.len());
    assert!(trace.spans.steps().len() < 100);
    let counts: Vec<u64> =
        outcome.lines().next().into_iter().flat_map(str::split_whitespace).flat_map(str::parse).collect();
    assert_eq!(trace.events.len() as u64, counts[0] - counts[1], "what is not lost is in the file: {outcome}");
    let bytes = std::fs::read(&path).expect("it is there");
    assert!(highwater_recorder::snapshots::format::read_bytes(&bytes).is_ok());
}

#[test]
fn a_ring_for_which_the_disk_has_no_room_leaves_no_file_and_that_is_stated() {
    let folder = tempfile::tempdir().expect("a folder for the test");
    let program = std::env::current_exe().expect("the test binary");
    let limited = format!(
        "trap '' XFSZ; ulimit -f 0; exec '{}' --exact the_child_fills_its_disk --nocapture --test-threads=1",
        program.display()
    );
    let path = folder.path().join("ring.snap");
    // Standard error is a pipe, which has no limit.
    let child = Command::new("sh").args(["-c", &limited]).env(FILLING_CHILD, &path).output().expect("sh runs");
    let stderr = String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success(), "{stderr}");
    assert!(stderr.contains("no part of the recording was saved") && !stderr.contains("can be opened"), "{stderr}");
}

#[test]
fn a_file_that_comes_and_goes_begins_and_ends_recordings() {
    let _turn = turn();
    let _device = device();
    let folder = tempfile::tempdir().expect("a folder for the test");
    let switch_file = folder.path().join("record.me");
    let named = |number: u32| folder.path().join(format!("run.000{number}.snap"));
    let switch = Switch::watch(options(&folder.path().join("run.snap")), Trigger::File(switch_file.clone()))
        .expect("it watches");
    alloc(1);
    for number in 1..=2 {
        std::fs::write(&switch_file, "").expect("the test's own");
        alloc_until_recorded(100 * u64::from(number));
        std::fs::remove_file(&switch_file).expect("it is there");
        wait_until("it stops", || !api::is_recording());
        wait_until("the file is whole", || read_file(&named(number)).is_ok_and(|trace| !trace.trust.unfinished));
    }
    drop(switch);
    for (number, bytes) in [(1, 1100), (2, 1200)] {
        let sizes = open(&named(number)).blocks.requested.clone();
        assert!(!sizes.is_empty() && sizes.iter().all(|size| *size == bytes), "{number}: {sizes:?}");
    }
}

#[cfg(unix)]
#[test]
fn a_signal_begins_a_recording_and_the_next_ends_it() {
    let _turn = turn();
    let _device = device();
    let folder = tempfile::tempdir().expect("a folder for the test");
    let switch =
        Switch::watch(options(&folder.path().join("run.snap")), Trigger::Signal(libc::SIGUSR2)).expect("it watches");
    let signal = || {
        let sent = Command::new("sh").args(["-c", &format!("kill -USR2 {}", std::process::id())]).status();
        assert!(sent.is_ok_and(|status| status.success()));
    };
    signal();
    alloc_until_recorded(5);
    signal();
    wait_until("it stops", || !api::is_recording());
    drop(switch);
    let sizes = open(&folder.path().join("run.0001.snap")).blocks.requested.clone();
    assert!(!sizes.is_empty() && sizes.iter().all(|size| *size == 1005), "{sizes:?}");
}

#[test]
fn a_recording_is_completed_while_the_next_one_runs() {
    let _turn = turn();
    let _device = device();
    let folder = tempfile::tempdir().expect("a folder for the test");
    let (first, second) = (folder.path().join("first.snap"), folder.path().join("second.snap"));
    let recording = Recording::start(HistoryOptions::to_file(&first)).expect("nothing else records");
    alloc(1);
    let finishing = recording.finish_in_background();
    let recording = Recording::start(HistoryOptions::to_file(&second)).expect("the first no longer records");
    alloc(2);
    recording.finish().expect("the disk has room");
    finishing.wait().expect("the disk has room");
    let (first, second) = (open(&first), open(&second));
    assert_eq!((first.blocks.requested.as_slice(), second.blocks.requested.as_slice()), (&[1001][..], &[1002][..]));
    assert!(!first.tables.lines.is_empty(), "it has source lines");
}

#[test]
fn events_that_nobody_reads_in_time_are_counted_and_memory_stays_bounded() {
    let _turn = turn();
    let _device = device();
    let mut wanted = HistoryOptions::in_memory().level(Level::Events);
    wanted.queue_bytes = 1 << 20;
    let recording = Recording::start(wanted).expect("nothing else records");
    let mut most = 0;
    for block in 0..300_000 {
        alloc(block);
        free(block);
        most = most.max(highwater_recorder::recording::queue_bytes());
    }
    let finished = recording.finish().expect("memory takes everything");
    assert!(most <= 3 << 20, "{most} bytes in queues, of which each thread's first pieces are not limited");
    assert_eq!(finished.counts.events, 900_000, "what was lost is counted");
    let trace = finished.trace.expect("wanted in memory");
    assert_eq!(trace.events.len() as u64 + finished.counts.events_lost, 900_000);
    assert_eq!(trace.trust.events_lost, finished.counts.events_lost);
}
