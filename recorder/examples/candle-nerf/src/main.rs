//! Records a candle program: the tiny NeRF, trained on the CPU.
//!
//! `cargo run --release --manifest-path recorder/examples/candle-nerf/Cargo.toml`, then `highwater candle.snap`.
//! Options, each with a number: `--image` (pixels on each side, 16), `--samples` (points on each ray, 32), `--width`
//! (64), `--layers` (8), `--chunk` (points that go through the network at a time, 2048), `--steps` (3); `--out FILE`
//! (`candle.snap`), and `--checkpoint`, by which chunks run again in backward. `--image 100 --samples 64 --chunk 65536`
//! is the scenario `tiny-nerf`, and takes 5 GB; docs/candle.md shows what that finds.
//!
//! Candle has no hook for its allocations on the cpu, so the global allocator tells them. The rest are guards:
//! `guards.rs` puts one around each operation, module, phase and step, and that is all that is added to a program of
//! candle's.

#![expect(clippy::print_stdout, reason = "a program that answers on its standard output")]

mod guards;
mod scene;
mod nerf;
mod adamw;
mod training;
#[cfg(test)]
mod tests;

use std::error::Error;
use std::path::PathBuf;

use highwater_recorder::{HistoryOptions, RecordedHeap, WhenBehind, record_memory_history, scope};

use training::{Sizes, Training};

#[global_allocator]
static HEAP: RecordedHeap = RecordedHeap::new();

const SMALL: Sizes = Sizes { image: 16, samples: 32, width: 64, layers: 8, chunk: 2048, steps: 3, checkpoint: false };

fn main() -> Result<(), Box<dyn Error>> {
    let (sizes, file) = arguments(std::env::args().skip(1))?;
    let options = HistoryOptions { when_behind: WhenBehind::Wait, ..HistoryOptions::to_file(file) };
    let run = record_memory_history(options, || Ok(train(sizes)?))?;
    if let Some(problem) = run.problem {
        return Err(problem.into());
    }
    let points = sizes.image * sizes.image * sizes.samples;
    let (first, last) = (run.value.first().copied().unwrap_or(f32::NAN), run.value.last().copied().unwrap_or(f32::NAN));
    println!("{} steps of {points} points; the loss went from {first:.4} to {last:.4}.", sizes.steps);
    if let Some(file) = run.file {
        println!("{} events in {}; highwater {} opens it.", run.counts.events, file.display(), file.display());
    }
    Ok(())
}

/// Trains, and returns the loss of each step.
fn train(sizes: Sizes) -> candle_core::Result<Vec<f32>> {
    let mut training = Training::new(sizes)?;
    let losses = (0..sizes.steps).map(|number| training.step(number)).collect();
    scope::leave_steps();
    losses
}

fn arguments(mut words: impl Iterator<Item = String>) -> Result<(Sizes, PathBuf), String> {
    let (mut sizes, mut file) = (SMALL, PathBuf::from("candle.snap"));
    while let Some(word) = words.next() {
        if word == "--checkpoint" {
            sizes.checkpoint = true;
            continue;
        }
        let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
        if word == "--out" {
            file = value.into();
            continue;
        }
        let number: u32 = value
            .parse()
            .ok()
            .filter(|number| *number > 0)
            .ok_or_else(|| format!("invalid value '{value}' for {word}: expected an integer of at least 1"))?;
        match &*word {
            "--image" => sizes.image = number as usize,
            "--samples" => sizes.samples = number as usize,
            "--width" => sizes.width = number as usize,
            "--layers" => sizes.layers = number as usize,
            "--chunk" => sizes.chunk = number as usize,
            "--steps" => sizes.steps = number,
            _ => return Err(format!("unknown option {word}: the first lines of the example list the options")),
        }
    }
    Ok((sizes, file))
}
