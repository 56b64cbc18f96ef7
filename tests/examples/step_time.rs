//! Times the training step of a scenario without recording, with events, and with stacks; measures its memory, and
//! checks that allocator and driver agree on it. Prints one JSON object.
//!
//!     step_time [--device D] [--warm-up N] [--rounds N] [--seconds S] SCENARIO [OPTION…]
//!
//! After the steps to warm up, rounds are run one after another, in each as many steps in each of the three ways, so
//! that a clock that drifts drifts for all; as many as take about the given seconds, 20 at most. A step's time is that
//! until the device has done all of its work.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "printing is what this program is for")]

use std::error::Error;
use std::process::ExitCode;
use std::time::Instant;

use highwater_engine::Device;
use highwater_engine::scenario::{DeviceChoice, Session};
use highwater_recorder::{HistoryOptions, Level, Recording};
use highwater_tests::command::parse;
use serde_json::{Value, json};

/// The ways in which steps are run.
const WAYS: [(&str, Option<Level>); 3] =
    [("off", None), ("events", Some(Level::Events)), ("stacks", Some(Level::Stacks))];

/// Steps in one way in one round, at most.
const MAX_STEPS: f64 = 20.0;

/// How the steps are run.
struct Plan {
    device: DeviceChoice,
    warm_up: u32,
    rounds: u32,
    seconds: f64,
    /// The scenario and its options.
    command: String,
}

fn main() -> ExitCode {
    match plan().and_then(|plan| measure(&plan)) {
        Ok(found) => {
            println!("{found}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

fn plan() -> Result<Plan, Box<dyn Error>> {
    let mut plan = Plan { device: DeviceChoice::Cuda(0), warm_up: 3, rounds: 3, seconds: 20.0, command: String::new() };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("{word} has no value"));
        match &*word {
            "--device" => {
                plan.device = match &*value()? {
                    "meta" => DeviceChoice::Meta,
                    "cpu" => DeviceChoice::Cpu,
                    "cuda" => DeviceChoice::Cuda(0),
                    other => return Err(format!("--device {other}: give meta, cpu or cuda").into()),
                }
            }
            "--warm-up" => plan.warm_up = value()?.parse()?,
            "--rounds" => plan.rounds = value()?.parse()?,
            "--seconds" => plan.seconds = value()?.parse()?,
            _ => {
                plan.command = [word].into_iter().chain(words).collect::<Vec<_>>().join(" ");
                break;
            }
        }
    }
    Ok(plan)
}

fn measure(plan: &Plan) -> Result<Value, Box<dyn Error>> {
    let (name, mut options) = parse(&plan.command)?;
    options.device = plan.device;
    let mut session = Session::start(&name, &options).map_err(|why| why.to_string())?;
    let device = session.device().clone();
    let folder = tempfile::tempdir()?;
    let warm_up = timed(&mut session, plan.warm_up.max(1))?;
    let all_us = f64::from(plan.rounds) * WAYS.len() as f64 * *warm_up.last().unwrap_or(&1) as f64;
    let steps = (plan.seconds * 1e6 / all_us).clamp(1.0, MAX_STEPS) as u32;
    let mut times = WAYS.map(|_| Vec::new());
    let mut events = 0;
    for _ in 0..plan.rounds {
        for ((way, level), times) in WAYS.iter().zip(&mut times) {
            let to_file =
                |level: Level| HistoryOptions::to_file(folder.path().join(format!("{way}.snap"))).level(level);
            let recording = level.map(|level| Recording::start(to_file(level))).transpose()?;
            times.extend(timed(&mut session, steps)?);
            if let Some(recording) = recording {
                let counts = recording.finish()?.counts;
                if counts.events_lost > 0 {
                    return Err(format!("{} events were lost", counts.events_lost).into());
                }
                events = counts.events / u64::from(steps);
            }
        }
    }
    let stats = device.allocator().stats();
    let ways = WAYS.iter().zip(&times).map(|((way, _), times)| ((*way).to_owned(), spread(times)));
    Ok(json!({
        "command": plan.command,
        "device": device.allocator().device_name(),
        "warm_up_us": warm_up,
        "step": ways.collect::<serde_json::Map<_, _>>(),
        "events_a_step": events,
        "max_requested_bytes": stats.requested_bytes.all.peak,
        "max_allocated_bytes": stats.allocated_bytes.all.peak,
        "max_reserved_bytes": stats.reserved_bytes.all.peak,
        "driver": beside_the_driver(session, &device)?,
    }))
}

/// Runs steps, each until the device is done, and gives their microseconds.
fn timed(session: &mut Session, steps: u32) -> Result<Vec<u64>, Box<dyn Error>> {
    let step = |_| -> Result<u64, Box<dyn Error>> {
        let start = Instant::now();
        session.step_unseen()?;
        session.device().synchronize()?;
        Ok(start.elapsed().as_micros() as u64)
    };
    (0..steps).map(step).collect()
}

/// The median, the fastest, and what a tenth of the steps took longer than.
fn spread(times: &[u64]) -> Value {
    let mut times = times.to_vec();
    times.sort_unstable();
    let at = |share: f64| times.get(((times.len() as f64 * share) as usize).min(times.len().saturating_sub(1)));
    json!({"median_us": at(0.5), "least_us": at(0.0), "tenth_above_us": at(0.9), "steps": times.len()})
}

/// Gives everything back but what is kept from the beginning, and tells what the allocator gave back, and by how much
/// more is free, as the driver sees it.
fn beside_the_driver(session: Session, device: &Device) -> Result<Value, Box<dyn Error>> {
    drop(session);
    let allocator = device.allocator();
    let before = allocator.capacity()?;
    let reserved = allocator.stats().reserved_bytes.all.current;
    let given_back = allocator.empty_cache()?;
    let after = allocator.capacity()?;
    Ok(json!({
        "capacity_bytes": before.total,
        "outside_the_allocator_bytes": (before.total - before.free).saturating_sub(reserved),
        "allocator_gave_back_bytes": given_back,
        "driver_got_back_bytes": after.free.saturating_sub(before.free),
    }))
}
