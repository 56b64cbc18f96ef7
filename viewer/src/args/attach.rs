//! The options of `highwater attach`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

/// Training steps that are recorded by default.
const STEPS: u32 = 3;

fn duration(text: &str) -> Result<Duration, String> {
    let units = [("ms", 0.001), ("s", 1.0), ("min", 60.0), ("h", 3600.0)];
    let of_unit = |(unit, seconds): (&str, f64)| Some(text.strip_suffix(unit)?.trim().parse::<f64>().ok()? * seconds);
    let seconds = units.into_iter().find_map(of_unit);
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    duration.filter(|duration| !duration.is_zero()).ok_or_else(|| "expected a time, such as 30s or 5min".to_owned())
}

/// `highwater attach`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Example: highwater attach $(pgrep -f train.py) --steps 3")]
pub struct AttachArguments {
    /// Process id of a Python program that uses CUDA through PyTorch
    pub pid: u32,
    /// Whole training steps to record, from the next one on
    #[arg(long, value_name = "N", default_value_t = STEPS, value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "duration")]
    pub steps: u32,
    /// Record for this time instead, such as 30s or 5min: for programs without training steps
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub duration: Option<Duration>,
    /// File to write [default: pid123.snap, in the current folder]
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Record no stacks
    #[arg(long)]
    pub no_stacks: bool,
    /// Keep only the last N events
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub ring: Option<u64>,
}
