//! Runs the same training steps with this engine and with candle in turn, with the same initial parameters and number
//! of threads.
//!
//! `RAYON_NUM_THREADS=2 cargo run --release -- [gpt2|tiny-nerf-64|tiny-nerf-256 …]` prints the median of each phase in
//! milliseconds. Both begin with the same parameters, and the run fails unless their losses agree.

mod task;
mod ours;
mod candles;

use std::time::Duration;

use anyhow::{Result, ensure};

use task::{Phases, Task};

/// Number of warm-up steps, in which memory is allocated and threads are started.
const WARM_UP: usize = 2;

fn main() -> Result<()> {
    let mut wanted: Vec<String> = std::env::args().skip(1).collect();
    let runs = match wanted.iter().position(|word| word == "--runs") {
        Some(at) => wanted.drain(at..(at + 2).min(wanted.len())).nth(1).unwrap_or_default().parse()?,
        None => 9,
    };
    println!("{} threads, medians of {runs} steps", rayon::current_num_threads());
    println!("{:<16}{:<12}{:>12}{:>12}{:>8}", "", "", "ours, ms", "candle, ms", "ratio");
    for task in Task::ALL.iter().filter(|task| wanted.is_empty() || wanted.iter().any(|word| word == task.name())) {
        compare(task, runs)?;
    }
    Ok(())
}

fn compare(task: &Task, runs: usize) -> Result<()> {
    let (mut ours, parameters) = ours::trainer(task)?;
    let mut theirs = candles::trainer(task, parameters)?;
    let mut times: [Vec<Phases>; 2] = [Vec::new(), Vec::new()];
    for run in 0..WARM_UP + runs {
        let ((our_times, our_loss), (their_times, their_loss)) = (ours.step()?, theirs.step()?);
        let apart = (our_loss - their_loss).abs() / their_loss.abs();
        ensure!(apart < 1e-2, "{}: after {run} steps, the losses are {our_loss} and {their_loss}", task.name());
        if run >= WARM_UP {
            times[0].push(our_times);
            times[1].push(their_times);
        }
    }
    for (phase, name) in ["forward", "backward", "optimizer", "step"].into_iter().enumerate() {
        let [ours, theirs] = [0, 1].map(|who| median(times[who].iter().map(|phases| phases.of(phase))));
        let case = if phase == 0 { task.name() } else { "" };
        println!("{case:<16}{name:<12}{ours:>12.2}{theirs:>12.2}{:>8.2}", ours / theirs);
    }
    Ok(())
}

/// The median in milliseconds.
fn median(times: impl Iterator<Item = Duration>) -> f64 {
    let mut times: Vec<Duration> = times.collect();
    times.sort_unstable();
    times.get(times.len() / 2).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3)
}
