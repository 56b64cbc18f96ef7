//! `highwater attach`: records a PyTorch program that is running.

mod scripts;

use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;

use self::scripts::{Notes, Scripts, inject};
use crate::commands::run::{Signals, function, is_running, make_way, report_file_of};
use crate::output::{Failure, Page, Status};

const STEPS: u32 = 3;

fn duration(text: &str) -> Result<Duration, String> {
    let units = [("ms", 0.001), ("s", 1.0), ("min", 60.0), ("h", 3600.0)];
    let of_unit = |(unit, seconds): (&str, f64)| Some(text.strip_suffix(unit)?.trim().parse::<f64>().ok()? * seconds);
    let seconds = units.into_iter().find_map(of_unit);
    let duration = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let why = "expected a positive duration in ms, s, min or h, such as 30s or 5min";
    duration.filter(|duration| !duration.is_zero()).ok_or_else(|| why.to_owned())
}

/// Arguments of `highwater attach`.
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
    /// Count each call of this function as a step: Engine.step, or package.module:Engine.step
    #[arg(long, value_name = "NAME", value_parser = function)]
    pub step_at: Option<String>,
    /// End the recording that another `highwater attach` of this program has begun
    #[arg(long, conflicts_with_all = ["steps", "duration", "step_at", "out", "no_stacks", "ring"])]
    pub detach: bool,
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

/// Interval for reading the status messages of the recorded program.
const PAUSE: Duration = Duration::from_millis(50);
/// Time after which the command prints the condition for which it waits.
const PATIENCE: Duration = Duration::from_secs(10);

/// Records the program until the requested steps or time are over, or until interrupted, and prints the peak. With
/// `--detach`, ends the recording that another `highwater attach` has begun instead.
///
/// # Errors
/// Fails if the process cannot be recorded, or ends before the recording is written.
pub(crate) fn run(arguments: &AttachArguments, page: &mut Page<'_>) -> Result<Status, Failure> {
    let pid = arguments.pid;
    if !is_running(pid) {
        return Err(Failure::Usage(format!("there is no process {pid} on this machine")));
    }
    let out = arguments.out.clone().unwrap_or_else(|| PathBuf::from(format!("pid{pid}.snap")));
    let out = std::path::absolute(&out).map_err(|why| Failure::Write(format!("{}: {why}", out.display())))?;
    if !arguments.detach {
        make_way(&out)?;
    }
    let cannot = |why: io::Error| Failure::Record(format!("process {pid} cannot be recorded: {why}"));
    let mut scripts = Scripts::for_process(pid).map_err(cannot)?;
    let signals = Signals::catch()?;
    let script = if arguments.detach { scripts.end_other() } else { scripts.begin(&out, &options(arguments)) };
    inject(pid, &script.map_err(cannot)?)?;
    let (asked, mut begun) = (Instant::now(), None);
    let (mut is_stated, mut is_over, mut is_ending) = (false, false, false);
    let found = loop {
        let found = scripts.notes();
        if found.has_ended || found.error.is_some() {
            break found;
        }
        if !is_running(pid) {
            // The program may have written the recording before it ended.
            let found = scripts.notes();
            if !found.written.is_empty() {
                break found;
            }
            return Err(Failure::Record(format!("process {pid} ended before its recording was written")));
        }
        if !is_stated && asked.elapsed() > PATIENCE {
            is_stated = true;
            let mut errors = io::stderr().lock();
            Page::for_stderr(&mut errors).line(&format!("highwater: {}", waiting(&found, arguments)))?;
        }
        if found.is_recording {
            let begun = *begun.get_or_insert_with(Instant::now);
            is_over |= arguments.duration.is_some_and(|duration| begun.elapsed() >= duration);
        }
        if signals.take_interrupt() {
            if scripts.withdraw("begin") {
                return Err(Failure::Record(
                    "nothing was recorded: the main thread did not run Python in that time".to_owned(),
                ));
            }
            if is_ending && scripts.withdraw("end") {
                let text = format!("process {pid} writes its recording when its main thread runs Python again");
                return Err(Failure::Record(text));
            }
            is_over = true;
        }
        if is_over && found.is_recording && !is_ending {
            is_ending = true;
            inject(pid, &scripts.end().map_err(cannot)?)?;
        }
        std::thread::sleep(PAUSE);
    };
    // The program may not have run the script yet if the steps were over at the same time.
    scripts.withdraw("end");
    if let Some(why) = found.error {
        let what = if arguments.detach { "" } else { " cannot be recorded" };
        return Err(Failure::Record(format!("process {pid}{what}: {why}")));
    }
    let nothing = || {
        let remedy =
            if arguments.detach { "" } else { "; with --duration, programs without training steps are recorded" };
        Failure::Record(format!("nothing was recorded: no training step has begun{remedy}"))
    };
    report_file_of(found.written.last().ok_or_else(nothing)?, page)?;
    Ok(Status::Fine)
}

fn waiting(notes: &Notes, arguments: &AttachArguments) -> &'static str {
    match (notes.is_recording, arguments.duration) {
        (false, _) => "waiting for the program's main thread to run Python",
        (true, None) => "waiting for the end of the training steps; an interrupt (Ctrl+C) ends the recording",
        (true, Some(_)) => "recording; an interrupt (Ctrl+C) ends it",
    }
}

/// Returns the options of `record_memory_history`, as Python code.
fn options(arguments: &AttachArguments) -> String {
    let mut options = Vec::new();
    if arguments.duration.is_none() {
        // The step that is running is not whole.
        options.push(format!("steps=range(1, {})", u64::from(arguments.steps) + 1));
    }
    if let Some(name) = &arguments.step_at {
        options.push(format!("step_at='{name}'"));
    }
    if arguments.no_stacks {
        options.push("context=None".to_owned());
    }
    options.extend(arguments.ring.map(|events| format!("max_entries={events}")));
    options.join(", ")
}
