//! A long run: events at a steady rate for minutes, and the same killed at random moments.
//!
//! `cargo run --release -p highwater-recorder --example soak -- run soak.snap 600 100000` records ten minutes at
//! 100,000 events a second, and prints each minute what memory the process has. `… -- kill FOLDER 50` starts that fifty
//! times, kills it after a random time, opens each file, compares windows of it with the whole, and tells how much is
//! missing before the moment of the kill.

#![expect(clippy::print_stdout, reason = "tells its figures")]

use std::error::Error;
use std::fs::File;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use highwater_analysis::replay::Replay;
use highwater_analysis::verify;
use highwater_recorder::api::{self, NewBlock};
use highwater_recorder::recording::queue_bytes;
use highwater_recorder::snapshots::event::What;
use highwater_recorder::snapshots::format::{Windows, read_file};
use highwater_recorder::snapshots::trace::DeviceFacts;
use highwater_recorder::snapshots::{StartingState, Trace};
use highwater_recorder::{
    Category, DeviceId, HistoryOptions, Phase, Pool, Recording, Source, StreamId, Symbols, scope,
};

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// Number of threads that allocate and free memory, each on its own device.
const THREADS: u16 = 4;
/// Events of one operation: a few blocks are allocated, and as many are freed, with two events each.
const EVENTS_AN_OP: u64 = 12;

/// Events per second of the program that is killed: enough for its file to have checkpoints.
const KILLED_RATE: &str = "600000";

struct Device(DeviceId);

impl Source for Device {
    fn facts(&self) -> DeviceFacts {
        DeviceFacts { device: self.0, name: format!("soak {}", self.0.0), ..DeviceFacts::default() }
    }

    fn freeze(&self, read: &mut dyn FnMut(StartingState)) {
        read(StartingState { device: self.0, ..StartingState::default() });
    }
}

/// Runs one operation, `depth` calls deeper.
#[inline(never)]
fn operation(depth: u32, device: DeviceId, next: &mut u64) -> u64 {
    if depth > 0 {
        return std::hint::black_box(operation(depth - 1, device, next)) + 1;
    }
    let _op = scope::op("matmul");
    let first = *next;
    for block in first..first + EVENTS_AN_OP / 3 {
        let (address, requested) = (0x1000 * (block % 10_000), 1000 + block % 3000);
        let (stream, pool) = (StreamId(0), Pool::Small);
        api::alloc(device, &NewBlock { block, address, requested, allocated: 4096, stream, pool });
    }
    *next += EVENTS_AN_OP / 3;
    // What the operation before last took goes back.
    let before_last = first.checked_sub(2 * EVENTS_AN_OP / 3);
    for block in before_last.into_iter().flat_map(|from| from..from + EVENTS_AN_OP / 3) {
        api::free(device, block);
    }
    1
}

fn thread(device: u16, until: Instant, events_per_second: u64) {
    let (began, mut done, mut next) = (Instant::now(), 0, 0);
    while Instant::now() < until {
        let due = began.elapsed().as_micros() as u64 * events_per_second / 1_000_000;
        while done < due {
            if device == 0 && done.is_multiple_of(EVENTS_AN_OP * 100) {
                scope::step((done / (EVENTS_AN_OP * 100)) as u32);
            }
            let _scope = scope::scope(if done.is_multiple_of(24) { "encoder" } else { "decoder" });
            let _category = scope::category(Category::Activation);
            operation(20 + (done / EVENTS_AN_OP % 20) as u32, DeviceId(device), &mut next);
            done += EVENTS_AN_OP;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn resident_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("0");
    line.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or(0)
}

fn run(path: &Path, seconds: u64, events_per_second: u64) -> Outcome {
    let devices: Vec<Arc<dyn Source>> = (0..THREADS).map(|device| Arc::new(Device(DeviceId(device))) as _).collect();
    devices.iter().for_each(api::register);
    let options = HistoryOptions { symbols: Symbols::Never, ..HistoryOptions::to_file(path) };
    let recording = Recording::start(options)?;
    let _phase = scope::phase(Phase::Forward);
    let until = Instant::now() + Duration::from_secs(seconds);
    std::thread::scope(|threads| {
        for device in 0..THREADS {
            threads.spawn(move || thread(device, until, events_per_second / u64::from(THREADS)));
        }
        threads.spawn(|| {
            let (mut second, mut most_waiting) = (0, 0);
            while Instant::now() < until {
                std::thread::sleep(Duration::from_secs(1));
                second += 1;
                most_waiting = most_waiting.max(queue_bytes());
                if second % 60 == 1 {
                    let size = std::fs::metadata(path).map_or(0, |facts| facts.len());
                    println!(
                        "{second:>5} s: {:>7} KiB resident, at most {:>5} KiB in queues, file {:>8} KiB",
                        resident_kib(),
                        most_waiting >> 10,
                        size >> 10
                    );
                }
            }
        });
    });
    let finished = recording.finish()?;
    println!("{} events, {} lost", finished.counts.events, finished.counts.events_lost);
    Ok(())
}

/// Pseudorandom numbers from a seed.
fn next_random(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
    *state >> 33
}

/// Applies every event before position `end`.
fn run_to(replay: &mut Replay<'_>, end: usize) {
    while replay.position() < end && replay.step().is_some() {}
}

/// Checks that windows of the file have the totals of the whole.
fn check_windows(path: &Path, trace: &Trace, seed: &mut u64) -> Outcome {
    let windows = Windows::open(Arc::new(File::open(path)?), &mut |_| ControlFlow::Continue(()))?;
    if windows.events() != trace.events.len() as u64 {
        return Err(format!("{} events in windows, {} in the whole", windows.events(), trace.events.len()).into());
    }
    for _ in 0..3 {
        let start = next_random(seed) % windows.events();
        let end = (start + 1 + next_random(seed) % 100_000).min(windows.events());
        let window = windows.window(start..end)?;
        for device in trace.device_ids() {
            let (mut whole, mut part) = (Replay::new(trace, device), Replay::new(&window, device));
            run_to(&mut whole, start as usize);
            let before = (whole.totals(), part.totals());
            run_to(&mut whole, end as usize);
            run_to(&mut part, window.events.len());
            let after = (whole.totals(), part.totals());
            if before.0 != before.1 || after.0 != after.1 {
                return Err(format!("events {start} to {end} of {device:?}: {before:?}, {after:?}").into());
            }
        }
    }
    Ok(())
}

/// Records, kills the process and opens the file; returns the seconds missing before the kill, and the number of events
/// in the file.
fn kill_once(path: &Path, after: Duration, seed: &mut u64) -> Outcome<(f64, usize)> {
    let mut child = Command::new(std::env::current_exe()?)
        .args(["run".as_ref(), path.as_os_str(), "3600".as_ref(), KILLED_RATE.as_ref()])
        .stdout(Stdio::null())
        .spawn()?;
    while std::fs::metadata(path).map_or(0, |facts| facts.len()) < 1000 {
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(after);
    let killed = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs_f64();
    child.kill()?;
    child.wait()?;
    let trace = read_file(path)?;
    let problems = verify::verify_trace(&trace);
    if !problems.is_empty() {
        return Err(format!("{problems:?}").into());
    }
    let lost = (trace.trust.events_lost, trace.trust.unmatched_frees);
    if lost != (0, 0) {
        return Err(format!("lost and unmatched: {lost:?}").into());
    }
    check_windows(path, &trace, seed)?;
    let allocs = trace.events.ids().filter(|id| matches!(trace.what(*id), What::Alloc(_))).count();
    let last_ns = trace.events.time_ns.last().copied().ok_or("no event")?;
    let began = trace.header.started_unix_us as f64 / 1e6;
    Ok((killed - (began + last_ns as f64 / 1e9), allocs))
}

fn kill(folder: &Path, times: u64) -> Outcome {
    std::fs::create_dir_all(folder)?;
    let mut seed = SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos() as u64;
    let mut worst: f64 = 0.0;
    for time in 1..=times {
        let after = Duration::from_millis(300 + next_random(&mut seed) % 6000);
        let path = folder.join(format!("killed-{time}.snap"));
        let (missing, allocs) = kill_once(&path, after, &mut seed)?;
        worst = worst.max(missing);
        println!(
            "{time:>3}: killed after {after:>7.2?}, opens, {allocs:>7} allocations, {missing:.3} s missing at the end"
        );
        std::fs::remove_file(&path)?;
    }
    println!("killed {times} times, opened {times} times; at most {worst:.3} s missing at the end");
    if worst < 1.0 { Ok(()) } else { Err("more than a second is missing".into()) }
}

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |text: &str| text.parse::<u64>();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["run", path, seconds, rate] => run(Path::new(path), number(seconds)?, number(rate)?),
        ["kill", folder, times] => kill(Path::new(folder), number(times)?),
        _ => Err("usage: soak run FILE SECONDS EVENTS_A_SECOND | soak kill FOLDER TIMES".into()),
    }
}
